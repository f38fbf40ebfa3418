/**
 * What must be true however a simulation went, judged from what the server stored and what really happened.
 * Nothing of the product's judgement is believed where it can be made again: terms are followed here, values
 * computed from the pieces of the script, runs counted where they ran.
 */
import { track, emptyTrack } from '../../actors/coord/track.ts';
import { type Authority, emptyFlow, fold, type FlowState } from '../../actors/flow/fold.ts';
import { toEntry } from '../../bus/follow.ts';
import type { Entry } from '../../bus/bus.ts';
import type { SimulatedServer } from '../../bus/simulated/server.ts';
import type { StoredAt } from '../../bus/simulated/stream.ts';
import { type ErrorRecord, rootCause } from '../../schemas/errors.ts';
import { isDecisionKind } from '../../schemas/flow.ts';
import type { SimulatedScript } from './flows.ts';
import type { Executed, Reality } from './reality.ts';

export type Violation = { invariant: string; detail: string };

/** A deployment as its user knows it. */
export type Submitted = {
  flow: string;
  script: SimulatedScript;
  /** The user has the receipt. */
  accepted: boolean;
  /** It is one that has to be refused. */
  invalid: boolean;
  /** Commands whose receipt the user has, by verb. */
  commands: string[];
};

export type Judging = {
  server: SimulatedServer;
  reality: Reality;
  coords: readonly string[];
  context: string;
};

/** An attempt lost so often is given up (DESIGN 5.6). */
const LOST_MAX = 5;

export function entriesOf(server: SimulatedServer, context: string, flow: string): Entry[] {
  const stored = server.stream('HB_FLOW')?.from(1, [`hb.flow.${context}.${flow}.>`]) ?? [];
  return [...stored].flatMap((message) => toEntry(asStored(message)) ?? []);
}

const asStored = ({ subject, seq, at, data, headers }: StoredAt) => ({
  subject,
  seq,
  at,
  data,
  header: (name: string) => headers.get(name),
});

export function foldAll(entries: readonly Entry[], authority: Authority): FlowState {
  const state = emptyFlow();
  for (const entry of entries) fold(state, entry, authority);
  return state;
}

export function judgeFlow(judging: Judging, submitted: Submitted): Violation[] {
  const { server, coords, context, reality } = judging;
  const { flow, accepted, invalid } = submitted;
  const authority: Authority = { isCoord: (address) => coords.includes(address) };
  const entries = entriesOf(server, context, flow);
  const state = foldAll(entries, authority);
  const found: Violation[] = [];
  const say = (invariant: string, detail: string) =>
    found.push({ invariant, detail: `${flow}: ${detail}` });
  if (invalid) {
    if (entries.length > 0) say('refused_has_no_flow', 'an invalid deployment became a flow');
    if (accepted && !isRefused(judging, flow)) say('nothing_lost', 'refused without a refusal');
    return found;
  }
  if (!accepted && entries.length === 0) return found;
  if (state.end === null) {
    say('every_flow_ends', `it has ${entries.length} entries and no end; ${where(state)}`);
    return found;
  }
  judgeFolds(entries, state, authority, say);
  judgeTerms(entries, authority, say);
  judgeJobs(reality, state, flow, say);
  judgeEnd(submitted, state, reality, say);
  return found;
}

type Say = (invariant: string, detail: string) => void;

const where = ({ term, jobs, packs, paused }: FlowState): string => {
  const open = jobs.filter(({ endedSeq }) => endedSeq === null);
  const told = open.slice(0, 4).map(({ n, status, attempt, pack }) => {
    const at = pack === null ? undefined : packs[pack];
    return `job ${n} ${status} attempt ${attempt} pack ${pack ?? 'none'} ${at?.state ?? ''}`;
  });
  return `term ${term?.seq ?? 0}, ${paused ? 'paused, ' : ''}${open.length} jobs open: ${told.join(', ')}`;
};

function isRefused({ server, context }: Judging, flow: string): boolean {
  const refusals = server.stream('HB_REFUSED')?.from(1, [`hb.refused.${context}.*`]) ?? [];
  return [...refusals].some(({ data }) => Buffer.from(data).includes(flow));
}

/** However it is read, in pieces, twice over, or written down in between: one log, one state. */
function judgeFolds(
  entries: readonly Entry[],
  state: FlowState,
  authority: Authority,
  say: Say,
): void {
  let other = emptyFlow();
  let coord = emptyTrack();
  for (const [index, entry] of entries.entries()) {
    fold(other, entry, authority);
    const before = entries[Math.max(0, index - (index % 5))];
    if (before !== undefined) fold(other, before, authority);
    if (index % 7 === 3) other = JSON.parse(JSON.stringify(other)) as FlowState;
    coord = track(coord, entry, authority);
  }
  if (JSON.stringify(other) !== JSON.stringify(state)) say('folds_agree', 'two folds differ');
  if (coord.end?.status !== state.end?.status || coord.mainSeq !== state.mainSeq) {
    say('folds_agree', `the coord's track has ${coord.end?.status}, the fold ${state.end?.status}`);
  }
}

/** Terms as the assigns alone make them: nothing of another term may stand behind one. */
function judgeTerms(entries: readonly Entry[], authority: Authority, say: Say): void {
  let term: { seq: number; node: string } | undefined;
  for (const entry of entries) {
    if (entry.lane !== 'main') continue;
    const body = entry.body as { node?: string; term?: number };
    if (entry.kind === 'assign' && authority.isCoord(entry.writer)) {
      term = { seq: entry.seq, node: body.node ?? '' };
    } else if (isDecisionKind(entry.kind) && body.term !== undefined) {
      const stale = body.term !== term?.seq || entry.writer !== term.node;
      if (stale) say('no_stale_term', `#${entry.seq} ${entry.kind} of term ${body.term}`);
    }
  }
}

