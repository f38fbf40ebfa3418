/**
 * plan: (fold, derived jobs, roster) -> the next plan decision, or nothing to plan. Pure.
 *
 * All placing, packing, retrying and giving up of jobs is decided here, from the log and the roster, so
 * that a supervisor that takes over plans exactly as the one before would have.
 */
import type { z } from 'zod';
import { failure } from '../../schemas/errors.ts';
import type { Gone, NewJob, Placement, PlannedPack, PlanReason } from '../../schemas/flow.ts';
import { jobId } from '../../schemas/ids.ts';
import { type JobSpec, LOST_ATTEMPTS_MAX, SWEPT_ATTEMPTS_MAX } from '../../schemas/job.ts';
import type { RosterNode } from '../../schemas/node.ts';
import type { DerivedJob } from './derive.ts';
import type { FlowState, JobState, PackState } from './fold.ts';
import { explain, type Load, type Need, place, runnersThatFit, widestRunner } from './place.ts';
import type { Worklist } from './worklist.ts';

/** Jobs of one pack at most, however many a runner can begin at once: a message, a claim and its facts. */
export const PACK_JOBS_MAX = 100;
/** New jobs of one plan decision at most. */
export const PLAN_ITEMS_MAX = 600;
/** Bytes of one plan decision at most, roughly: an entry of the log holds 256 KiB. */
const PLAN_BYTES_MAX = 160 * 1024;
/** Bytes of payload in one pack at most: its message has to pass the bus. */
const PACK_BYTES_MAX = 512 * 1024;
const REASON_LENGTH_MAX = 200;

export type PlanInput = {
  flow: string;
  context: string;
  state: FlowState;
  work: Worklist;
  /** Jobs by number; what has ended need not be there. */
  derived: readonly (DerivedJob | undefined)[];
  roster: readonly RosterNode[];
  load: Load;
  nowMs: number;
  /** Is the claimer of this pack gone for good (its node dead, or its incarnation replaced)? */
  isLost(pack: PackState): boolean;
};

export type Plan = {
  /** What is as the schema has it by default is left out: many jobs differ in nothing else. */
  jobs: z.input<typeof NewJob>[];
  placed: Placement[];
  packs: PlannedPack[];
  gone: Gone[];
};

/** A plan in the making: what it holds so far in bytes, so that it ends before an entry is full. */
type Draft = Plan & { bytes: number };

const isFull = ({ bytes }: Draft): boolean => bytes > PLAN_BYTES_MAX;

function add<T>(draft: Draft, list: T[], item: T): void {
  list.push(item);
  draft.bytes += JSON.stringify(item).length;
}

type Candidate = {
  n: number;
  attempt: number;
  spec: JobSpec;
  because: PlanReason | null;
  alone: boolean;
};

/** The next plan, or undefined when nothing is to be planned now. */
export function nextPlan(input: PlanInput): Plan | undefined {
  const plan: Draft = { jobs: [], placed: [], packs: [], gone: [], bytes: 0 };
  const candidates: Candidate[] = [];
  admitNewJobs(input, plan, candidates);
  reviewLoose(input, plan, candidates);
  reviewPacks(input, plan, candidates);
  pack(input, plan, candidates);
  const empty = plan.jobs.length + plan.placed.length + plan.packs.length + plan.gone.length === 0;
  if (empty) return undefined;
  const { jobs, placed, packs, gone } = plan;
  return { jobs, placed, packs, gone };
}

/** When the next retry or delayed job falls due, epoch ms of bus time; undefined when none waits. */
export function nextDueMs(state: FlowState, work: Worklist, nowMs: number): number | undefined {
  let next = Number.POSITIVE_INFINITY;
  for (const n of work.loose) {
    const job = state.jobs[n];
    if (job === undefined) continue;
    if (job.retryAt !== null) next = Math.min(next, job.retryAt);
    // One that was due and found no node waits for a node, not for its moment.
    else if (delayedUntilMs(job) > nowMs) next = Math.min(next, delayedUntilMs(job));
  }
  return next === Number.POSITIVE_INFINITY ? undefined : next;
}

