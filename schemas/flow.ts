/**
 * The flow's log: every record that may stand in `HB_FLOW`, and the flow object people see.
 *
 * Decisions (`main`) are fenced and written by the control plane or the assignee of the term. Claims and
 * voids share a fence for each pack. Facts (`run`) are never fenced. `at` and `seq` are the stream's, not
 * in the bodies. Readers accept every earlier `v` and ignore unknown fields.
 */
import { z } from 'zod';
import { BlobRef } from './blob.ts';
import { CommandVerb } from './command.ts';
import { ErrorRecord } from './errors.ts';
import { Address, AddressText, FlowId, Incarnation, JobNumber, PackId, Principal } from './ids.ts';
import { Begun, JobKind, JobStatus, Result, TypedJson, Usage } from './job.ts';

const Header = z.object({ v: z.literal(1), inc: Incarnation });

/** By a coord. The envelope is the signed bytes as they came; it is judged at `ledger_revision`. */
export const DeployEntry = Header.extend({
  envelope: z.string(),
  engine: z.string(),
  ledger_revision: z.int(),
  submitted_by: z.array(Principal),
});

/** By a coord. Its sequence is the term. */
export const AssignEntry = Header.extend({
  node: Address,
  reason: z.string(),
});

/** Why a job is planned again: its attempt was lost, it failed and has retries left, its pack was void. */
export const PlanReason = z.enum(['lost', 'retry', 'void', 'ready']);
export type PlanReason = z.infer<typeof PlanReason>;

/** A job at its first sight: all the fold must know of it without running the script. */
export const NewJob = z.object({
  n: JobNumber,
  kind: JobKind,
  name: z.string(),
  /** SHA-256 of the spec's canonical bytes, lower-case hex. */
  digest: z.string(),
  line: z.int(),
  retries: z.int().default(0),
  backoff_ms: z.int().default(0),
  idempotent: z.boolean().default(false),
  after: z.array(JobNumber).default([]),
  delay_ms: z.int().optional(),
});
export type NewJob = z.infer<typeof NewJob>;

/** An attempt given to a pack, or, with `pack` null, the reason why no node can have it now. */
export const Placement = z.object({
  n: JobNumber,
  attempt: z.int().min(1),
  pack: PackId.nullable(),
  unplaced: z.string().nullable().default(null),
  because: PlanReason.nullable().default(null),
});
export type Placement = z.infer<typeof Placement>;

/** A pack with the new jobs in it, which get their first attempt by it; all others are placed one by one. */
export const PlannedPack = z.object({
  pack: PackId,
  class: JobKind,
  node: Address,
  jobs: z.array(JobNumber).default([]),
});
export type PlannedPack = z.infer<typeof PlannedPack>;

/** A job the supervisor gives up: its attempt is lost for good, or what it waits for has failed. */
export const Gone = z.object({
  n: JobNumber,
  attempt: z.int().min(1),
  outcome: z.enum(['failed', 'cancelled']),
  error: ErrorRecord,
});
export type Gone = z.infer<typeof Gone>;

/** By the assignee: new jobs, attempts given to packs, jobs given up. */
export const PlanEntry = Header.extend({
  term: z.int(),
  jobs: z.array(NewJob).default([]),
  placed: z.array(Placement).default([]),
  packs: z.array(PlannedPack).default([]),
  gone: z.array(Gone).default([]),
});
export type PlanEntry = z.infer<typeof PlanEntry>;

/** By the assignee: a question of the script that the log cannot answer, with its answer. */
export const CallEntry = Header.extend({
  term: z.int(),
  /** Ordinal of the recorded call in the script's run, from 0. */
  k: z.int().min(0),
  name: z.string(),
  args: TypedJson,
  answer: TypedJson.nullable(),
  error: ErrorRecord.nullable(),
  /** For a write to the caller's bucket: the revision it replaces, so that it can be done after a crash. */
  revision: z.int().nullable().default(null),
});

/** By the assignee: an absolute deadline in bus time, epoch ms, of the k-th recorded call. */
export const TimerEntry = Header.extend({ term: z.int(), k: z.int().min(0), due_ms: z.int() });

export const EndStatus = z.enum(['completed', 'failed', 'cancelled', 'refused']);
export type EndStatus = z.infer<typeof EndStatus>;

/** By the assignee, once. `value` is the flow's value as JSON (typed as args). */
export const EndEntry = Header.extend({
  term: z.int(),
  status: EndStatus,
  value: z.unknown(),
  /** As in a job's result: the value is a blob of the context. */
  value_ref: BlobRef.optional(),
  error: ErrorRecord.nullable(),
});

