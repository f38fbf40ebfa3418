/**
 * The fold: the log of one flow -> its state. The pure story of a deployment.
 *
 * Everything that is true of a flow is computed here, from the entries the stream stored, in their order,
 * and nowhere else. Who wrote an entry stands in its subject; whether he may stands here:
 *   F1 an entry that was folded before (by sequence) changes nothing;
 *   F2 deploy, assign and commands count only from a coord of the ledger;
 *   F3 plan, call, timer, end and voids count only from the assignee, within his term;
 *   F4 a claim counts only from the node its plan names, facts only from the claim's node and incarnation;
 *   F5 a job ends once: the first of {result, cancel, gone, end} in log order decides. A retry of a flow that
 *      ended failed takes its end back; the jobs that have another attempt by it may end once more;
 *   F6 what does not count is ignored and counted by its reason; so is what its writer has not signed, or a
 *      decision that was signed for another place in the log;
 *   F7 the first entry on a pack's claim lane spends its fence, whoever wrote it: one that does not count
 *      makes the pack void, since nobody can claim it any more.
 * The state is plain JSON. `fold` changes it in place and returns what changed, so that who waits for
 * something need not search for it.
 */
import {
  type ClaimEntry,
  ClaimEntry as ClaimSchema,
  DECISIONS,
  type DecisionKind,
  type EndStatus,
  type Gone,
  isDecisionKind,
  type NewJob,
  type Placement,
  RunEntry,
} from '../../schemas/flow.ts';
import type { CommandVerb } from '../../schemas/command.ts';
import type { BlobRef } from '../../schemas/blob.ts';
import { type ErrorRecord, failure } from '../../schemas/errors.ts';
import type { Address, PackId } from '../../schemas/ids.ts';
import type { JobStatus, Outcome, Result, Usage } from '../../schemas/job.ts';
import type { z } from 'zod';

/** One stored entry as the fold reads it; `bus.Entry` is one. */
export type LogEntry = {
  seq: number;
  at: number;
  writer: Address;
  body: unknown;
  /** What the writer's signature proves: the last decision it knew, null for none; null without a valid one. */
  proof: { fence: number | null } | null;
} & (
  | { lane: 'main'; kind: string }
  | { lane: 'claim'; pack: PackId }
  | { lane: 'run'; pack: PackId }
);

/** What the fold cannot read from the log itself: which addresses may act as coord. */
export type Authority = { isCoord(address: Address): boolean };

export type JobState = {
  n: number;
  spec: NewJob;
  status: JobStatus;
  attempt: number;
  pack: PackId | null;
  node: Address | null;
  unplaced: string | null;
  /** Attempts begun and lost while their supervisor lived on: the job itself may be the reason. */
  lost: number;
  /** Attempts begun and lost together with their supervisor: the job can hardly be the reason. */
  swept: number;
  failures: number;
  createdAt: number;
  begunAt: number | null;
  /** Not before this bus time may a failed job be tried again. */
  retryAt: number | null;
  endedSeq: number | null;
  endedAt: number | null;
  /** What kind of entry ended it: decides what a retry gives another attempt, and is told as a cause. */
  endedBy: EndedBy | null;
  value: string | null;
  /** Where the value is when it is too large for the log. */
  valueRef: BlobRef | null;
  error: ErrorRecord | null;
  /** What the last attempt with a result used, where its runner could tell. */
  usage: Usage | null;
};

/** A result; a command; the script's own cancel; a plan that gave it up; the end of its flow. */
export type EndedBy = 'result' | 'command' | 'script' | 'plan' | 'end';

export type PackState = {
  pack: PackId;
  class: string;
  node: Address;
  planSeq: number;
  /** Incarnation of the supervisor that planned it. */
  planInc: string;
  jobs: number[];
  state: 'queued' | 'claimed' | 'void';
  claim: { inc: string; runner: string; seq: number; at: number } | null;
};

export type RecordedAnswer =
  | {
      type: 'call';
      name: string;
      args: string;
      answer: string | null;
      error: ErrorRecord | null;
      revision: number | null;
    }
  | { type: 'timer'; dueMs: number };

export type CommandState = {
  seq: number;
  verb: CommandVerb;
  job: number | null;
  reason: string | null;
  by: string[];
  digest: string;
};

