/**
 * Signed changes of the ledger, pure: is this one new, seen before, or older than what stands?
 *
 * A change is signed bytes, so who has seen them can send them again. Each record keeps, for every signer,
 * the id and the time of his last change of it. Invariants:
 *   C1 a signer's changes of one record only go forward in his own time: old bytes change nothing again;
 *   C2 the last bytes once more are answered as the first time, so a lost reply may be asked for again;
 *   C3 the mark is in the record it guards, written in the same compare-and-set.
 * What a change does stands in contexts.ts and registration.machine.ts.
 */
import { HeroError } from '../../schemas/errors.ts';
import type { Principal } from '../../schemas/ids.ts';
import type { ChangeMark, ChangeRecord, LedgerChange } from '../../schemas/ledger.ts';

/** How far a signer's clock may be ahead of the bus: further, and his next honest change would be refused. */
const CLOCK_AHEAD_MAX_MS = 10 * 60 * 1000;

/** A verified change: whose signature, which bytes, and what they say. */
export type AskedChange = {
  by: Principal;
  id: string;
  issuedAt: string;
  reason: string | null;
  /** Bus time. */
  atMs: number;
};

export type Marked = { marks?: Record<string, ChangeMark> | undefined };

/** Throws when the bytes are old, or from a clock that is ahead. */
export function judgeMark(record: Marked | undefined, asked: AskedChange): 'new' | 'seen' {
  const mark = record?.marks?.[asked.by];
  if (mark?.id === asked.id) return 'seen';
  const issuedMs = Date.parse(asked.issuedAt);
  const aheadMs = issuedMs - asked.atMs;
  if (aheadMs > CLOCK_AHEAD_MAX_MS) {
    throw new HeroError(
      'not_yet_valid',
      `the change was issued ${Math.round(aheadMs / 1000)} s ahead of the bus`,
      { fix: 'Set the clock of the machine that signs, then sign the change again.' },
    );
  }
  if (mark !== undefined && issuedMs <= Date.parse(mark.issued_at)) {
    throw new HeroError('expired', `a later change by ${asked.by} stands already`, {
      fix: 'Sign the change again; if that does not help, the clock of the signing machine is behind.',
    });
  }
  return 'new';
}

/** The record's marks with this change in them, and the change as it will be remembered. */
export function marked(
  record: Marked | undefined,
  asked: AskedChange,
  change: LedgerChange,
): { marks: Record<string, ChangeMark>; last: ChangeRecord } {
  return {
    marks: { ...record?.marks, [asked.by]: { id: asked.id, issued_at: asked.issuedAt } },
    last: { v: 1, id: asked.id, by: asked.by, at_ms: asked.atMs, reason: asked.reason, change },
  };
}
