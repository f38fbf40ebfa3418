/**
 * What a decision of a flow means for jobs that are executed: which of them nobody wants any more. Pure.
 *
 * Read once for each decision, however many packs of the flow a runner has in hand.
 */
import { z } from 'zod';
import type { Entry } from '../bus/bus.ts';
import { CallEntry, CommandEntry } from '../schemas/flow.ts';
import { JobNumber } from '../schemas/ids.ts';

/** `covers`: is this attempt of that job one of those that are to end? */
export type Unwanted = { why: string; covers: (n: number, attempt: number) => boolean };

/** Of a plan only what takes jobs away: most plans do not, and hold hundreds of jobs. */
const Taken = z.array(z.object({ n: JobNumber, attempt: z.int() })).default([]);
const Replan = z.object({ placed: Taken, gone: Taken });

const everything = (): boolean => true;

/** Whom a decision takes away; empty for most. What cannot be read takes nobody away. */
export function unwantedBy(entry: Entry): Unwanted[] {
  if (entry.lane !== 'main') return [];
  switch (entry.kind) {
    case 'end':
      return [{ why: 'the flow has ended', covers: everything }];
    case 'cancel': {
      const command = CommandEntry.safeParse(entry.body).data;
      if (command === undefined) return [];
      const { job, reason } = command;
      const why = reason === null ? 'cancelled' : `cancelled: ${reason}`;
      return [{ why, covers: job === null ? everything : (n) => n === job }];
    }
    case 'call': {
      const call = CallEntry.safeParse(entry.body).data;
      if (call?.name !== 'cancel' || call.error !== null) return [];
      const job = Number(call.args);
      return [{ why: 'cancelled by its script', covers: (n) => n === job }];
    }
    case 'plan': {
      const plan = Replan.safeParse(entry.body).data;
      return plan === undefined ? [] : replaced(plan);
    }
    default:
      return [];
  }
}

function replaced({ placed, gone }: z.infer<typeof Replan>): Unwanted[] {
  const again = newest(placed);
  const given = newest(gone);
  const unwanted: Unwanted[] = [];
  if (again.size > 0) {
    const covers = (n: number, attempt: number): boolean => (again.get(n) ?? 0) > attempt;
    unwanted.push({ why: 'another attempt of it was planned', covers });
  }
  if (given.size > 0) {
    const covers = (n: number, attempt: number): boolean => (given.get(n) ?? 0) >= attempt;
    unwanted.push({ why: 'its supervisor has given it up', covers });
  }
  return unwanted;
}

const newest = (list: z.infer<typeof Taken>): Map<number, number> =>
  new Map(list.map(({ n, attempt }) => [n, attempt]));