export type FlowState = {
  /** Sequence of the last entry folded, and of the last decision (counted or not: it is the fence). */
  seq: number;
  mainSeq: number;
  deploy: {
    seq: number;
    at: number;
    envelope: string;
    engine: string;
    ledgerRevision: number;
    submittedBy: string[];
  } | null;
  term: { seq: number; at: number; node: Address; reason: string; decided: boolean } | null;
  /** Assignments so far: 1 until the flow is moved. */
  terms: number;
  jobs: JobState[];
  packs: Record<PackId, PackState>;
  /** Packs planned so far: the next one's ordinal. */
  packCount: number;
  /** Packs whose claim was taken by an entry that does not count, before they were planned (F7). */
  spent: Record<PackId, true>;
  answers: RecordedAnswer[];
  commands: CommandState[];
  cancelled: { seq: number; at: number; reason: string | null; by: string[] } | null;
  paused: boolean;
  end: {
    seq: number;
    at: number;
    status: EndStatus;
    value: unknown;
    valueRef: BlobRef | null;
    error: ErrorRecord | null;
  } | null;
  ignored: Record<string, number>;
};

export type Change =
  | { type: 'deployed' | 'assigned' | 'answered' | 'commanded' | 'ended' | 'planned' }
  /** A retry took the end back: the script is to be run anew. Each job with another attempt is told too. */
  | { type: 'reopened' }
  /** Anything of job n but its end; its end is told once, as `jobEnded`. */
  | { type: 'job' | 'jobEnded'; n: number }
  | { type: 'packClaimed' | 'packVoid'; pack: PackId };

export function emptyFlow(): FlowState {
  return {
    seq: 0,
    mainSeq: 0,
    deploy: null,
    term: null,
    terms: 0,
    jobs: [],
    packs: {},
    packCount: 0,
    spent: {},
    answers: [],
    commands: [],
    cancelled: null,
    paused: false,
    end: null,
    ignored: {},
  };
}

type Decisions = { [K in DecisionKind]: z.infer<(typeof DECISIONS)[K]> };
type Folding = { state: FlowState; entry: LogEntry; changes: Change[]; authority: Authority };

/** Folds one entry into the state; returns what changed, empty when the entry does not count. */
export function fold(state: FlowState, entry: LogEntry, authority: Authority): Change[] {
  if (entry.seq <= state.seq) return [];
  const unproven = refuseProof(entry, state.mainSeq);
  state.seq = entry.seq;
  if (entry.lane === 'main') state.mainSeq = entry.seq;
  const folding: Folding = { state, entry, changes: [], authority };
  const refused =
    entry.lane === 'main'
      ? (unproven ?? foldDecision(folding, entry.kind))
      : entry.lane === 'claim'
        ? foldClaim(folding, entry.pack, unproven)
        : (unproven ?? foldRun(folding, entry.pack));
  if (refused !== undefined) state.ignored[refused] = (state.ignored[refused] ?? 0) + 1;
  return folding.changes;
}

/** Why an entry does not count whatever it says; `mainSeq` is the last decision before it. */
export function refuseProof({ lane, proof }: LogEntry, mainSeq: number): string | undefined {
  if (proof === null) return 'unsigned';
  return lane === 'main' && proof.fence !== mainSeq ? 'misplaced' : undefined;
}

/** A running job of an ended flow or job does nothing more to the state. */
export const isJobEnded = (job: JobState): boolean => job.endedSeq !== null;

const COORD_KINDS: ReadonlySet<string> = new Set([
  'deploy',
  'assign',
  'cancel',
  'retry',
  'pause',
  'resume',
] satisfies DecisionKind[]);

/** Why a decision does not count by its writer and the state of the flow, or undefined when it does. */
function refuseDecision(
  state: {
    deploy: unknown;
    term: { seq: number; node: Address } | null;
    end: { status: EndStatus } | null;
  },
  kind: DecisionKind,
  writer: Address,
  term: unknown,
  authority: Authority,
): string | undefined {
  if (COORD_KINDS.has(kind)) {
    if (!authority.isCoord(writer)) return 'not_a_coord';
  } else {
    if (state.term === null || writer !== state.term.node) return 'not_the_assignee';
    if (term !== state.term.seq) return 'stale_term';
  }
  if (kind === 'deploy') return state.deploy === null ? undefined : 'repeated_deploy';
  if (state.deploy === null) return 'before_deploy';
  if (kind === 'retry') return state.end?.status === 'failed' ? undefined : 'not_failed';
  if (state.end !== null) return 'after_end';
  return undefined;
}

/** The same judgement for who folds decisions only. */
export const authorisedDecision = (...question: Parameters<typeof refuseDecision>): boolean =>
  refuseDecision(...question) === undefined;

