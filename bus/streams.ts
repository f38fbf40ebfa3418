/**
 * The streams and buckets of the bus: names, limits, and `ensure`, which makes them what this page says.
 *
 * Subjects come from bus/subjects.ts. Who may touch which of them is bus/credentials.ts, which also takes
 * the list of protected buckets from here, so that a new bucket is closed until somebody opens it.
 */
import {
  DiscardPolicy,
  PersistMode,
  RetentionPolicy,
  StorageType,
  type JetStreamManager,
  type StreamConfig,
} from '@nats-io/jetstream';
import type { Durability } from '../schemas/config.ts';
import type { Address, ContextName } from '../schemas/ids.ts';
import { streams, subjects } from './subjects.ts';

/** Buckets that only the control plane writes. */
export const PROTECTED_BUCKETS = [
  'ledger_principals',
  'ledger_contexts',
  'ledger_grants',
  'ledger_tokens',
  'ledger_meta',
  'roster',
  'open_flows',
] as const;

export const userBucket = (address: Address) => `user_${address}`;
export const bucketStream = (bucket: string) => `KV_${bucket}`;
/** Where copies of what a protected bucket stored come: what a watch listens to. */
export const bucketCopies = (bucket: string) => `hb.kv.${bucket}.>`;
export const blobSubjects = (context: ContextName) => `hb.blobs.${context}.>`;

const MIB = 1024 * 1024;
const DAY_NS = 24 * 3600 * 1e9;

/** Follow consumers come and go with the people that watch; the server's default is 1,000 a stream. */
const FLOW_CONSUMERS_MAX = 20_000;

type Definition = Partial<StreamConfig> & { name: string; subjects: string[] };

function common(durability: Durability): Partial<StreamConfig> {
  return {
    storage: StorageType.File,
    num_replicas: durability === 'replicated' ? 3 : 1,
    discard: DiscardPolicy.New,
  };
}

/** The streams that every bus has. */
export function busStreams(durability: Durability): Definition[] {
  const base = common(durability);
  return [
    {
      ...base,
      name: streams.deploy,
      subjects: [subjects.deployAll],
      retention: RetentionPolicy.Workqueue,
      max_msg_size: 2 * MIB,
    },
    {
      ...base,
      name: streams.refused,
      subjects: ['hb.refused.*.*'],
      max_msgs_per_subject: 1,
      max_msgs: 100_000,
      max_age: 7 * DAY_NS,
      discard: DiscardPolicy.Old,
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
      retention: RetentionPolicy.Workqueue,
      // A wake says "look at the log": the last one for a flow and node is as good as all.
      max_age: DAY_NS,
    },
    {
      ...base,
      name: streams.logs,
      subjects: [subjects.logsAll],
      max_bytes: 1024 * MIB,
      max_age: 7 * DAY_NS,
      discard: DiscardPolicy.Old,
      allow_direct: true,
      max_consumers: FLOW_CONSUMERS_MAX,
      // Output lines are not decisions: losing the last ones with the power costs no correctness.
      ...(durability === 'replicated' ? {} : { persist_mode: PersistMode.Async }),
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
      retention: RetentionPolicy.Workqueue,
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
    allow_rollup_hdrs: true,
    deny_delete: true,
    duplicate_window: 120 * 1e9,
  };
}

/**
 * Makes one stream as defined; asking again changes nothing. A setting that this page changed is updated,
 * what the server cannot change (storage, retention) is an error that names the stream.
 */
export async function ensureStream(jsm: JetStreamManager, wanted: Definition): Promise<void> {
  const existing = await jsm.streams.info(wanted.name).catch((error: unknown) => {
    if (isStreamNotFound(error)) return undefined;
    throw error;
  });
  if (existing === undefined) {
    await jsm.streams.add(wanted);
    return;
  }
  const config = existing.config as unknown as Record<string, unknown>;
  const differs = Object.entries(wanted).some(
    ([key, value]) => JSON.stringify(config[key]) !== JSON.stringify(value),
  );
  if (differs) await jsm.streams.update(wanted.name, wanted);
}

function isStreamNotFound(error: unknown): boolean {
  return error instanceof Error && 'code' in error && error.code === 10059;
}

export async function ensureBus(jsm: JetStreamManager, durability: Durability): Promise<void> {
  for (const definition of busStreams(durability)) await ensureStream(jsm, definition);
  for (const bucket of PROTECTED_BUCKETS) {
    const history = bucket.startsWith('ledger_') ? 16 : 1;
    await ensureStream(jsm, bucketDefinition(bucket, durability, history));
  }
}

export async function ensureContext(
  jsm: JetStreamManager,
  context: ContextName,
  durability: Durability,
): Promise<void> {
  for (const definition of contextStreams(context, durability)) await ensureStream(jsm, definition);
}

export async function ensureUserBucket(
  jsm: JetStreamManager,
  address: Address,
  durability: Durability,
): Promise<void> {
  await ensureStream(jsm, bucketDefinition(userBucket(address), durability));
}
