/** show: the fold of a flow -> the flow object people see (INTERFACES 2). Pure. */
import { type ErrorRecord, shownError } from '../../schemas/errors.ts';
import type { Flow, FlowStatus, Job } from '../../schemas/flow.ts';
import { addressText, jobId } from '../../schemas/ids.ts';
import type { FlowState, JobState } from './fold.ts';

const iso = (ms: number | null | undefined): string | null =>
  ms === null || ms === undefined ? null : new Date(ms).toISOString();

const shown = (address: string | null | undefined): string | null =>
  address === null || address === undefined ? null : addressText(address);
const shownOrNull = (error: ErrorRecord | null | undefined): ErrorRecord | null =>
  error === null || error === undefined ? null : shownError(error);

/** Parses typed JSON for display; exactness of numbers is left to who needs it (`schemas/json.ts`). */
export type ShowValue = (typedJson: string) => unknown;

export function flowStatus(state: FlowState): FlowStatus {
  if (state.end !== null) return state.end.status;
  if (state.cancelled !== null) return 'cancelling';
  if (state.deploy === null) return 'received';
  if (state.term === null) return 'placing';
  return state.paused ? 'paused' : 'running';
}

export function showFlow(context: string, flow: string, state: FlowState, value: ShowValue): Flow {
  return {
    flow,
    context,
    status: flowStatus(state),
    value: state.end?.value ?? null,
    ...(state.end?.valueRef ? { value_ref: state.end.valueRef } : {}),
    error: shownOrNull(state.end?.error),
    submitted_by: state.deploy?.submittedBy ?? [],
    supervisor: shown(state.term?.node),
    created_at: iso(state.deploy?.at),
    ended_at: iso(state.end?.at),
    jobs: state.jobs.map((job) => showJob(flow, job, value)),
  };
}

export function showJob(flow: string, job: JobState, value: ShowValue): Job {
  return {
    job: jobId(flow, job.n),
    kind: job.spec.kind,
    name: job.spec.name,
    status: job.status,
    ...(job.unplaced === null ? {} : { unplaced: job.unplaced }),
    node: shown(job.node),
    attempt: job.attempt,
    value: job.value === null ? null : value(job.value),
    ...(job.valueRef === null ? {} : { value_ref: job.valueRef }),
    error: shownOrNull(job.error),
    created_at: iso(job.createdAt),
    started_at: iso(job.begunAt),
    ended_at: iso(job.endedAt),
    usage: job.usage,
  };
}