function foldDecision(folding: Folding, kind: string): string | undefined {
  const { state, entry, authority } = folding;
  if (!isDecisionKind(kind)) return 'unknown_kind';
  const parsed = DECISIONS[kind].safeParse(entry.body);
  if (!parsed.success) return 'unreadable';
  const body = parsed.data;
  const term = 'term' in body ? body.term : undefined;
  const refused = refuseDecision(state, kind, entry.writer, term, authority);
  if (refused !== undefined) return refused;
  if (term !== undefined && state.term !== null) state.term.decided = true;
  return DECISION_FOLDS[kind](folding, body as never);
}

const DECISION_FOLDS: {
  [K in DecisionKind]: (folding: Folding, body: Decisions[K]) => string | undefined;
} = {
  deploy: ({ state, entry, changes }, body) => {
    state.deploy = {
      seq: entry.seq,
      at: entry.at,
      envelope: body.envelope,
      engine: body.engine,
      ledgerRevision: body.ledger_revision,
      submittedBy: body.submitted_by,
    };
    changes.push({ type: 'deployed' });
    return undefined;
  },
  assign: ({ state, entry, changes }, body) => {
    if (state.cancelled !== null && state.term === null) return 'after_end';
    const { seq, at } = entry;
    state.term = { seq, at, node: body.node, reason: body.reason, decided: false };
    state.terms += 1;
    changes.push({ type: 'assigned' });
    return undefined;
  },
  plan: foldPlan,
  call: ({ state, changes, ...folding }, body) => {
    if (body.k !== state.answers.length) return 'out_of_order';
    const { name, args, answer, error, revision } = body;
    state.answers.push({ type: 'call', name, args, answer, error, revision });
    changes.push({ type: 'answered' });
    if (name === 'cancel' && error === null) {
      const job = state.jobs[Number(args)];
      if (job) {
        const error = cancelError('its script');
        endJob({ state, changes, ...folding }, job, 'script', 'cancelled', error);
      }
    }
    return undefined;
  },
  timer: ({ state, changes }, body) => {
    if (body.k !== state.answers.length) return 'out_of_order';
    state.answers.push({ type: 'timer', dueMs: body.due_ms });
    changes.push({ type: 'answered' });
    return undefined;
  },
  end: (folding, body) => {
    const { state, entry, changes } = folding;
    const { status, value, value_ref: valueRef = null, error } = body;
    state.end = { seq: entry.seq, at: entry.at, status, value, valueRef, error };
    for (const job of state.jobs)
      endJob(folding, job, 'end', 'cancelled', cancelError('the end of its flow'));
    changes.push({ type: 'ended' });
    return undefined;
  },
  cancel: foldCommand,
  retry: foldRetry,
  pause: foldCommand,
  resume: foldCommand,
};

const cancelError = (who: string, reason: string | null = null): ErrorRecord =>
  failure('cancelled', reason === null ? `cancelled by ${who}` : `cancelled by ${who}: ${reason}`);

function foldCommand(folding: Folding, body: Decisions['cancel']): string | undefined {
  const { state, entry, changes } = folding;
  const { verb, job, reason, by, digest } = body;
  if (entry.lane !== 'main' || entry.kind !== verb) return 'unreadable';
  if (digest !== '' && state.commands.some((known) => known.digest === digest))
    return 'repeated_command';
  state.commands.push({ seq: entry.seq, verb, job, reason, by, digest });
  changes.push({ type: 'commanded' });
  if (verb === 'pause') state.paused = true;
  if (verb === 'resume') state.paused = false;
  if (verb !== 'cancel') return undefined;
  const error = cancelError(by[0] ?? 'a command', reason);
  if (job !== null) {
    const target = state.jobs[job];
    if (target) endJob(folding, target, 'command', 'cancelled', error);
    return undefined;
  }
  state.cancelled ??= { seq: entry.seq, at: entry.at, reason, by };
  for (const each of state.jobs) endJob(folding, each, 'command', 'cancelled', error);
  // Nobody was ever assigned, so nobody else can end it: the command itself is the end.
  if (state.term === null) {
    state.end = {
      seq: entry.seq,
      at: entry.at,
      status: 'cancelled',
      value: null,
      valueRef: null,
      error,
    };
    changes.push({ type: 'ended' });
  }
  return undefined;
}

