/** A coord's track of a flow and the fold of the same log agree on all that a coord acts by. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { emptyTrack, track } from '../../actors/coord/track.ts';
import { emptyFlow, fold } from '../../actors/flow/fold.ts';
import { authority, logs } from './flow/log-maker.ts';

test('track - after every entry it says of end, term and fence what the fold says', () => {
  let reopened = 0;
  fc.assert(
    fc.property(logs, (log) => {
      const state = emptyFlow();
      let known = emptyTrack();
      for (const entry of log) {
        const before = known;
        fold(state, entry, authority);
        known = track(known, entry, authority);
        assert.deepEqual(
          [known.mainSeq, known.end?.status, known.term?.seq, known.cancelled],
          [state.mainSeq, state.end?.status, state.term?.seq, state.cancelled !== null],
        );
        if (known.reopened === before.reopened) continue;
        reopened += 1;
        assert.equal(known.term?.decided, false, 'its assignee is to be woken');
      }
    }),
    { numRuns: Number(process.env['FOLD_RUNS'] ?? 400) },
  );
  assert.ok(reopened > 20, `only ${reopened} flows were opened again`);
});