function judgeJobs(reality: Reality, state: FlowState, flow: string, say: Say): void {
  for (const { n, attempt, status, endedBy, value } of state.jobs) {
    if (status !== 'completed' || endedBy !== 'result') continue;
    const ran = reality.of(flow, n).find((each) => each.attempt === attempt);
    if (ran?.end !== 'done') say('fold_and_reality', `job ${n} is completed, and never was`);
    else if (ran.value !== value) say('fold_and_reality', `job ${n} has a value nobody gave`);
  }
}

function judgeEnd(submitted: Submitted, state: FlowState, reality: Reality, say: Say): void {
  const { end } = state;
  if (end === null) return;
  const { commands, script, flow } = submitted;
  const wasRetried = commands.includes('retry');
  const wasCancelled = commands.includes('cancel');
  const root = end.error === null ? null : rootCause(end.error);
  if (root?.code === 'replay_mismatch') {
    if (!wasRetried) say('no_replay_mismatch', root.message);
    return;
  }
  const cancelFirst = state.cancelled !== null && state.cancelled.seq < end.seq;
  if (cancelFirst && end.status !== 'cancelled') {
    say('cancel_before_end', `cancelled by #${state.cancelled?.seq}, ended ${end.status}`);
  }
  if (end.status === 'cancelled') {
    if (!wasCancelled) say('expected_end', 'cancelled by nobody');
    return;
  }
  const expected = script.valueOf(state);
  if (end.status === 'completed') {
    if (expected !== Number(end.value)) {
      say('expected_end', `its value is ${String(end.value)}, it should be ${String(expected)}`);
    }
  } else if (expected !== undefined && !wasRetried) {
    say('expected_end', `${end.status}: ${root?.code} ${root?.message}; should be ${expected}`);
  }
  for (const job of state.jobs) {
    const why = unexplained(job.error, job.status, {
      runs: reality.of(flow, job.n),
      faulty: script.faulty.has(job.n),
      // The end of a flow, and a command, end what runs.
      cancelled: job.endedBy !== 'result',
    });
    if (why !== undefined) say('expected_end', `job ${job.n}: ${why}`);
  }
}

function unexplained(
  error: ErrorRecord | null,
  status: string,
  known: { runs: readonly Executed[]; faulty: boolean; cancelled: boolean },
): string | undefined {
  if (status === 'completed' || known.faulty) return undefined;
  const code = error === null ? status : rootCause(error).code;
  if (code === 'cancelled' && known.cancelled) return undefined;
  if (code === 'outcome_unknown') return undefined;
  // What follows from a job that failed (after, retries used up by design) tells that job's cause.
  if (code === 'job_failed' && known.runs.some(({ end }) => end === 'failed')) return undefined;
  return `${status} by ${code}: ${error?.message ?? ''} after ${known.runs.length} runs`;
}

/** Over all flows: what ran, ran as often as it may. */
export function judgeRuns({ executed }: Reality): Violation[] {
  const found: Violation[] = [];
  const seen = new Map<string, Executed[]>();
  for (const run of executed) {
    const key = `${run.flow}.${run.n}`;
    const before = seen.get(key) ?? [];
    seen.set(key, [...before, run]);
    const say = (invariant: string, what: string) =>
      found.push({ invariant, detail: `${key} attempt ${run.attempt}: ${what}` });
    if (before.some(({ attempt }) => attempt === run.attempt)) {
      say('no_attempt_twice', 'begun a second time');
    }
    if (run.beside.some(({ other: { endedMs }, untilMs }) => (endedMs ?? Infinity) > untilMs)) {
      say('one_attempt_at_a_time', 'begun while another one ran');
    }
    if (before.filter(({ end }) => end === 'killed').length > LOST_MAX + 50) {
      say('attempts_bounded', 'lost too often');
    }
  }
  return found;
}

/** A job that is not idempotent runs again only after an attempt whose outcome the log knows. */
export function judgeUnknown(judging: Judging, submitted: readonly Submitted[]): Violation[] {
  const found: Violation[] = [];
  const { server, reality, context, coords } = judging;
  for (const { flow, commands } of submitted) {
    const runs = reality.executed.filter((run) => run.flow === flow && !run.idempotent);
    const again = runs.filter(({ attempt }) => attempt > 1);
    // Who retries a flow by a command takes it upon himself.
    if (again.length === 0 || commands.includes('retry')) continue;
    const known = knownOutcomes(entriesOf(server, context, flow), {
      isCoord: (address) => coords.includes(address),
    });
    for (const run of again) {
      const earlier = runs.filter(({ n, attempt }) => n === run.n && attempt < run.attempt);
      const unknown = earlier.find(({ n, attempt }) => !known.has(`${n}.${attempt}`));
      if (unknown === undefined) continue;
      const detail = `${flow}.${run.n} ran again as ${run.attempt}, nobody knows of ${unknown.attempt}`;
      found.push({ invariant: 'unknown_not_repeated', detail });
    }
  }
  return found;
}

/** `<n>.<attempt>` of every result in the log that counted when it came. */
function knownOutcomes(entries: readonly Entry[], authority: Authority): Set<string> {
  const state = emptyFlow();
  const known = new Set<string>();
  for (const entry of entries) {
    const failures = state.jobs.map((job) => job.failures);
    const changes = fold(state, entry, authority);
    if (entry.lane !== 'run') continue;
    for (const change of changes) {
      if (change.type !== 'job' && change.type !== 'jobEnded') continue;
      const job = state.jobs[change.n];
      const ended = change.type === 'jobEnded' || job?.failures !== failures[change.n];
      if (job !== undefined && ended) known.add(`${job.n}.${job.attempt}`);
    }
  }
  return known;
}