/** By a coord, from a verified signed command; for the whole flow when `job` is null. */
export const CommandEntry = Header.extend({
  verb: CommandVerb,
  job: JobNumber.nullable(),
  reason: z.string().nullable(),
  by: z.array(Principal),
  envelope: z.string(),
  /** SHA-256 of the signed payload, hex: the same command, however it is wrapped. */
  digest: z.string().default(''),
});

export const DECISIONS = {
  deploy: DeployEntry,
  assign: AssignEntry,
  plan: PlanEntry,
  call: CallEntry,
  timer: TimerEntry,
  end: EndEntry,
  cancel: CommandEntry,
  retry: CommandEntry,
  pause: CommandEntry,
  resume: CommandEntry,
} as const;
export type DecisionKind = keyof typeof DECISIONS;
export const isDecisionKind = (kind: string): kind is DecisionKind =>
  Object.hasOwn(DECISIONS, kind);

/** On `claim.<pack>`: the runner's claim with the jobs it begins at once, or the assignee's void. */
export const ClaimEntry = z.discriminatedUnion('type', [
  Header.extend({ type: z.literal('claim'), runner: z.string(), begun: z.array(Begun) }),
  Header.extend({ type: z.literal('void'), term: z.int(), reason: z.string() }),
]);
export type ClaimEntry = z.infer<typeof ClaimEntry>;

/** On `run`: what a runner did. */
export const RunEntry = Header.extend({
  runner: z.string(),
  begun: z.array(Begun).default([]),
  results: z.array(Result).default([]),
});
export type RunEntry = z.infer<typeof RunEntry>;

export const FlowStatus = z.enum([
  'received',
  'placing',
  'unplaced',
  'running',
  'paused',
  'cancelling',
  'completed',
  'failed',
  'cancelled',
  'refused',
]);
export type FlowStatus = z.infer<typeof FlowStatus>;
const NullableTime = z.iso.datetime().nullable();

/** A value that is a blob: shown by its reference until it is fetched, and why where it cannot be. */
const LargeValue = { value_ref: BlobRef.optional(), value_error: ErrorRecord.optional() };

/** On `hb.refused.<ctx>.<envelope digest>`: a message that never became a flow, or a refused command. */
export const Refusal = z.object({
  v: z.literal(1),
  context: z.string(),
  /** Digest of the message's bytes, base32 like a flow id: the last token of its subject. */
  envelope: z.string(),
  /** The flow id its payload would have had; null when the payload could not be read. */
  flow: FlowId.nullable(),
  error: ErrorRecord,
  signers: z.array(z.string()).default([]),
});
export type Refusal = z.infer<typeof Refusal>;

/** A refusal as people see it; `at`: when the bus took the message. */
export const ShownRefusal = Refusal.extend({ at: z.iso.datetime() });
export type ShownRefusal = z.infer<typeof ShownRefusal>;

/** A job as people see it (INTERFACES 2). */
export const Job = z.object({
  job: z.string(),
  kind: JobKind,
  name: z.string(),
  status: JobStatus,
  /** Why no node has it yet. */
  unplaced: z.string().optional(),
  node: AddressText.nullable(),
  attempt: z.int(),
  value: z.unknown(),
  ...LargeValue,
  error: ErrorRecord.nullable(),
  created_at: NullableTime,
  started_at: NullableTime,
  ended_at: NullableTime,
  /** What its last attempt with a result used; null where nobody could tell. */
  usage: Usage.nullable(),
});
export type Job = z.infer<typeof Job>;

/** A flow as people see it (INTERFACES 2). */
export const Flow = z.object({
  flow: FlowId,
  context: z.string(),
  status: FlowStatus,
  /** Why no node has it yet. */
  unplaced: z.string().nullable().optional(),
  value: z.unknown(),
  ...LargeValue,
  error: ErrorRecord.nullable(),
  submitted_by: z.array(Principal),
  supervisor: AddressText.nullable(),
  created_at: NullableTime,
  ended_at: NullableTime,
  jobs: z.array(Job),
  /** Messages with its payload, or about it, that were refused. */
  refusals: z.array(ShownRefusal).optional(),
});
export type Flow = z.infer<typeof Flow>;

/** On `hb.assign.<addr>`: wakes a supervisor; the log says what it is woken for. */
export const AssignWake = z.object({
  v: z.literal(1),
  context: z.string(),
  flow: FlowId,
  term: z.int(),
  /** Nobody has had it before: it does not wait behind what comes back. */
  fresh: z.boolean().optional(),
});
export type AssignWake = z.infer<typeof AssignWake>;
