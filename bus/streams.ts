/**
 * The streams and buckets of the bus: names, limits, and `ensure`, which makes them what this page says.
 *
 * Subjects come from bus/subjects.ts. Who may touch which of them is bus/credentials.ts, which also takes
 * the list of protected buckets from here, so that a new bucket is closed until somebody opens it.
 */
import type { NatsConnection } from '@nats-io/transport-node';
import type { Durability } from '../schemas/config.ts';
import type { Address, ContextName } from '../schemas/ids.ts';
import { callApi, ServerRefusal } from './jetstream.ts';
import { streams, subjects } from './subjects.ts';

/**
 * Buckets of the control plane alone. They live in the ledger's account, where nobody else has a
 * connection: in the shared one, whoever may publish anything can have an acknowledgement or an answer
 * stored in them by naming their subject as the reply (reference/bus.md H3; tried: one message replaced
 * a context's record).
 */
export const PRIVATE_BUCKETS = [
  'ledger_principals',
  'ledger_contexts',
  'ledger_grants',
  'ledger_tokens',
  'ledger_meta',
  'open_flows',
] as const;

/**
 * Buckets whose keys come and go by the hundred a second: unfenced writes travel together, and what marks a
 * key as deleted goes by itself.
 */
export const isFleeting = (bucket: string) => bucket === 'open_flows';

export const isPrivate = (bucket: string) => PRIVATE_BUCKETS.some((name) => name === bucket);

/** Written by the control plane, read by nodes and users. */
const PUBLIC_BUCKETS = ['roster'] as const;

/** Nobody but the control plane writes these. */
export const PROTECTED_BUCKETS = [...PRIVATE_BUCKETS, ...PUBLIC_BUCKETS];

export const userBucket = (address: Address) => `user_${address}`;
export const bucketStream = (bucket: string) => `KV_${bucket}`;
export const isUserStream = (stream: string) => stream.startsWith(bucketStream('user_'));
/** Where copies of what a protected bucket stored come: what a watch listens to. */
export const bucketCopies = (bucket: string) => `hb.kv.${bucket}.>`;
export const blobSubjects = (context: ContextName) => `hb.blobs.${context}.>`;

const MIB = 1024 * 1024;
const DAY_NS = 24 * 3600 * 1e9;
const API_TIMEOUT_MS = 10_000;
const STREAM_NOT_FOUND = 10059;

/** Follow consumers come and go with the people that watch; the server's default is 1,000 a stream. */
const FLOW_CONSUMERS_MAX = 20_000;

/** A stream's configuration by the server's own names; what is left out is the server's default. */
type Definition = Settings & { name: string; subjects: string[] };
type Settings = Readonly<Record<string, unknown>>;

function common(durability: Durability): Settings {
  return {
    storage: 'file',
    num_replicas: durability === 'replicated' ? 3 : 1,
    discard: 'new',
  };
}

/**
 * For what only wakes or only tells: an acknowledgement waits for no disk. The log knows what a queue was
 * for, and who sent a message that is lost sends it again (script-host.ts `review`, coord.machine.ts `DUE`).
 * The server offers this to streams of one replica alone.
 */
const hints = (durability: Durability): Settings =>
  durability === 'replicated' ? {} : { persist_mode: 'async' };

/** The streams that every bus has. */
export function busStreams(durability: Durability): Definition[] {
  const base = common(durability);
  return [
    {
      ...base,
      name: streams.deploy,
      subjects: [subjects.deployAll],
      retention: 'workqueue',
      max_msg_size: 2 * MIB,
    },
    {
      ...base,
      name: streams.refused,
      subjects: ['hb.refused.*.*'],
      max_msgs_per_subject: 1,
      max_msgs: 100_000,
      max_age: 7 * DAY_NS,
      discard: 'old',
      allow_direct: true,
    },
    {
      ...base,
      name: streams.flow,
      subjects: [subjects.flowAll],
      allow_direct: true,
      allow_atomic: true,
      max_consumers: FLOW_CONSUMERS_MAX,
      // Copies of what was stored, and only of that: the live end of a log (bus/log.ts).
      republish: { src: subjects.flowAll, dest: subjects.storedAll },
    },
    {
      ...base,
      name: streams.assign,
      subjects: [subjects.assignAll],
      retention: 'workqueue',
      ...hints(durability),
      // A wake says "look at the log": the last one for a flow and node is as good as all.
      max_age: DAY_NS,
    },
    {
      ...base,
      name: streams.logs,
      subjects: [subjects.logsAll],
      max_bytes: 1024 * MIB,
      max_age: 7 * DAY_NS,
      discard: 'old',
      allow_direct: true,
      max_consumers: FLOW_CONSUMERS_MAX,
      // Output lines are not decisions: losing the last ones with the power costs no correctness.
      ...hints(durability),
    },
  ];
}

