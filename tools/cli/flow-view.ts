/**
 * Flows as the CLI sees them: the fold of a flow's log, live or as it stands, as the flow object of
 * INTERFACES 2; and what the ledger knows beside it (refused messages, why a flow has no node yet).
 */
import { setTimeout as delay } from 'node:timers/promises';
import type { Entry, Follower } from '../../bus/bus.ts';
import { base32 } from '../../bus/identity.ts';
import { type Change, emptyFlow, fold, type FlowState } from '../../actors/flow/fold.ts';
import { showFlow } from '../../actors/flow/show.ts';
import { HeroError, shownError } from '../../schemas/errors.ts';
import type { Flow, ShownRefusal } from '../../schemas/flow.ts';
import { type FlowRef, parseJobId } from '../../schemas/ids.ts';
import { exactJson } from '../../schemas/json.ts';
import {
  FLOWS_FOLLOWED_MAX,
  FlowsReply,
  type FlowSummary,
  RefusalsReply,
} from '../../schemas/ledger.ts';
import { usage } from './failure.ts';
import { contextOf, type Session } from './session.ts';
import { withValues } from './values.ts';

/** The most the ledger gives at once: for each page it looks at all the flows there are. */
const PAGE = 1000;

export const flowObject = (ref: FlowRef, state: FlowState): Flow =>
  showFlow(ref.context, ref.flow, state, exactJson);

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

/** Newest first. */
export async function* listFlows(session: Session, context: string): AsyncIterable<FlowSummary> {
  let after: string | null = null;
  do {
    const page: FlowsReply = FlowsReply.parse(
      await session.ask('flows', { context, after, limit: PAGE }),
    );
    yield* page.flows;
    after = page.next;
  } while (after !== null);
}

/**
 * The flow objects of listed flows, in their order: their logs are read a group at a time, so memory holds
 * one group. Values and status are as new as the list or newer.
 */
export async function* wholeFlows(
  session: Session,
  context: string,
  listed: AsyncIterable<FlowSummary>,
): AsyncIterable<Flow> {
  let group: FlowSummary[] = [];
  for await (const summary of listed) {
    group.push(summary);
    if (group.length < FLOWS_FOLLOWED_MAX) continue;
    yield* foldGroup(session, context, group);
    group = [];
  }
  if (group.length > 0) yield* foldGroup(session, context, group);
}

async function* foldGroup(
  session: Session,
  context: string,
  group: readonly FlowSummary[],
): AsyncIterable<Flow> {
  const states = new Map(group.map(({ flow }) => [flow, emptyFlow()]));
  for await (const entry of readGroup(session, context, group)) {
    const state = states.get(entry.flow);
    if (state !== undefined) fold(state, entry, session);
  }
  for (const { flow, unplaced } of group) {
    const object = flowObject({ context, flow }, states.get(flow) ?? emptyFlow());
    const waits = object.status === 'placing' && unplaced !== null;
    yield await withValues(
      session,
      waits ? { ...object, status: 'unplaced', unplaced } : object,
      'flow',
    );
  }
}

/** The ledger gives out so many followers a minute: who lists thousands of flows waits for the next. */
async function* readGroup(
  session: Session,
  context: string,
  group: readonly FlowSummary[],
): AsyncIterable<Entry> {
  const flows = group.map(({ flow }) => flow);
  const from = Math.min(...group.map(({ seq }) => seq));
  for (let read = 0; ; ) {
    try {
      for await (const entry of session.bus.log.readSeveral(context, flows, from)) {
        read += 1;
        yield entry;
      }
      return;
    } catch (error) {
      if (read > 0 || !(error instanceof HeroError) || error.code !== 'quota') throw error;
      await delay(QUOTA_WAIT_MS);
    }
  }
}
const QUOTA_WAIT_MS = 2000;

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
): Promise<ShownRefusal[]> {
  const reply = RefusalsReply.parse(await session.ask('refusals', { context, id }));
  return reply.refusals.map(({ at, error, ...rest }) => ({
    ...rest,
    error: shownError(error),
    at: new Date(at).toISOString(),
  }));
}

/** A message that never became a flow, in the shape of one. */
export function refusedFlow(context: string, id: string, refusals: ShownRefusal[]): Flow {
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
  | { found: 'refused'; context: string; refusals: ShownRefusal[] };

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
