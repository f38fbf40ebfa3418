/**
 * What a decision of a flow means for jobs that are executed: which of them nobody wants any more. Pure.
 *
 * Read once for each decision, however many packs of the flow a runner has in hand.
 */
import { z } from 'zod';
import type { Entry } from '../bus/bus.ts';
import { CallEntry, CommandEntry } from '../schemas/flow.ts';
import { JobNumber } from '../schemas/ids.ts';

/** An attempt in a pack; `begunSeq` is where the log says that it begins, undefined while it does not. */
export type Attempt = { n: number; attempt: number; pack: string; begunSeq: number | undefined };

/** `seq`: of the decision. `covers`: is this one of the attempts that are to end? */
export type Unwanted = { why: string; seq: number; covers: (attempt: Attempt) => boolean };

/** Of a plan only what takes jobs away: most plans do not, and hold hundreds of jobs. */
const Taken = z.object({ n: JobNumber, attempt: z.int() });
const Placed = Taken.extend({ pack: z.string().nullish() });
const Replan = z.object({ placed: z.array(Placed).default([]), gone: z.array(Taken).default([]) });

const everything = (): boolean => true;

/** Whom a decision takes away; empty for most. What cannot be read takes nobody away. */
export function unwantedBy(entry: Entry): Unwanted[] {
  if (entry.lane !== 'main' || entry.proof === null) return [];
  const { seq } = entry;
  switch (entry.kind) {
    case 'end':
      return [{ why: 'the flow has ended', seq, covers: everything }];
    case 'cancel': {
      const command = CommandEntry.safeParse(entry.body).data;
      if (command === undefined) return [];
      const { job, reason } = command;
      const why = reason === null ? 'cancelled' : `cancelled: ${reason}`;
      return [{ why, seq, covers: job === null ? everything : ({ n }) => n === job }];
    }
    case 'call': {
      const call = CallEntry.safeParse(entry.body).data;
      if (call?.name !== 'cancel' || call.error !== null) return [];
      const job = Number(call.args);
      return [{ why: 'cancelled by its script', seq, covers: ({ n }) => n === job }];
    }
    case 'plan': {
      const plan = Replan.safeParse(entry.body).data;
      return plan === undefined ? [] : replaced(seq, plan);
    }
    default:
      return [];
  }
}

function replaced(seq: number, { placed, gone }: z.infer<typeof Replan>): Unwanted[] {
  const again = newest(placed);
  const moved = new Map(placed.map((placement) => [placement.n, placement]));
  const given = newest(gone);
  const unwanted: Unwanted[] = [];
  if (again.size > 0) {
    const covers = ({ n, attempt }: Attempt): boolean => (again.get(n) ?? 0) > attempt;
    unwanted.push({ why: 'another attempt of it was planned', seq, covers });
    // As the fold has it: what the log said before to begin stays where it is, what comes after is too late.
    const left = ({ n, attempt, pack, begunSeq }: Attempt): boolean =>
      moved.get(n)?.attempt === attempt &&
      moved.get(n)?.pack !== pack &&
      (begunSeq === undefined || begunSeq > seq);
    unwanted.push({ why: 'it was given to another pack', seq, covers: left });
  }
  if (given.size > 0) {
    const covers = ({ n, attempt }: Attempt): boolean => (given.get(n) ?? 0) >= attempt;
    unwanted.push({ why: 'its supervisor has given it up', seq, covers });
  }
  return unwanted;
}

const newest = (list: z.infer<typeof Taken>[]): Map<number, number> =>
  new Map(list.map(({ n, attempt }) => [n, attempt]));
