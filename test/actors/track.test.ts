/** A coord's track of a flow and the fold of the same log agree on all that a coord acts by. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { emptyTrack, track } from '../../actors/coord/track.ts';
import { emptyFlow, fold, type LogEntry } from '../../actors/flow/fold.ts';
import { authority, COORD, INC, logs, NODE_A } from './flow/log-maker.ts';

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

test('track - a retry that stands in the log twice opens the flow once, as in the fold', () => {
  const by = `U${'A'.repeat(55)}`;
  const end = { term: 2, status: 'failed', value: null, error: null };
  const retry = { verb: 'retry', job: null, reason: null, by: [by], envelope: '{}', digest: 'one' };
  const story: [writer: string, kind: string, body: object][] = [
    [COORD, 'deploy', { envelope: '{}', engine: 'rhai-1', ledger_revision: 1, submitted_by: [by] }],
    [COORD, 'assign', { node: NODE_A, reason: 'placed' }],
    [NODE_A, 'end', end],
    [COORD, 'retry', retry],
    [NODE_A, 'end', end],
    [COORD, 'retry', retry],
  ];
  const state = emptyFlow();
  let known = emptyTrack();
  for (const [i, [writer, kind, body]] of story.entries()) {
    const place = { lane: 'main', kind, writer, seq: i + 1, at: i } as const;
    const proof = { fence: known.mainSeq };
    const entry: LogEntry = { ...place, body: { v: 1, inc: INC, ...body }, proof };
    fold(state, entry, authority);
    known = track(known, entry, authority);
  }
  assert.deepEqual([state.end?.status, known.end?.status, known.reopened], ['failed', 'failed', 1]);
});
