/**
 * Retention: which flows that have ended are forgotten, by age and by count. Pure.
 *
 * An open flow is never forgotten, however old it is. Neither is one whose message may still be valid: its
 * log is what makes the same bytes, sent again, no second flow.
 */
import type { FlowId } from '../../schemas/ids.ts';

export type Retention = {
  /** How long an ended flow is kept. */
  ageMs: number;
  /** How many ended flows of a context are kept at most. */
  count: number;
};

export const RETENTION: Retention = { ageMs: 30 * 24 * 3600_000, count: 100_000 };

/** Longer than any message is valid (schemas/deployment.ts), clocks that disagree included. */
const VALID_MS = 25 * 3600_000;

/** `endedSeq`: sequence of its last decision. */
export type EndedFlow = { flow: FlowId; endedMs: number; endedSeq: number };

/** Those of a context's ended flows that may go now, oldest first. */
export function forgettable(
  ended: readonly EndedFlow[],
  { ageMs, count }: Retention,
  nowMs: number,
): EndedFlow[] {
  const oldestFirst = ended.toSorted((a, b) => a.endedMs - b.endedMs);
  const surplus = ended.length - count;
  return oldestFirst.filter(
    ({ endedMs }, i) => nowMs - endedMs > VALID_MS && (i < surplus || nowMs - endedMs > ageMs),
  );
}