/** A delay counts from the plan that holds the job, by the stream's clock: the same for whoever takes over. */
const delayedUntilMs = ({ createdAt, spec }: JobState): number => createdAt + (spec.delay_ms ?? 0);

function admitNewJobs({ state, derived }: PlanInput, plan: Draft, candidates: Candidate[]): void {
  const from = state.jobs.length;
  for (const job of derived.slice(from, from + PLAN_ITEMS_MAX)) {
    // The other half is for where they go.
    if (plan.bytes > PLAN_BYTES_MAX / 2 || job === undefined) return;
    const { kind, name, retries, backoff_ms, idempotent, after, delay_ms } = job.spec;
    const { n, digest, line } = job;
    add(plan, plan.jobs, {
      n,
      kind,
      name,
      digest,
      line,
      ...(retries === 0 ? {} : { retries, backoff_ms }),
      ...(idempotent ? { idempotent } : {}),
      ...(after.length === 0 ? {} : { after }),
      ...(delay_ms === undefined ? {} : { delay_ms }),
    });
    if (after.length === 0 && delay_ms === undefined)
      candidates.push({ n, attempt: 1, spec: job.spec, because: null, alone: false });
  }
}

function reviewLoose(input: PlanInput, plan: Draft, candidates: Candidate[]): void {
  const { state, work, derived, nowMs } = input;
  for (const n of work.loose) {
    if (isFull(plan)) return;
    const job = state.jobs[n];
    const spec = derived[n]?.spec;
    if (job === undefined || spec === undefined) continue;
    const alone = job.lost > 0;
    if (job.retryAt !== null) {
      if (job.retryAt > nowMs) continue;
      candidates.push({ n, attempt: job.attempt + 1, spec, because: 'retry', alone });
    } else if (job.begunAt === null) {
      if (delayedUntilMs(job) > nowMs) continue;
      const blocked = blockedBy(input, job);
      if (blocked === 'waits') continue;
      if (blocked !== undefined) add(plan, plan.gone, blocked);
      else candidates.push({ n, attempt: job.attempt, spec, because: reasonOf(job), alone });
    }
  }
}

const reasonOf = (job: JobState): PlanReason | null =>
  job.pack !== null ? 'void' : job.status === 'waiting' ? 'ready' : null;

/** Whether what the job waits for is still open, or has failed so that the job can never run. */
function blockedBy({ state, flow }: PlanInput, job: JobState): 'waits' | Gone | undefined {
  for (const other of job.spec.after) {
    const before = state.jobs[other];
    if (before === undefined || before.endedSeq === null) return 'waits';
    if (before.status !== 'completed') {
      const message = `${jobId(flow, other)} (${before.spec.name}), which it was to run after, ended ${before.status}`;
      const error = failure('cancelled', message, { actor: 'supervisor' }, before.error);
      return { n: job.n, attempt: job.attempt, outcome: 'cancelled', error };
    }
  }
  return undefined;
}

/** Packs whose claimer is gone: what was not begun moves on, what was begun is lost. */
function reviewPacks(input: PlanInput, plan: Draft, candidates: Candidate[]): void {
  const { state, work, derived } = input;
  for (const claimed of work.claimedPacks(state)) {
    if (!input.isLost(claimed)) continue;
    for (const n of claimed.jobs) {
      if (isFull(plan)) return;
      const job = state.jobs[n];
      const spec = derived[n]?.spec;
      if (job === undefined || spec === undefined) continue;
      if (job.pack !== claimed.pack || job.endedSeq !== null || job.retryAt !== null) continue;
      if (job.begunAt === null) {
        candidates.push({ n, attempt: job.attempt, spec, because: 'void', alone: job.lost > 0 });
      } else if (spec.idempotent && mayLoseAgain(job)) {
        candidates.push({ n, attempt: job.attempt + 1, spec, because: 'lost', alone: true });
      } else {
        add(plan, plan.gone, outcomeUnknown(job, claimed, spec.idempotent));
      }
    }
  }
}

const mayLoseAgain = (job: JobState): boolean =>
  job.lost < LOST_ATTEMPTS_MAX && job.swept < SWEPT_ATTEMPTS_MAX;

