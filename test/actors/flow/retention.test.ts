/** Retention: nobody is forgotten too early, and nothing is kept for ever. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { type EndedFlow, forgettable } from '../../../actors/flow/retention.ts';

const HOUR = 3600_000;
const NOW = 1_000 * HOUR;
const flows = fc
  .array(fc.integer({ min: 0, max: 1_000 }), { maxLength: 60 })
  .map((hours) => hours.map((hour, i) => ({ flow: `f${i}`, endedMs: hour * HOUR, endedSeq: i })));

test('retention - what goes is too old or too many, and never fresh; what stays is neither', () => {
  fc.assert(
    fc.property(
      flows,
      fc.integer({ min: 0, max: 800 }),
      fc.integer({ min: 0, max: 60 }),
      (ended: EndedFlow[], ageHours, count) => {
        const gone = forgettable(ended, { ageMs: ageHours * HOUR, count }, NOW);
        const age = ({ endedMs }: EndedFlow): number => NOW - endedMs;
        assert.ok(
          gone.every((flow) => age(flow) > 25 * HOUR),
          'its message may still be valid',
        );
        const kept = ended.filter((flow) => !gone.includes(flow));
        const old = kept.filter((flow) => age(flow) > 25 * HOUR);
        assert.ok(old.every((flow) => age(flow) <= ageHours * HOUR));
        assert.ok(old.length === 0 || kept.length <= count);
        const youngestGone = Math.max(0, ...gone.map(({ endedMs }) => endedMs));
        assert.ok(
          old.every(({ endedMs }) => endedMs >= youngestGone),
          'the oldest go first',
        );
      },
    ),
  );
});
