/**
 * What must be true of a flow however the chaos went, judged from its evidence.
 *
 *   lost     an accepted deployment that left nothing; a job that has no result although its script is
 *            through, or failed although nothing but the chaos was in its way; a value that is not what the
 *            jobs gave;
 *   doubled  an attempt that ran twice, or without being begun, or gave two results; a job that ran again
 *            although nobody knew how far it had come; a counter that counted more than it was told to;
 *   unended  a flow without an end.
 */
import type { JobState } from '../../actors/flow/fold.ts';
import { rootCause } from '../../schemas/errors.ts';
import { jobId } from '../../schemas/ids.ts';
import { attemptName, type Evidence } from './evidence.ts';
import type { PlannedJob } from './scripts.ts';

export type Verdict = 'lost' | 'doubled' | 'unended';
export type Violation = { verdict: Verdict; flow: string; detail: string };
type Say = (verdict: Verdict, detail: string) => void;

/** Lost so often, a job is given up (DESIGN 5.6): by itself, or swept away with its supervisor. */
const LOST_MAX = 5;
const SWEPT_MAX = 50;

export function judge(evidence: Evidence): Violation[] {
  const { submitted, entries, state } = evidence;
  const { flow, accepted } = submitted;
  const found: Violation[] = [];
  const say: Say = (verdict, detail) => found.push({ verdict, flow, detail });
  judgeRuns(evidence, say);
  if (entries.length === 0) {
    if (accepted) say('lost', 'it was accepted, and there is nothing of it in the log');
  } else if (state.end === null) {
    const open = state.jobs.filter(({ endedSeq }) => endedSeq === null);
    const told = open.map(({ n, status, attempt }) => `job ${n} ${status}, attempt ${attempt}`);
    say('unended', `no end in ${entries.length} entries; ${told.join('; ') || 'no job is open'}`);
  } else {
    judgeJobs(evidence, say);
    judgeEnd(evidence, say);
  }
  return found;
}

const repeated = (list: readonly string[]): string[] =>
  list.filter((each, index) => list.indexOf(each) !== index);

function judgeRuns(evidence: Evidence, say: Say): void {
  const { ran, begun, results, submitted, state } = evidence;
  for (const each of repeated(ran)) say('doubled', `${each} ran twice`);
  for (const each of repeated(results)) say('doubled', `${each} gave two results`);
  for (const each of ran) if (!begun.has(each)) say('doubled', `${each} ran and was not begun`);
  for (const { n, attempt, endedBy, status } of state.jobs) {
    const { traced, idempotent } = planned(evidence, n);
    const last = attemptName(submitted.flow, n, attempt);
    const reported = status === 'completed' && endedBy === 'result';
    if (traced && reported && !ran.includes(last)) say('lost', `${last} completed and never ran`);
    if (!idempotent) judgeUnrepeatable(evidence, n, say);
  }
}

/** It runs again only after an attempt whose outcome the log knows. */
function judgeUnrepeatable(evidence: Evidence, n: number, say: Say): void {
  const { ran, results, submitted } = evidence;
  const own = `${jobId(submitted.flow, n)} `;
  const attempts = ran
    .filter((each) => each.startsWith(own))
    .map((each) => Number(each.slice(own.length)))
    .toSorted((a, b) => a - b);
  for (const attempt of attempts.slice(0, -1)) {
    const name = attemptName(submitted.flow, n, attempt);
    if (!results.includes(name)) say('doubled', `${name} is not idempotent, nobody knows its end`);
  }
}

function planned({ submitted: { script } }: Evidence, n: number): PlannedJob {
  const job = script.jobs[n];
  if (job === undefined) throw new Error(`a script of ${script.jobs.length} jobs has a job ${n}`);
  return job;
}

function judgeJobs(evidence: Evidence, say: Say): void {
  const { state } = evidence;
  for (const job of state.jobs) {
    if (job.endedSeq === null) {
      if (state.end?.status === 'completed') say('lost', `job ${job.n} has no result`);
      continue;
    }
    const why = unexplained(job, planned(evidence, job.n));
    if (why !== undefined) say('lost', `job ${job.n}, attempt ${job.attempt}: ${why}`);
  }
}

function unexplained(job: JobState, { idempotent, cancelled }: PlannedJob): string | undefined {
  const { status, error, endedBy, lost, swept } = job;
  if (status === 'completed') return undefined;
  const cause = error === null ? undefined : rootCause(error);
  // The end of a flow, a command, and its own script end what runs.
  if (endedBy === 'end' || endedBy === 'command' || (cancelled && endedBy === 'script')) {
    return undefined;
  }
  if (cause?.code === 'outcome_unknown') {
    if (!idempotent || lost >= LOST_MAX || swept >= SWEPT_MAX) return undefined;
  }
  return `${status} by ${cause?.code ?? 'nobody knows what'}: ${cause?.message ?? ''}`;
}

function judgeEnd({ submitted, state, kept }: Evidence, say: Say): void {
  const { end } = state;
  if (end === null) return;
  const { script, cancelled } = submitted;
  if (end.status === 'cancelled') {
    if (!cancelled) say('lost', 'cancelled by nobody');
    return;
  }
  if (state.cancelled !== null && state.cancelled.seq < end.seq) {
    say('lost', `a cancel stands in the log, and it ended ${end.status}`);
  }
  const expected = script.valueOf(state);
  if (end.status !== 'completed') {
    if (expected === undefined) return;
    const cause = end.error === null ? undefined : rootCause(end.error);
    say('lost', `${end.status} by ${cause?.code}: ${cause?.message}; its jobs give ${expected}`);
    return;
  }
  if (Number(end.value) !== expected) {
    say('lost', `its value is ${String(end.value)}, its jobs give ${expected}`);
  }
  for (const { key, value } of script.counters) {
    const is = Number(kept.get(key));
    if (is !== value)
      say(is > value ? 'doubled' : 'lost', `${key} holds ${is} instead of ${value}`);
  }
}
