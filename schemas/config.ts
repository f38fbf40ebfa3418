/** Files a person may look at: the home's config, the data folder's `bus.json`, and `up`'s options. */
import { z } from 'zod';
import { Principal } from './ids.ts';
import { JobKind } from './job.ts';

/** `<home>/config.json`. */
export const HomeConfig = z.object({
  v: z.literal(1).default(1),
  name: z.string().optional(),
  server: z.string().nullable().default(null),
  context: z.string().nullable().default(null),
  /** Data folder of the last `up` from this home: where its `bus.json` is found. */
  data: z.string().nullable().default(null),
});
export type HomeConfig = z.infer<typeof HomeConfig>;

/** `<data>/bus.json` (INTERFACES 4): written when the bus answers, removed at stop. */
export const BusFile = z.object({
  url: z.string(),
  web: z.string().nullable(),
  ca: z.string().nullable(),
  join_creds: z.string(),
  account: z.string(),
  pid: z.int(),
  version: z.string(),
});
export type BusFile = z.infer<typeof BusFile>;

/** The end of a stream as it was seen: its last sequence, and the message's digest (null: not stored any more). */
export const Watermark = z.object({
  seq: z.int().min(1),
  digest: z
    .string()
    .regex(/^[0-9a-f]{64}$/)
    .nullable(),
  at: z.string(),
  /** The server lost it by damage. */
  lost: z.literal(true).optional(),
});
export type Watermark = z.infer<typeof Watermark>;

/** `<data>/watermarks.json` (bus/watermark.ts). */
export const WatermarkFile = z.object({
  v: z.literal(1),
  streams: z.record(z.string(), Watermark),
});
export type WatermarkFile = z.infer<typeof WatermarkFile>;

export const LOSS_PAYLOAD_TYPE = 'application/vnd.herobus.loss+json';

/** A line of `<data>/losses.jsonl`, signed by `by` (bus/watermark-losses.ts). */
export const AcceptedLoss = z.object({
  v: z.literal(1),
  /** Null: of all of them, since the marks could not be read. */
  stream: z.string().nullable(),
  /** The first sequence that is lost; null where nobody knows it. */
  from: z.int().nullable(),
  /** The last one that had been stored. */
  to: z.int().nullable(),
  what: z.string(),
  at: z.iso.datetime(),
  by: Principal,
});
export type AcceptedLoss = z.infer<typeof AcceptedLoss>;

export const Durability = z.enum(['fsync', 'relaxed', 'replicated']);
export type Durability = z.infer<typeof Durability>;

export const Role = z.enum(['ledger', 'roster', 'coord', 'supervisor', 'runner']);
export type Role = z.infer<typeof Role>;

/** `--runners class=n[@ctx+ctx]`: n jobs of the class at a time; of all contexts when none is named. */
export const RunnerConfig = z.object({
  class: JobKind,
  slots: z.int().min(1).max(1024),
  contexts: z.array(z.string()).default([]),
});
export type RunnerConfig = z.infer<typeof RunnerConfig>;

/** What `up` gives a runner child on its stdin. */
export const RunnerProcess = z.object({
  v: z.literal(1),
  name: z.string(),
  class: JobKind,
  slots: z.int().min(1),
  contexts: z.array(z.string()),
  server: z.string(),
  /**
   * Paths: key, credentials, where jobs work, the folders of jobs that have one of their own (this runner's
   * alone), where undo records are kept, the node's kv socket.
   */
  key: z.string(),
  creds: z.string(),
  work: z.string(),
  folders: z.string(),
  undo: z.string(),
  kv_socket: z.string(),
  kv_token: z.string(),
});
export type RunnerProcess = z.infer<typeof RunnerProcess>;
