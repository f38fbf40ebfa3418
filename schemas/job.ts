/**
 * Jobs: what a script asks for (`JobSpec`), how it travels to a runner (`Pack`), how it ends (`Result`).
 *
 * A job is data in the fold of its flow, not an actor. Its spec is derived from the signed script at each
 * replay; the log holds only the spec's digest, the queue message the spec itself.
 */
import { z } from 'zod';
import { BlobRef, PlacedFiles } from './blob.ts';
import { Capability } from './deployment.ts';
import { ErrorRecord } from './errors.ts';
import { Address, ContextName, FlowId, Incarnation, JobNumber, PackId } from './ids.ts';

export const JobKind = z.enum(['process', 'container', 'vm', 'wasm', 'script', 'sal']);
export type JobKind = z.infer<typeof JobKind>;

/** Typed JSON text (schemas/json.ts): integers are i64, numbers with `.` or `e` are f64, null is unit. */
export const TypedJson = z.string();

/** A process whose command line is run on a node. Times in milliseconds. */
export const ProcessPayload = z.object({
  cmd: z.string().min(1),
  args: z.array(z.string()).default([]),
  env: z.record(z.string(), z.string()).default({}),
  cwd: z.string().nullable().default(null),
  stdin: z.string().nullable().default(null),
  ok_codes: z.array(z.int().min(0).max(255)).min(1).default([0]),
  /** Placed in a folder of the job's own, which is where it works. */
  files: PlacedFiles.optional(),
});
export type ProcessPayload = z.infer<typeof ProcessPayload>;

/** One operation of a SAL, `family.operation`, with its arguments as typed JSON text. */
export const SalPayload = z.object({
  op: z.string().regex(/^[a-z][a-z0-9_]*\.[a-z][a-z0-9_]*$/),
  args: TypedJson,
});
export type SalPayload = z.infer<typeof SalPayload>;

/** How many times a lost attempt may be followed by another (DESIGN 5.6): a job may be what kills runners. */
export const LOST_ATTEMPTS_MAX = 5;
/** The same for attempts lost with the whole node: that is rarely the job's doing, but it may be. */
export const SWEPT_ATTEMPTS_MAX = 50;
export const RETRIES_MAX = 100;
export const BACKOFF_MAX_MS = 5 * 60_000;
export const DELAY_MAX_MS = 365 * 24 * 3_600_000;

export const JobSpec = z.object({
  v: z.literal(1),
  kind: JobKind,
  /** For people; unique names are not required. */
  name: z.string().max(128),
  payload: z.unknown(),
  needs: z.array(Capability).max(16),
  /** A selector of INTERFACES 3, or null for any node. */
  on: z.string().max(512).nullable(),
  timeout_ms: z.int().min(1).nullable(),
  retries: z.int().min(0).max(RETRIES_MAX),
  backoff_ms: z.int().min(0).max(BACKOFF_MAX_MS),
  after: z.array(JobNumber).max(10_000),
  idempotent: z.boolean(),
  /** Not before so long after it was planned. */
  delay_ms: z.int().min(1).max(DELAY_MAX_MS).optional(),
});
export type JobSpec = z.infer<typeof JobSpec>;

/** One job of a pack as a runner gets it. */
export const PackedJob = z.object({ n: JobNumber, attempt: z.int().min(1), spec: JobSpec });
export type PackedJob = z.infer<typeof PackedJob>;

/** The message on `hb.jobs.<ctx>.<class>.<addr>`: it only wakes and carries payloads, the log decides. */
export const Pack = z.object({
  v: z.literal(1),
  context: ContextName,
  flow: FlowId,
  pack: PackId,
  /** Sequence of the plan that made the pack. */
  plan: z.int().min(1),
  node: Address,
  caller: z.string(),
  /** Its job was lost before while its supervisor lived on: it may be what kills runners. */
  suspect: z.boolean().optional(),
  jobs: z.array(PackedJob).min(1),
});
export type Pack = z.infer<typeof Pack>;

export const Outcome = z.enum(['completed', 'failed', 'timeout', 'cancelled']);
export type Outcome = z.infer<typeof Outcome>;

export const JobStatus = z.enum([
  'waiting',
  'unplaced',
  'pending',
  'running',
  'completed',
  'failed',
  'timeout',
  'cancelled',
]);
export type JobStatus = z.infer<typeof JobStatus>;

/**
 * What an attempt's processes used, as their runner saw it. Memory and io are seen by looking (about once a
 * second, sooner at first): null when the attempt ended before anybody looked.
 */
export const Usage = z.object({
  /** Of all its processes, those that ended and were waited for included. */
  cpu_ms: z.int().min(0),
  /** Resident memory of all its processes together, at its highest. */
  memory_peak_bytes: z.int().min(0).nullable(),
  /** From and to storage: what the page cache answered does not count. */
  io_read_bytes: z.int().min(0).nullable(),
  io_write_bytes: z.int().min(0).nullable(),
});
export type Usage = z.infer<typeof Usage>;

/** `0.31 s of cpu, 68.1 MiB of memory at its peak, 0.0 MiB read, 4.0 MiB written`: what is known of it. */
export function usageText(usage: Usage): string {
  const figures: [number | null, string][] = [
    [usage.memory_peak_bytes, 'of memory at its peak'],
    [usage.io_read_bytes, 'read'],
    [usage.io_write_bytes, 'written'],
  ];
  const known = figures.flatMap(([bytes, what]) =>
    bytes === null ? [] : [`${(bytes / 1024 / 1024).toFixed(1)} MiB ${what}`],
  );
  return [`${(usage.cpu_ms / 1000).toFixed(2)} s of cpu`, ...known].join(', ');
}

/** A known end of an attempt, as its runner reports it. Times are bus time in epoch ms. */
export const Result = z.object({
  n: JobNumber,
  attempt: z.int().min(1),
  outcome: Outcome,
  value: TypedJson.nullable(),
  /** Instead of a value that is too large for the log; readers that know no blobs see null. */
  value_ref: BlobRef.optional(),
  error: ErrorRecord.nullable(),
  started_ms: z.int(),
  ended_ms: z.int(),
  /** Where the class of the job can tell. */
  usage: Usage.optional(),
});
export type Result = z.infer<typeof Result>;

/** Which attempt of which job a runner begins: written ahead of the deed. */
export const Begun = z.object({ n: JobNumber, attempt: z.int().min(1) });
export type Begun = z.infer<typeof Begun>;

const LogStream = z.enum(['stdout', 'stderr', 'log', 'progress']);

/** Also what tells the lines of one message apart in `OutputLine.seq`. */
export const LOG_LINES_MAX = 1000;

/** Output of jobs on `hb.logs.<ctx>.<flow>.<n>`: many lines a message. `at` is bus time in epoch ms. */
export const LogLines = z.object({
  v: z.literal(1),
  inc: Incarnation,
  lines: z.array(z.object({ stream: LogStream, line: z.string(), at: z.int() })).max(LOG_LINES_MAX),
});
export type LogLines = z.infer<typeof LogLines>;

/** One line of output as `herobus logs --json` tells it. */
export const OutputLine = z.object({
  /** `<flow>.<n>`; null for what the script itself logs. */
  job: z.string().nullable(),
  stream: LogStream,
  line: z.string(),
  at: z.iso.datetime(),
  /** Rises from line to line, one line one number: who has this one goes on with `--from` seq + 1. */
  seq: z.int().min(1),
});
export type OutputLine = z.infer<typeof OutputLine>;