function outcomeUnknown(job: JobState, claimed: PackState, idempotent: boolean): Gone {
  const why = idempotent
    ? `its runner died with it ${job.lost + job.swept + 1} times`
    : 'it is not marked idempotent, so it is not run again';
  const message = `attempt ${job.attempt} was begun by ${claimed.claim?.runner ?? 'a runner'}, which was lost before it reported; ${why}`;
  const error = failure('outcome_unknown', message, { actor: 'supervisor', node: claimed.node });
  return { n: job.n, attempt: job.attempt, outcome: 'failed', error };
}

/**
 * Gives candidates to packs: alike needs go together, spread over the nodes that fit by their slots.
 *
 * A pack is what one runner begins at once, so that no job of a claimed pack waits while another runner
 * idles, and a flow of many long jobs keeps no runner from others for longer than one of them takes.
 */
function pack(input: PlanInput, plan: Draft, candidates: Candidate[]): void {
  const groups = new Map<string, Candidate[]>();
  for (const candidate of candidates) {
    const { kind, on, needs } = candidate.spec;
    const key = candidate.alone ? `alone ${candidate.n}` : JSON.stringify([kind, on, needs]);
    const group = groups.get(key);
    if (group === undefined) groups.set(key, [candidate]);
    else group.push(candidate);
  }
  const given = new Map<string, number>();
  for (const group of groups.values()) packGroup(input, plan, group, given);
}

function packGroup(
  input: PlanInput,
  plan: Draft,
  group: Candidate[],
  given: Map<string, number>,
): void {
  const { roster, context, state } = input;
  const spec = group[0]?.spec;
  if (spec === undefined) return;
  const need: Need = { on: spec.on, capabilities: spec.needs, class: spec.kind, context };
  const load: Load = (address) => input.load(address) + (given.get(address) ?? 0);
  const share = Math.ceil(group.length / Math.max(1, runnersThatFit(need, roster)));
  let rest: readonly Candidate[] = group;
  while (rest.length > 0 && !isFull(plan)) {
    const found = place(need, roster, load);
    if ('reasons' in found) {
      for (const member of rest) leaveUnplaced(state, plan, member, explain(found.reasons));
      return;
    }
    const { node } = found;
    const members = cut(input, rest, Math.min(share, widestRunner(need, node), PACK_JOBS_MAX));
    rest = rest.slice(members.length);
    const id = `p${state.packCount + plan.packs.length}`;
    given.set(node.address, (given.get(node.address) ?? 0) + members.length);
    const isNew = ({ attempt, because }: Candidate): boolean => attempt === 1 && because === null;
    const jobs = members.filter(isNew).map(({ n }) => n);
    add(plan, plan.packs, { pack: id, class: spec.kind, node: node.address, jobs });
    for (const member of members) {
      if (isNew(member)) continue;
      const { n, attempt, because } = member;
      add(plan, plan.placed, { n, attempt, pack: id, unplaced: null, because });
    }
  }
}

/** The first candidates that make a pack: by how many jobs, and by how many bytes, one may hold. */
function cut({ derived }: PlanInput, from: readonly Candidate[], jobs: number): Candidate[] {
  let bytes = 0;
  const end = from.findIndex(({ n }, i) => {
    bytes += derived[n]?.bytes ?? 0;
    return i >= jobs || (i > 0 && bytes > PACK_BYTES_MAX);
  });
  return end < 0 ? [...from] : from.slice(0, end);
}

/** Says why a job has no node, once: the same reason again is no news for the log. */
function leaveUnplaced(
  state: FlowState,
  plan: Draft,
  { n, attempt, because }: Candidate,
  why: string,
): void {
  const reason = why.slice(0, REASON_LENGTH_MAX);
  const job = state.jobs[n];
  if (
    job !== undefined &&
    job.status === 'unplaced' &&
    job.unplaced === reason &&
    job.attempt === attempt
  )
    return;
  if (!isFull(plan)) add(plan, plan.placed, { n, attempt, pack: null, unplaced: reason, because });
}
