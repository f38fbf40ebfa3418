/**
 * The overview of a context's flows and refusals, read from the streams when somebody asks.
 *
 * Nothing is kept here: what a flow came to stands in its first and last decisions.
 */
import type { Bus, Entry } from '../../bus/bus.ts';
import { subjects } from '../../bus/subjects.ts';
import type { ErrorRecord } from '../../schemas/errors.ts';
import {
  AssignEntry,
  CommandEntry,
  DeployEntry,
  EndEntry,
  type FlowStatus,
  Refusal,
} from '../../schemas/flow.ts';
import type {
  FlowsReply,
  FlowsRequest,
  RefusalsReply,
  RefusalsRequest,
} from '../../schemas/ledger.ts';
import type { ContextName } from '../../schemas/ids.ts';
import type { EndedFlow } from '../flow/retention.ts';
import type { Directory } from '../ledger/directory.ts';
import { OpenFlows } from './open-flows.ts';

type Summary = {
  flow: string;
  seq: number;
  status: FlowStatus;
  submitted_by: string[];
  supervisor: string | null;
  created_at: string | null;
  ended_at: string | null;
  error: ErrorRecord | null;
};
/** `undoneBefore`: what was asked before this entry no longer holds. */
type Draft = { summary: Summary; undoneBefore: number; pausedSeq: number };

/** In the order in which they are noted: each may undo what the ones before it say. */
const KINDS = ['deploy', 'assign', 'end', 'retry', 'pause', 'resume', 'cancel'] as const;

/** A reply of the bus is at most 1 MiB; one summary with all its causes has a fifth of that at most. */
const PAGE_BYTES_MAX = 512 * 1024;

/** Newest first; `after` is the flow id the last page ended with. */
export async function flowsPage(
  bus: Bus,
  directory: Pick<Directory, 'coords'>,
  { context, after, limit }: FlowsRequest,
): Promise<FlowsReply> {
  const drafts = await draftsOf(bus, directory, context);
  const sorted = [...drafts.values()]
    .map(({ summary }) => summary)
    .sort((a, b) => (b.created_at ?? '').localeCompare(a.created_at ?? ''));
  const from = after === null ? 0 : sorted.findIndex(({ flow }) => flow === after) + 1;
  const page = within(sorted.slice(from, from + limit), PAGE_BYTES_MAX);
  const openFlows = new OpenFlows(bus);
  const flows = await Promise.all(
    page.map(async (summary) => {
      const unplaced =
        summary.status === 'placing'
          ? await openFlows.unplaced({ context, flow: summary.flow })
          : null;
      return {
        ...summary,
        context,
        unplaced,
        status: unplaced === null ? summary.status : ('unplaced' as const),
      };
    }),
  );
  return { flows, next: from + page.length < sorted.length ? (page.at(-1)?.flow ?? null) : null };
}

async function draftsOf(
  bus: Bus,
  directory: Pick<Directory, 'coords'>,
  context: ContextName,
): Promise<Map<string, Draft>> {
  const coords = new Set(directory.coords());
  const drafts = new Map<string, Draft>();
  for await (const entry of bus.log.overview(context, KINDS)) {
    if (entry.lane === 'main') note(drafts, entry, entry.kind, coords);
  }
  return drafts;
}

/** The flows of a context that have ended and were not opened again. */
export async function endedFlows(
  bus: Bus,
  directory: Pick<Directory, 'coords'>,
  context: ContextName,
): Promise<EndedFlow[]> {
  const drafts = await draftsOf(bus, directory, context);
  return [...drafts.values()].flatMap(({ summary, undoneBefore }) => {
    const { flow, ended_at } = summary;
    return ended_at === null
      ? []
      : [{ flow, endedMs: Date.parse(ended_at), endedSeq: undoneBefore }];
  });
}

/** As many of them as have so many bytes together, and at least one. */
function within(summaries: readonly Summary[], bytesMax: number): readonly Summary[] {
  let bytes = 0;
  const tooMany = summaries.findIndex((summary, i) => {
    bytes += Buffer.byteLength(JSON.stringify(summary));
    return i > 0 && bytes > bytesMax;
  });
  return tooMany < 0 ? summaries : summaries.slice(0, tooMany);
}

function newDraft(flow: string): Draft {
  return {
    summary: {
      flow,
      seq: 1,
      status: 'placing',
      submitted_by: [],
      supervisor: null,
      created_at: null,
      ended_at: null,
      error: null,
    },
    undoneBefore: 0,
    pausedSeq: 0,
  };
}

function note(
  drafts: Map<string, Draft>,
  entry: Entry,
  kind: string,
  coords: ReadonlySet<string>,
): void {
  if (entry.proof === null) return;
  const at = new Date(entry.at).toISOString();
  const draft = drafts.get(entry.flow) ?? newDraft(entry.flow);
  drafts.set(entry.flow, draft);
  const { summary } = draft;
  if (kind === 'end') return noteEnd(draft, entry, at);
  if (!coords.has(entry.writer)) return;
  if (kind === 'deploy') {
    summary.created_at = at;
    summary.seq = entry.seq;
    summary.submitted_by = DeployEntry.safeParse(entry.body).data?.submitted_by ?? [];
  }
  if (kind === 'assign') {
    summary.supervisor = AssignEntry.safeParse(entry.body).data?.node ?? null;
    summary.status = 'running';
  } else noteCommand(draft, entry, kind);
}

/** The newest of each kind is all that is known: whether it still holds shows by what came after it. */
function noteCommand(draft: Draft, entry: Entry, kind: string): void {
  const { summary } = draft;
  if (entry.seq <= draft.undoneBefore) return;
  if (kind === 'retry' && summary.status === 'failed') {
    Object.assign(summary, { status: 'running', ended_at: null, error: null });
    draft.undoneBefore = entry.seq;
  }
  if (summary.ended_at !== null) return;
  if (kind === 'pause' && summary.supervisor !== null) {
    summary.status = 'paused';
    draft.pausedSeq = entry.seq;
  }
  if (kind === 'resume' && entry.seq > draft.pausedSeq && summary.status === 'paused') {
    summary.status = 'running';
  }
  const cancels = kind === 'cancel' && CommandEntry.safeParse(entry.body).data?.job === null;
  if (!cancels) return;
  summary.status = summary.supervisor === null ? 'cancelled' : 'cancelling';
  if (summary.supervisor !== null) return;
  // Nobody was ever assigned: the command itself is the end.
  summary.ended_at = new Date(entry.at).toISOString();
  draft.undoneBefore = entry.seq;
}

/** An end counts only from the assignee; the entries come in the log's order, so it is known by now. */
function noteEnd(draft: Draft, entry: Entry, at: string): void {
  const { summary } = draft;
  const end = EndEntry.safeParse(entry.body);
  if (!end.success || entry.writer !== summary.supervisor) return;
  summary.status = end.data.status;
  summary.error = end.data.error;
  summary.ended_at = at;
  draft.undoneBefore = entry.seq;
}

/** Refusals of a context: all, or those of one flow id or one envelope digest. */
export async function refusalsOf(
  bus: Bus,
  { context, id }: RefusalsRequest,
): Promise<RefusalsReply> {
  const refusals: RefusalsReply['refusals'] = [];
  for await (const { body, at } of bus.stored('refused', subjects.refusedOf(context))) {
    const refusal = Refusal.safeParse(body);
    if (!refusal.success) continue;
    const { flow, envelope } = refusal.data;
    if (id === null || id === flow || id === envelope) refusals.push({ ...refusal.data, at });
  }
  return { refusals };
}
