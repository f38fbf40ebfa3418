/**
 * The lease clock: how long a runner may go on executing. Pure; times are monotonic milliseconds.
 *
 *   L1 a lease runs from the moment its beat was sent, never from the moment the answer came;
 *   L2 it ends `LEASE_MARGIN_MS` before the supervisor counts it as ended;
 *   L3 an older answer never shortens it, and one that comes too late never revives it: once lost it stays
 *      lost, and the runner starts anew under another incarnation.
 */
import { LEASE_MS } from '../schemas/node.ts';

/** The time to kill what runs, before others may run it again. */
export const LEASE_MARGIN_MS = 1000;

export type Lease = {
  /** Until when it holds; null before the first answer. */
  untilMs: number | null;
  lost: boolean;
};

export const NO_LEASE: Lease = { untilMs: null, lost: false };

/** The lease after an answer to the beat sent at `sentMs`; a supervisor may only shorten the term. */
export function renewLease(lease: Lease, sentMs: number, leaseMs: number, nowMs: number): Lease {
  const present = observeLease(lease, nowMs);
  if (present.lost) return present;
  const untilMs = sentMs + Math.min(leaseMs, LEASE_MS) - LEASE_MARGIN_MS;
  return { untilMs: Math.max(present.untilMs ?? untilMs, untilMs), lost: false };
}

/** The lease as it stands now: losing it is noticed here, however late. */
export function observeLease(lease: Lease, nowMs: number): Lease {
  if (lease.lost || lease.untilMs === null || nowMs < lease.untilMs) return lease;
  return { untilMs: lease.untilMs, lost: true };
}

export function holdsLease(lease: Lease, nowMs: number): boolean {
  return lease.untilMs !== null && !observeLease(lease, nowMs).lost;
}
