/**
 * Is the claimer of a pack gone for good? Pure.
 *
 * A claim names a runner and its incarnation. It is lost when its node is dead or has said goodbye since, when a
 * later incarnation of the same runner was seen after the claim, or when its node is well, was heard of more
 * than a lease after the claim, and does not know that incarnation. What was seen before the claim says
 * nothing, whatever the order of incarnations: clocks go back. Nor does the death of a node speak for a claim
 * that is younger than a lease: who claims lives, and the word that it does is on its way.
 */
import type { PackState } from '../actors/flow/fold.ts';
import { LEASE_MS, type RosterNode, type RunnerReport } from '../schemas/node.ts';

/** Beyond a lease: until then a partitioned runner may still be at it (DESIGN 5.6). */
export const LOST_AFTER_MS = LEASE_MS + 1000;

export type NodeView = {
  liveness: RosterNode['liveness'];
  state: string;
  runners: readonly RunnerReport[];
  /** Bus time at which it was so. */
  atMs: number;
  /** The same where silence counts: 0 while nobody has listened for long enough. */
  asOfMs: number;
};

export function isClaimLost(
  { claim }: PackState,
  node: NodeView | undefined,
  nowMs: number,
): boolean {
  if (claim === null || node === undefined) return false;
  const isOld = nowMs > claim.at + LOST_AFTER_MS;
  if (node.liveness === 'dead') return isOld;
  if (node.state === 'stopped') return isOld || node.atMs > claim.at;
  const runner = node.runners.find((each) => each.runner === claim.runner);
  if (runner !== undefined && runner.inc === claim.inc) return false;
  if (runner !== undefined && runner.inc > claim.inc && node.atMs > claim.at) return true;
  return node.liveness === 'live' && node.asOfMs > claim.at + LOST_AFTER_MS;
}