/**
 * Opens a flow that failed again: all its failed jobs, or the one that is named, have another attempt. What
 * only the end or those failures took along (jobs the end cancelled, jobs that were to run after them) has
 * one as well. What somebody cancelled stays cancelled unless it is named.
 */
function foldRetry(folding: Folding, body: Decisions['retry']): string | undefined {
  const { state, changes } = folding;
  const refused = foldCommand(folding, body);
  if (refused !== undefined) return refused;
  state.end = null;
  state.paused = false;
  changes.push({ type: 'reopened' });
  const again = new Set<number>();
  for (const job of state.jobs) {
    if (!isJobEnded(job) || job.status === 'completed') continue;
    // What its own script cancelled has no use any more, whoever names it.
    const named =
      body.job === null ? job.endedBy === 'result' : body.job === job.n && job.endedBy !== 'script';
    const lost = body.job === null && job.endedBy === 'plan' && job.status !== 'cancelled';
    const blocked = job.endedBy === 'plan' && job.spec.after.some((n) => again.has(n));
    if (named || lost || blocked || job.endedBy === 'end') again.add(job.n);
  }
  for (const n of again) {
    const job = state.jobs[n];
    if (job === undefined) continue;
    state.jobs[n] = { ...newJob(job.spec, job.createdAt), attempt: job.attempt + 1 };
    changes.push({ type: 'job', n });
  }
  return undefined;
}

function foldPlan(folding: Folding, body: Decisions['plan']): undefined {
  const { state, entry, changes } = folding;
  changes.push({ type: 'planned' });
  for (const job of body.jobs) {
    if (job.n !== state.jobs.length) continue;
    state.jobs.push(newJob(job, entry.at));
    changes.push({ type: 'job', n: job.n });
  }
  for (const { pack, class: kind, node } of body.packs) {
    state.packCount += 1;
    const spent = state.spent[pack] === true;
    if (spent) delete state.spent[pack];
    state.packs[pack] ??= {
      pack,
      class: kind,
      node,
      planSeq: entry.seq,
      planInc: body.inc,
      jobs: [],
      state: spent ? 'void' : 'queued',
      claim: null,
    };
  }
  for (const { pack, jobs } of body.packs) {
    for (const n of jobs) {
      place(folding, { n, attempt: 1, pack, unplaced: null, because: null }, body.inc);
    }
  }
  for (const placement of body.placed) place(folding, placement, body.inc);
  for (const gone of body.gone) giveUp(folding, gone);
}

function newJob(spec: NewJob, createdAt: number): JobState {
  return {
    n: spec.n,
    spec,
    status: spec.after.length > 0 || spec.delay_ms !== undefined ? 'waiting' : 'unplaced',
    attempt: 1,
    pack: null,
    node: null,
    unplaced: null,
    lost: 0,
    swept: 0,
    failures: 0,
    createdAt,
    begunAt: null,
    retryAt: null,
    endedSeq: null,
    endedAt: null,
    endedBy: null,
    value: null,
    valueRef: null,
    error: null,
    usage: null,
  };
}

/**
 * Gives an attempt to a pack. A begun attempt is never given again: a further one takes its place. An
 * attempt nobody began may move to another pack, since only the pack it is in can begin it.
 */
function place({ state, entry, changes }: Folding, placement: Placement, inc: string): void {
  const job = state.jobs[placement.n];
  if (job === undefined || isJobEnded(job)) return;
  const again =
    placement.attempt === job.attempt + 1 && (job.begunAt !== null || job.retryAt !== null);
  const moved = placement.attempt === job.attempt && job.begunAt === null && job.retryAt === null;
  if (!again && !moved) return;
  const pack = placement.pack === null ? undefined : state.packs[placement.pack];
  if (placement.pack !== null && pack?.planSeq !== entry.seq) return;
  if (again && placement.because === 'lost') countLoss(state, job, inc);
  job.attempt = placement.attempt;
  job.begunAt = null;
  job.retryAt = null;
  job.pack = placement.pack;
  job.node = pack?.node ?? null;
  job.unplaced = placement.unplaced;
  job.status = pack === undefined ? 'unplaced' : 'pending';
  pack?.jobs.push(job.n);
  changes.push({ type: 'job', n: job.n });
}

function countLoss(state: FlowState, job: JobState, inc: string): void {
  const before = job.pack === null ? undefined : state.packs[job.pack];
  if (before?.planInc === inc) job.lost += 1;
  else job.swept += 1;
}

