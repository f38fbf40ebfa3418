/**
 * next: what the log of a flow asks its supervisor to do now. Pure; there is no other recovery path.
 *
 * The order is the order of need: stop what must not begin, then hand out what was decided, then let the
 * script go on, then decide. Every answer is either done by appending one fenced decision, or does nothing
 * new when it is done twice.
 */
import { type ErrorRecord, failure, rootCause } from '../../schemas/errors.ts';
import { jobId, type PackId } from '../../schemas/ids.ts';
import type { Step } from './derive.ts';
import type { FlowState, JobState, PackState } from './fold.ts';
import { nextDueMs, nextPlan, type Plan, type PlanInput } from './plan.ts';

export type Next =
  | { do: 'close'; why: 'ended' | 'moved' }
  | { do: 'void'; packs: PackId[]; reason: string }
  | { do: 'publish'; packs: PackState[] }
  | { do: 'advance' }
  /** The script goes on with the values of these jobs, which are blobs. */
  | { do: 'fetch'; jobs: number[] }
  | { do: 'plan'; plan: Plan }
  | { do: 'answer'; k: number; name: string; args: string }
  | { do: 'timer'; k: number; dueMs: number }
  | {
      do: 'end';
      status: 'completed' | 'failed' | 'cancelled' | 'refused';
      value: string | null;
      error: ErrorRecord | null;
    }
  | { do: 'pause' }
  | { do: 'wait'; dueMs: number | null };

export type NextInput = PlanInput & {
  me: string;
  /** Jobs the script may have spawned before it waits for earlier ones to end. */
  spawnTo: number;
  /** So many more it is to have room for before it goes on, where it was held: not job by job. */
  spawnStep: number;
  /** The script's last step; undefined: it is to be run. */
  step: Step | undefined;
  /** Packs whose message is to be sent now, as far as they are queued still. */
  toSend: readonly PackId[];
};

/** Messages published, or packs void-ed, in one go. */
const AT_ONCE_MAX = 256;

export function next(input: NextInput): Next {
  const { state, work, me } = input;
  if (state.end !== null) return { do: 'close', why: 'ended' };
  if (state.term === null || state.term.node !== me) return { do: 'close', why: 'moved' };
  if (work.tainted.size > 0) {
    return {
      do: 'void',
      packs: [...work.tainted].slice(0, AT_ONCE_MAX),
      reason: 'a job of it has ended',
    };
  }
  if (state.cancelled !== null) return endCancelled(state.cancelled);
  const stranded = strandedPacks(input);
  if (stranded.length > 0) return { do: 'void', packs: stranded, reason: 'its node is lost' };
  const unsent = unsentPacks(input);
  if (unsent.length > 0) return { do: 'publish', packs: unsent };
  if (state.paused) return { do: 'pause' };
  const { step } = input;
  if (step?.state === 'failed') return endOf(input, step);
  if (step === undefined || canGoOn(input, step)) return { do: 'advance' };
  const plan = nextPlan(input);
  if (plan !== undefined) return { do: 'plan', plan };
  if (step.state === 'fetches') return { do: 'fetch', jobs: step.jobs };
  if (step.state === 'asks') return { do: 'answer', k: step.k, name: step.name, args: step.args };
  if (step.state === 'sleeps') return { do: 'timer', k: step.k, dueMs: input.nowMs + step.ms };
  if (step.state === 'done' && work.open.size === 0) return endOf(input, step);
  return {
    do: 'wait',
    dueMs: earliest(
      nextDueMs(state, work, input.nowMs),
      step.state === 'until' ? step.dueMs : undefined,
    ),
  };
}

/** Has what the script waits for come? */
function canGoOn({ state, nowMs, spawnTo, spawnStep }: NextInput, step: Step): boolean {
  const ended = (n: number): boolean => {
    const job = state.jobs[n];
    return job !== undefined && job.endedSeq !== null;
  };
  switch (step.state) {
    case 'sliced':
      return true;
    case 'waiting':
      if (step.mode === 'any') return step.jobs.some(ended);
      // From the last one: jobs end roughly in their order, so "not yet" is found at once.
      return step.jobs.findLastIndex((n) => !ended(n)) < 0;
    case 'held':
      return spawnTo - step.jobs >= spawnStep;
    case 'asks':
    case 'sleeps':
      return state.answers.length > step.k;
    case 'until':
      return nowMs >= step.dueMs;
    default:
      return false;
  }
}

