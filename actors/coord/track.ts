/**
 * A coord's view of a flow: who has it and whether it has ended. Pure; a fold over decisions only.
 *
 * Jobs, plans and answers are the supervisor's: here they only show that the term has begun.
 */
import {
  AssignEntry,
  CommandEntry,
  DeployEntry,
  EndEntry,
  type EndStatus,
  isDecisionKind,
} from '../../schemas/flow.ts';
import { authorisedDecision, refuseProof } from '../flow/fold.ts';
import type { Authority, LogEntry } from '../flow/fold.ts';

export type Track = {
  /** Sequence of the last decision: the fence of the next. */
  mainSeq: number;
  deploy: { seq: number; at: number; envelope: string } | null;
  term: { seq: number; at: number; node: string; decided: boolean } | null;
  terms: number;
  cancelled: boolean;
  end: { status: EndStatus } | null;
  /** Times a retry opened it again after its end. */
  reopened: number;
  /** Digests of the payloads of the commands in the log: the same command twice is one. */
  commands: string[];
  /** Jobs planned so far. */
  jobs: number;
};

export const emptyTrack = (): Track => ({
  mainSeq: 0,
  deploy: null,
  term: null,
  terms: 0,
  cancelled: false,
  end: null,
  reopened: 0,
  commands: [],
  jobs: 0,
});

/** The track after one more entry; the same object when nothing changed. */
export function track(before: Track, entry: LogEntry, authority: Authority): Track {
  if (entry.lane !== 'main' || entry.seq <= before.mainSeq) return before;
  const after: Track = { ...before, mainSeq: entry.seq };
  if (!isDecisionKind(entry.kind) || refuseProof(entry, before.mainSeq) !== undefined) return after;
  const term = (entry.body as { term?: unknown } | null)?.term;
  if (!authorisedDecision(before, entry.kind, entry.writer, term, authority)) return after;
  switch (entry.kind) {
    case 'deploy': {
      const body = DeployEntry.safeParse(entry.body);
      if (body.success)
        after.deploy = { seq: entry.seq, at: entry.at, envelope: body.data.envelope };
      return after;
    }
    case 'assign': {
      const body = AssignEntry.safeParse(entry.body);
      if (!body.success) return after;
      after.term = { seq: entry.seq, at: entry.at, node: body.data.node, decided: false };
      after.terms += 1;
      return after;
    }
    case 'end': {
      const body = EndEntry.safeParse(entry.body);
      if (body.success) after.end = { status: body.data.status };
      return after;
    }
    case 'cancel':
    case 'retry':
    case 'pause':
    case 'resume': {
      const body = CommandEntry.safeParse(entry.body);
      if (!body.success || body.data.verb !== entry.kind) return after;
      const { digest } = body.data;
      if (digest !== '' && before.commands.includes(digest)) return after;
      after.commands = [...before.commands, digest];
      if (body.data.verb === 'cancel' && body.data.job === null) {
        after.cancelled = true;
        if (after.term === null) after.end = { status: 'cancelled' };
      }
      // Only a retry of a flow that failed comes here: its assignee has to be woken as for a new term.
      if (body.data.verb === 'retry') {
        after.end = null;
        after.reopened += 1;
        if (after.term !== null) after.term = { ...after.term, decided: false };
      }
      return after;
    }
    default:
      if (entry.kind === 'plan') after.jobs += planned(entry.body);
      if (after.term !== null && !after.term.decided) after.term = { ...after.term, decided: true };
      return after;
  }
}

/** How many new jobs a plan names: all a coord wants of it, so it is not parsed whole. */
function planned(body: unknown): number {
  const { jobs } = body as { jobs?: unknown };
  return Array.isArray(jobs) ? jobs.length : 0;
}
