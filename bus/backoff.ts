/**
 * Waiting times between tries: capped exponential, with jitter so that many who lost the same thing at the
 * same moment do not come back at the same moment.
 */
export type BackoffBounds = { firstMs: number; capMs: number };

/** The wait before try `attempt` (from 0): between half and all of the exponential step. */
export function backoffMs(attempt: number, { firstMs, capMs }: BackoffBounds): number {
  const step = Math.min(capMs, firstMs * 2 ** Math.min(attempt, 30));
  return Math.round(step / 2 + (Math.random() * step) / 2);
}