function endCancelled({ reason, by }: NonNullable<FlowState['cancelled']>): Next {
  const who = by[0] ?? 'a command';
  const message = reason === null ? `cancelled by ${who}` : `cancelled by ${who}: ${reason}`;
  return { do: 'end', status: 'cancelled', value: null, error: failure('cancelled', message) };
}

/** The script is through: nothing of it may be left behind that could still begin. */
function endOf({ state, work, flow }: NextInput, step: Step & { state: 'done' | 'failed' }): Next {
  if (work.queued.size > 0) {
    const packs = firstOf(work.queuedPacks(state), () => true).map(({ pack }) => pack);
    if (packs.length > 0) return { do: 'void', packs, reason: 'its flow ends' };
  }
  if (step.state === 'failed') {
    const refused = state.jobs.length === 0 && (step.refused || REFUSALS.has(step.error.code));
    const error = afterRetry(state, step.error);
    return { do: 'end', status: refused ? 'refused' : 'failed', value: null, error };
  }
  const neglected = step.unjoined
    .map((n) => state.jobs[n])
    .find((job) => job !== undefined && hasFailed(job));
  if (neglected !== undefined) {
    return {
      do: 'end',
      status: 'failed',
      value: step.value,
      error: neglectedError(flow, neglected),
    };
  }
  return { do: 'end', status: 'completed', value: step.value, error: null };
}

/** A script that caught a failure and went on is bound to what it did then, also when the job succeeds now. */
function afterRetry({ commands }: FlowState, error: ErrorRecord): ErrorRecord {
  const retry = commands.findLast(({ verb }) => verb === 'retry');
  if (error.code !== 'replay_mismatch' || retry === undefined) return error;
  const message = `after the retry (log #${retry.seq}) the script took another way than the one the log holds, so it cannot go on from there: deploy it anew; ${error.message}`;
  return { ...error, message };
}

const hasFailed = (job: JobState): boolean => job.status === 'failed' || job.status === 'timeout';

const REFUSALS: ReadonlySet<string> = new Set([
  'script_syntax',
  'capability_not_granted',
  'capability_not_allowed',
]);

function neglectedError(flow: string, job: JobState): ErrorRecord {
  const cause = job.error ?? failure('job_failed', job.status);
  const message = `${jobId(flow, job.n)} (${job.spec.name}) ${job.status} and the script never joined it: ${rootCause(cause).message}`;
  return failure('job_failed', message, { actor: 'supervisor' }, cause);
}

/** Queued packs whose node has gone: nobody will claim them. */
function strandedPacks({ state, work, roster }: NextInput): PackId[] {
  const gone = new Set(
    roster
      .filter((node) => node.liveness === 'dead' || node.liveness === 'drained')
      .map((node) => node.address),
  );
  if (gone.size === 0) return [];
  return firstOf(work.queuedPacks(state), ({ node }) => gone.has(node)).map(({ pack }) => pack);
}

function firstOf(packs: Iterable<PackState>, wanted: (pack: PackState) => boolean): PackState[] {
  const found: PackState[] = [];
  for (const pack of packs) {
    if (wanted(pack)) found.push(pack);
    if (found.length >= AT_ONCE_MAX) break;
  }
  return found;
}

/** Packs that are to be sent and whose payloads have been derived again. */
function unsentPacks({ state, toSend, derived }: NextInput): PackState[] {
  return toSend.flatMap((id) => {
    const pack = state.packs[id];
    return pack?.state === 'queued' && pack.jobs.every((n) => n < derived.length) ? [pack] : [];
  });
}

const earliest = (...moments: (number | undefined)[]): number | null => {
  const known = moments.filter((moment) => moment !== undefined);
  return known.length === 0 ? null : Math.min(...known);
};
