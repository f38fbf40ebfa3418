/**
 * Consumers, made by the control plane for itself and for others (DESIGN 3: nobody else may).
 *
 * Who may have which is the ledger's (actors/ledger/followers.ts, whose `ConsumerMaker` this gives); here
 * is what a consumer is on its stream. Making one again changes nothing.
 */
import type { NatsConnection } from '@nats-io/transport-node';
import { callApi } from './jetstream.ts';
import { isJobsStream } from './subjects.ts';

export type FollowerSpec = {
  stream: string;
  consumer: string;
  /** Subjects; none may hold another. */
  filters: readonly string[];
  /** First sequence to deliver; null: from the first stored. */
  from: number | null;
  /** Without `from`: what was stored from this time on, epoch ms. */
  since?: number | null;
  inactiveMs: number;
};

export type QueueSpec = { stream: string; consumer: string; filter: string };

const API_TIMEOUT_MS = 5_000;
/**
 * Longer than the work for one message takes; who works longer says so (`working`) or has acked already.
 * What was sent to a process that just died, or over a connection that just broke, comes again after that.
 */
export const ackWaitMs = (stream: string): number => (isJobsStream(stream) ? 4_000 : 6_000);
const MS_TO_NS = 1_000_000;
/** The pulls of one node decide how much it holds; this only has to be no smaller. */
const ACK_PENDING_MAX = 65_536;

/** A pull consumer in memory that acknowledges nothing and ends by itself. */
export async function makeFollower(nats: NatsConnection, spec: FollowerSpec): Promise<void> {
  await create(nats, spec.stream, spec.consumer, spec.filters, {
    ack_policy: 'none',
    ...startOf(spec),
    inactive_threshold: spec.inactiveMs * MS_TO_NS,
    mem_storage: true,
    num_replicas: 1,
  });
}

function startOf({ from, since }: FollowerSpec): Record<string, unknown> {
  if (from !== null) return { deliver_policy: 'by_start_sequence', opt_start_seq: from };
  if (since === null || since === undefined) return { deliver_policy: 'all' };
  return { deliver_policy: 'by_start_time', opt_start_time: new Date(since).toISOString() };
}

/** A durable pull consumer of a work queue. */
export async function makeQueueConsumer(nats: NatsConnection, spec: QueueSpec): Promise<void> {
  await create(nats, spec.stream, spec.consumer, [spec.filter], {
    durable_name: spec.consumer,
    ack_policy: 'explicit',
    ack_wait: ackWaitMs(spec.stream) * MS_TO_NS,
    max_deliver: -1,
    max_ack_pending: ACK_PENDING_MAX,
    deliver_policy: 'all',
  });
}

async function create(
  nats: NatsConnection,
  stream: string,
  name: string,
  filters: readonly string[],
  config: Record<string, unknown>,
): Promise<void> {
  const [filter, ...others] = filters;
  // The server wants a single filter in the subject too, and several nowhere but in the body.
  const single = filter !== undefined && others.length === 0;
  const filtered = single ? { filter_subject: filter } : { filter_subjects: filters };
  await callApi(
    nats,
    `CONSUMER.CREATE.${stream}.${name}${single ? `.${filter}` : ''}`,
    { stream_name: stream, config: { ...config, ...filtered, name } },
    API_TIMEOUT_MS,
  );
}
