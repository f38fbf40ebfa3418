/**
 * Flows as the CLI sees them: the fold of a flow's log, live or as it stands, as the flow object of
 * INTERFACES 2; and what the ledger knows beside it (refused messages, why a flow has no node yet).
 */
import { z } from 'zod';
import type { Entry, Follower } from '../../bus/bus.ts';
import { base32 } from '../../bus/identity.ts';
import { type Change, emptyFlow, fold, type FlowState } from '../../actors/flow/fold.ts';
import { showFlow } from '../../actors/flow/show.ts';
import { HeroError } from '../../schemas/errors.ts';
import { type Flow, FlowStatus, type Job, Refusal } from '../../schemas/flow.ts';
import { type FlowRef, parseJobId } from '../../schemas/ids.ts';
import { exactJson } from '../../schemas/json.ts';
import { usage } from './failure.ts';
import { contextOf, type Session } from './session.ts';

/** A job that waits for a node says why. */
type JobObject = Job & { unplaced?: string };

export type FlowObject = Omit<Flow, 'jobs'> & {
  jobs: JobObject[];
  /** Why no node has the flow yet. */
  unplaced?: string | null;
  /** Messages with this flow's payload, or about it, that were refused. */
  refusals?: StoredRefusal[];
};

/** `at`: when the bus took it; the ledger counts in ms, people read it as every other time. */
const StoredRefusal = Refusal.extend({
  at: z.int().transform((ms) => new Date(ms).toISOString()),
});
type StoredRefusal = z.infer<typeof StoredRefusal>;

export const ListedFlow = z.object({
  flow: z.string(),
  context: z.string(),
  status: FlowStatus,
  submitted_by: z.array(z.string()),
  supervisor: z.string().nullable(),
  created_at: z.string().nullable(),
  ended_at: z.string().nullable(),
  error: z.unknown(),
  unplaced: z.string().nullable().default(null),
});
export type ListedFlow = z.infer<typeof ListedFlow>;

const RefusalsReply = z.object({ refusals: z.array(StoredRefusal) });
const FlowsReply = z.object({ flows: z.array(ListedFlow), next: z.string().nullable() });
const PAGE = 100;

export function flowObject(ref: FlowRef, state: FlowState): FlowObject {
  const flow = showFlow(ref.context, ref.flow, state, exactJson);
  const jobs = flow.jobs.map((job, n): JobObject => {
    const unplaced = state.jobs[n]?.unplaced ?? null;
    return unplaced === null ? job : { ...job, unplaced };
  });
  return { ...flow, jobs };
}

/** Folds the log from its first entry on, past and future, until stopped. */
export function followFlow(
  session: Session,
  ref: FlowRef,
  onChange: (state: FlowState, changes: Change[], entry: Entry) => void,
): { state: FlowState; follower: Follower } {
  const state = emptyFlow();
  const follower = session.bus.log.follow(ref, 1, (entry) => {
    const changes = fold(state, entry, session);
    if (changes.length > 0) onChange(state, changes, entry);
  });
  return { state, follower };
}

/** The flow as its log stands now; undefined when there is no such flow in this context. */
async function readFlow(session: Session, ref: FlowRef): Promise<FlowState | undefined> {
  const state = emptyFlow();
  for await (const entry of session.bus.log.read(ref)) fold(state, entry, session);
  return state.deploy === null ? undefined : state;
}

export async function* listFlows(session: Session, context: string): AsyncIterable<ListedFlow> {
  let after: string | null = null;
  do {
    const page: z.infer<typeof FlowsReply> = FlowsReply.parse(
      await session.ask('flows', { context, after, limit: PAGE }),
    );
    yield* page.flows;
    after = page.next;
  } while (after !== null);
}

/** Why the flow has no node; null when it has one, or nobody knows. */
export async function whyUnplaced(session: Session, ref: FlowRef): Promise<string | null> {
  for await (const { flow, unplaced } of listFlows(session, ref.context)) {
    if (flow === ref.flow) return unplaced;
  }
  return null;
}

/** Refused messages by flow id or by the digest of the message. */
export async function refusalsOf(
  session: Session,
  context: string,
  id: string,
): Promise<StoredRefusal[]> {
  return RefusalsReply.parse(await session.ask('refusals', { context, id })).refusals;
}

/** A message that never became a flow, in the shape of one. */
export function refusedFlow(context: string, id: string, refusals: StoredRefusal[]): FlowObject {
  const last = refusals.at(-1);
  const object = flowObject({ context, flow: last?.flow ?? id }, emptyFlow());
  return {
    ...object,
    status: 'refused',
    error: last?.error ?? null,
    submitted_by: last?.signers ?? [],
    refusals,
  };
}

export type FlowName = { id: string; job: number | null };

/** A flow id, `<flow>.<n>`, or a SHA-256 in hex of a payload or message: its first 16 bytes name it too. */
export function parseFlowName(text: string): FlowName {
  if (/^[0-9a-f]{64}$/i.test(text)) {
    return { id: base32(Buffer.from(text, 'hex').subarray(0, 16)).toLowerCase(), job: null };
  }
  const parsed = parseJobId(text);
  if (parsed !== undefined) return { id: parsed.flow, job: parsed.n };
  throw usage(
    `"${text}" is no flow`,
    'A flow id is 26 characters of a-z and 2-7, as `herobus deploy` prints it; a job is <flow>.<n>.',
  );
}

export type Located =
  | { found: 'flow'; ref: FlowRef; state: FlowState }
  | { found: 'refused'; context: string; refusals: StoredRefusal[] };

/**
 * Where a flow is: in the context that is named, else in the home's, else in any the caller may read. A true
 * flow counts before a refused message of the same name.
 */
export async function locateFlow(
  session: Session,
  id: string,
  given: string | undefined,
): Promise<Located> {
  const contexts = contextsToSearch(session, given);
  for (const context of contexts) {
    const ref = { context, flow: id };
    const state = await readFlow(session, ref);
    if (state !== undefined) return { found: 'flow', ref, state };
  }
  for (const context of contexts) {
    const refusals = await refusalsOf(session, context, id);
    if (refusals.length > 0) return { found: 'refused', context, refusals };
  }
  throw new HeroError('not_found', `there is no flow ${id} in ${contexts.join(', ')}`, {
    fix: 'See what there is with `herobus flows`; another context is named with -c.',
  });
}

function contextsToSearch(session: Session, given: string | undefined): string[] {
  const own = contextOf(given, session.home);
  const readable = session.contexts.map(({ context }) => context);
  if (given !== undefined) return [own];
  return [...readable.filter((name) => name === own), ...readable.filter((name) => name !== own)];
}