/** The streams of one context: its jobs, its blobs. */
export function contextStreams(context: ContextName, durability: Durability): Definition[] {
  const base = common(durability);
  return [
    {
      ...base,
      name: streams.jobs(context),
      subjects: [subjects.jobsOf(context)],
      retention: 'workqueue',
      ...hints(durability),
      max_consumers: FLOW_CONSUMERS_MAX,
      max_age: 7 * DAY_NS,
    },
    {
      ...base,
      name: streams.blobs(context),
      subjects: [blobSubjects(context)],
      max_msgs_per_subject: 1,
      allow_direct: true,
    },
  ];
}

/** A bucket as the KV clients of all languages expect it. */
export function bucketDefinition(bucket: string, durability: Durability, history = 1): Definition {
  const watched = PROTECTED_BUCKETS.some((name) => name === bucket);
  return {
    ...common(durability),
    ...(watched ? { republish: { src: `$KV.${bucket}.>`, dest: bucketCopies(bucket) } } : {}),
    name: bucketStream(bucket),
    subjects: [`$KV.${bucket}.>`],
    max_msgs_per_subject: history,
    allow_direct: true,
    ...(isFleeting(bucket) ? { allow_atomic: true, allow_msg_ttl: true } : {}),
    allow_rollup_hdrs: true,
    deny_delete: true,
    duplicate_window: 120 * 1e9,
  };
}

/**
 * Makes one stream as defined; asking again changes nothing. A setting that this page changed is updated,
 * what the server cannot change (storage, retention) is an error that names the stream.
 */
export async function ensureStream(nats: NatsConnection, wanted: Definition): Promise<void> {
  const existing = await streamConfig(nats, wanted.name);
  if (existing === undefined) {
    await callApi(nats, `STREAM.CREATE.${wanted.name}`, wanted, API_TIMEOUT_MS);
    return;
  }
  const differs = Object.entries(wanted).some(
    ([key, value]) => JSON.stringify(existing[key]) !== JSON.stringify(value),
  );
  if (!differs) return;
  await callApi(nats, `STREAM.UPDATE.${wanted.name}`, { ...existing, ...wanted }, API_TIMEOUT_MS);
}

/** The stream's configuration as the server has it; undefined when there is no such stream. */
async function streamConfig(nats: NatsConnection, name: string): Promise<Settings | undefined> {
  try {
    const info = await callApi(nats, `STREAM.INFO.${name}`, {}, API_TIMEOUT_MS);
    return info['config'] as Settings;
  } catch (error) {
    if (error instanceof ServerRefusal && error.code === STREAM_NOT_FOUND) return undefined;
    throw error;
  }
}

/** What everybody shares: in the main account. */
export async function ensureBus(nats: NatsConnection, durability: Durability): Promise<void> {
  for (const definition of busStreams(durability)) await ensureStream(nats, definition);
  for (const bucket of PUBLIC_BUCKETS) {
    await ensureStream(nats, bucketDefinition(bucket, durability));
  }
}

/** What only the control plane sees: over its connection to the ledger's account. */
export async function ensurePrivate(ledger: NatsConnection, durability: Durability): Promise<void> {
  for (const bucket of PRIVATE_BUCKETS) {
    const history = bucket.startsWith('ledger_') ? 16 : 1;
    await ensureStream(ledger, bucketDefinition(bucket, durability, history));
  }
}

export async function ensureContext(
  nats: NatsConnection,
  context: ContextName,
  durability: Durability,
): Promise<void> {
  for (const definition of contextStreams(context, durability))
    await ensureStream(nats, definition);
}

export async function ensureUserBucket(
  nats: NatsConnection,
  address: Address,
  durability: Durability,
): Promise<void> {
  await ensureStream(nats, bucketDefinition(userBucket(address), durability));
}