function giveUp(folding: Folding, { n, attempt, outcome, error }: Gone): void {
  const job = folding.state.jobs[n];
  if (job === undefined || job.attempt !== attempt) return;
  endJob(folding, job, 'plan', outcome, error);
}

function endJob(
  folding: Folding,
  job: JobState,
  by: EndedBy,
  outcome: Outcome,
  error: ErrorRecord | null,
): void {
  if (isJobEnded(job)) return;
  job.status = outcome;
  job.error = error;
  job.retryAt = null;
  job.endedSeq = folding.entry.seq;
  job.endedAt = folding.entry.at;
  job.endedBy = by;
  folding.changes.push({ type: 'jobEnded', n: job.n });
}

function foldClaim(folding: Folding, id: PackId, unproven: string | undefined): string | undefined {
  const { state, entry, changes } = folding;
  const pack = state.packs[id];
  if (pack === undefined) {
    if (Object.keys(state.spent).length < SPENT_MAX) state.spent[id] = true;
    return 'unknown_pack';
  }
  if (pack.state !== 'queued') return 'repeated_claim';
  const parsed = ClaimSchema.safeParse(entry.body);
  const refused = parsed.success
    ? (unproven ?? refuseClaim(state, entry, pack, parsed.data))
    : 'unreadable';
  if (!parsed.success || refused !== undefined || parsed.data.type === 'void') {
    pack.state = 'void';
    changes.push({ type: 'packVoid', pack: id });
    return refused;
  }
  const body = parsed.data;
  pack.state = 'claimed';
  pack.claim = { inc: body.inc, runner: body.runner, seq: entry.seq, at: entry.at };
  changes.push({ type: 'packClaimed', pack: id });
  for (const { n, attempt } of body.begun) begin(folding, pack, n, attempt);
  return undefined;
}

/** More packs spent beforehand than any honest mistake makes. */
const SPENT_MAX = 10_000;

function refuseClaim(
  { term }: FlowState,
  { writer }: LogEntry,
  { node }: PackState,
  body: ClaimEntry,
): string | undefined {
  if (body.type === 'claim') return writer === node ? undefined : 'not_the_planned_node';
  if (term === null || writer !== term.node) return 'not_the_assignee';
  return body.term === term.seq ? undefined : 'stale_term';
}

function foldRun(folding: Folding, id: PackId): string | undefined {
  const { state, entry } = folding;
  const parsed = RunEntry.safeParse(entry.body);
  if (!parsed.success) return 'unreadable';
  const pack = state.packs[id];
  if (pack === undefined) return 'unknown_pack';
  if (pack.claim === null || entry.writer !== pack.node || parsed.data.inc !== pack.claim.inc) {
    return 'not_the_claimer';
  }
  for (const { n, attempt } of parsed.data.begun) begin(folding, pack, n, attempt);
  for (const result of parsed.data.results) finish(folding, pack, result);
  return undefined;
}

function begin(
  { entry, changes, state }: Folding,
  pack: PackState,
  n: number,
  attempt: number,
): void {
  const job = state.jobs[n];
  if (job === undefined || isJobEnded(job)) return;
  if (job.pack !== pack.pack || job.attempt !== attempt || job.begunAt !== null) return;
  job.begunAt = entry.at;
  job.status = 'running';
  changes.push({ type: 'job', n });
}

function finish(folding: Folding, pack: PackState, result: Result): void {
  const { state, entry, changes } = folding;
  const job = state.jobs[result.n];
  if (job === undefined || isJobEnded(job)) return;
  if (job.pack !== pack.pack || job.attempt !== result.attempt || job.begunAt === null) return;
  if (job.retryAt !== null) return;
  job.value = result.value;
  job.valueRef = result.value_ref ?? null;
  job.usage = result.usage ?? null;
  if (result.outcome === 'completed') return endJob(folding, job, 'result', 'completed', null);
  job.error = result.error;
  job.failures += 1;
  if (result.outcome === 'cancelled' || job.failures > job.spec.retries) {
    return endJob(folding, job, 'result', result.outcome, result.error);
  }
  job.retryAt = entry.at + retryBackoffMs(job.spec.backoff_ms, job.failures);
  job.status = 'pending';
  changes.push({ type: 'job', n: job.n });
  return undefined;
}

/** Capped exponential back-off between known failures; no jitter, since every fold must agree on it. */
export function retryBackoffMs(firstMs: number, failures: number): number {
  return Math.min(5 * 60_000, firstMs * 2 ** Math.min(failures - 1, 20));
}
