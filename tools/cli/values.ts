/**
 * Values that are too large for the log, fetched for who looks at a flow. They are verified by their digest;
 * one that is gone or altered is told as `value_error` in its place.
 */
import { fetchValue } from '../../bus/blobs.ts';
import type { BlobRef } from '../../schemas/blob.ts';
import { errorRecord, HeroError } from '../../schemas/errors.ts';
import type { Flow } from '../../schemas/flow.ts';
import { exactJson } from '../../schemas/json.ts';
import type { Session } from './session.ts';

/** Of all values of a flow together: further ones stay references, each can be asked for by its job. */
const FETCHED_BYTES_MAX = 64 * 1024 * 1024;

type Valued = Pick<Flow, 'value' | 'value_ref' | 'value_error'>;

/** The flow with its own value and, as far as they are wanted, those of its jobs. */
export async function withValues<T extends Flow>(
  session: Session,
  flow: T,
  wanted: 'all' | 'flow' | { job: number },
): Promise<T> {
  let left = FETCHED_BYTES_MAX;
  const fetched = async <V extends Valued>(valued: V): Promise<V> => {
    const { value_ref: ref, ...rest } = valued;
    if (ref === undefined || ref.size > left) return valued;
    left -= ref.size;
    return { ...rest, ...(await valueOf(session, flow.context, ref)) } as V;
  };
  const own = typeof wanted === 'object' ? flow : await fetched(flow);
  const jobs: Flow['jobs'] = [];
  for (const [n, job] of flow.jobs.entries()) {
    const isWanted = typeof wanted === 'object' ? wanted.job === n : wanted === 'all';
    jobs.push(isWanted ? await fetched(job) : job);
  }
  return { ...own, jobs };
}

async function valueOf(session: Session, context: string, ref: BlobRef): Promise<Valued> {
  try {
    return { value: exactJson(await fetchValue(session.bus.blobs, context, ref)) };
  } catch (error) {
    if (!(error instanceof HeroError) || error.code === 'unreachable') throw error;
    return { value: null, value_ref: ref, value_error: errorRecord(error) };
  }
}
