/** The ledger's records and its request/reply messages (`hb.ledger.<verb>`). */
import { z } from 'zod';
import { Capability } from './deployment.ts';
import { ErrorRecord } from './errors.ts';
import { FlowStatus, Refusal } from './flow.ts';
import { Address, ContextName, FlowId, JobNumber, Principal } from './ids.ts';
import { JobKind } from './job.ts';

export const REGISTER_PAYLOAD_TYPE = 'application/vnd.herobus.register+json';
export const LEDGER_PAYLOAD_TYPE = 'application/vnd.herobus.ledger+json';

export const PrincipalKind = z.enum(['user', 'node']);
export type PrincipalKind = z.infer<typeof PrincipalKind>;
export const PrincipalRole = z.enum(['coord', 'admin']);
export type PrincipalRole = z.infer<typeof PrincipalRole>;
export const PrincipalStatus = z.enum(['pending', 'registered', 'revoked']);

/** A signer's last change of one record: an older one of his never counts again, the same one is answered again. */
export const ChangeMark = z.object({ id: z.string(), issued_at: z.iso.datetime() });
export type ChangeMark = z.infer<typeof ChangeMark>;

/** Bucket `ledger_principals`, key `<kind>_<U…>`: one key may be a user and a node. */
export const PrincipalRecord = z.object({
  v: z.literal(1),
  principal: Principal,
  kind: PrincipalKind,
  name: z.string(),
  address: Address,
  status: PrincipalStatus,
  /** `coord` may decide for the control plane. */
  roles: z.array(PrincipalRole).default([]),
  created_ms: z.int(),
  by: z.string(),
  /** For a node: by whose order it takes no flows and packs. */
  drain: z
    .object({ by: Principal, at_ms: z.int(), reason: z.string().nullable() })
    .nullable()
    .optional(),
  marks: z.record(z.string(), ChangeMark).optional(),
  /** The change that made the record what it is; written with it, then copied to `ledger_grants`. */
  last: z.lazy(() => ChangeRecord).optional(),
});
export type PrincipalRecord = z.infer<typeof PrincipalRecord>;

/** Who must sign a deployment: `m` executors, among them all of `required`. */
export const SigningPolicy = z.object({
  m: z.int().min(1).max(16).default(1),
  required: z.array(Principal).default([]),
});
export type SigningPolicy = z.infer<typeof SigningPolicy>;

/** What a context may have at most; null: as much as the machines hold. */
const Limit = z.int().min(1).max(1_000_000_000).nullable();
export const Quotas = z.object({
  /** Flows that have not ended. A deployment beyond it is refused. */
  open_flows: Limit,
  /** Deployments taken within a minute. One beyond it is refused. */
  deploys_per_minute: Limit,
  /** Jobs one flow may spawn. It fails at the next one. */
  jobs_per_flow: Limit,
  /** Jobs queued or running on the account of one supervisor. Scripts wait at their spawns meanwhile. */
  open_jobs: Limit,
});
export type Quotas = z.infer<typeof Quotas>;
export const QuotaChange = Quotas.partial();
export type QuotaChange = z.infer<typeof QuotaChange>;
export const NO_QUOTAS: Quotas = {
  open_flows: null,
  deploys_per_minute: null,
  jobs_per_flow: null,
  open_jobs: null,
};

/** Bucket `ledger_contexts`, key = the context's name. */
export const ContextRecord = z.object({
  v: z.literal(1),
  context: ContextName,
  admins: z.array(Principal),
  executors: z.array(Principal),
  readers: z.array(Principal),
  policy: SigningPolicy,
  allowed: z.array(Capability),
  quotas: Quotas.default(NO_QUOTAS),
  created_ms: z.int(),
  marks: z.record(z.string(), ChangeMark).optional(),
  last: z.lazy(() => ChangeRecord).optional(),
});
export type ContextRecord = z.infer<typeof ContextRecord>;

export const ContextRole = z.enum(['admin', 'executor', 'reader']);
export type ContextRole = z.infer<typeof ContextRole>;

export const ChallengeRequest = z.object({ principal: Principal });
export const Challenge = z.object({ nonce: z.string(), expires_at: z.iso.datetime() });

export const RegisterPayload = z.object({
  v: z.literal(1),
  principal: Principal,
  nonce: z.string(),
  kind: PrincipalKind,
  name: z.string().max(128),
  token: z.string().nullable().default(null),
});
export type RegisterPayload = z.infer<typeof RegisterPayload>;

export const RegisterReply = z.discriminatedUnion('status', [
  z.object({ status: z.literal('registered'), jwt: z.string(), address: Address }),
  z.object({ status: z.literal('pending') }),
]);
export type RegisterReply = z.infer<typeof RegisterReply>;

/** How many flows one follower can be of. */
export const FLOWS_FOLLOWED_MAX = 100;

/** A pull consumer on the flow log for the caller, gone after 60 s without a pull. */
export const FollowRequest = z.object({
  context: ContextName,
  flow: FlowId.nullable().default(null),
  /** Of the log only: these flows together, instead of one or of all. */
  flows: z.array(FlowId).min(1).max(FLOWS_FOLLOWED_MAX).optional(),
  from: z.int().min(1).nullable().default(null),
  /** The log (default), what its jobs print, or what the context refused. */
  of: z.enum(['log', 'output', 'refused']).optional(),
  /** Of output only: one job's, or the script's own (`main`). */
  job: z
    .union([JobNumber, z.literal('main')])
    .nullable()
    .optional(),
  /** What was stored from then on, epoch ms; `from` counts before it. */
  since: z.int().min(0).max(8.64e15).nullable().optional(),
});
export type FollowRequest = z.infer<typeof FollowRequest>;

/** What the log of one flow holds from a sequence on: for who reads it once, or its beginning. */
export const ReadRequest = z.object({
  context: ContextName,
  flow: FlowId,
  from: z.int().min(1).default(1),
  /** Leaves out claims and facts. */
  only: z.literal('decisions').optional(),
});
export type ReadRequest = z.infer<typeof ReadRequest>;

/** Entries as the stream stored them. With `more` the log goes on: follow it from there. */
export const LogPage = z.object({
  entries: z.array(
    z.object({
      subject: z.string(),
      seq: z.int(),
      /** The stream's timestamp, epoch ms. */
      at: z.int(),
      data: z.string(),
      /** The header `hb-entry`, by which a writer knows its own entry again. */
      id: z.string().nullable(),
      /** The header `hb-sig`, by which the writer signed it. */
      sig: z.string().nullable(),
    }),
  ),
  more: z.boolean(),
});
export type LogPage = z.infer<typeof LogPage>;

/** A node's own queue: its wake-ups, or the packs of one class of one context. */
export const QueueRequest = z.discriminatedUnion('queue', [
  z.object({ queue: z.literal('assign') }),
  z.object({ queue: z.literal('jobs'), context: ContextName, class: JobKind }),
]);
export type QueueRequest = z.infer<typeof QueueRequest>;

export const ConsumerReply = z.object({ stream: z.string(), consumer: z.string() });
export type ConsumerReply = z.infer<typeof ConsumerReply>;

export const TOKEN_USES_MAX = 1000;
export const TOKEN_TTL_MAX_MS = 365 * 24 * 3600 * 1000;

/** A change of the ledger, signed by who wants it (`hb.ledger.change`, a DSSE envelope). */
export const LedgerChange = z.discriminatedUnion('change', [
  z.object({ change: z.literal('context_create'), context: ContextName }),
  z.object({
    change: z.literal('context_grant'),
    context: ContextName,
    principal: Principal,
    role: ContextRole,
  }),
  z.object({
    change: z.literal('context_revoke'),
    context: ContextName,
    principal: Principal,
    role: ContextRole,
  }),
  z.object({ change: z.literal('context_policy'), context: ContextName, policy: SigningPolicy }),
  /** Those that are named; the others stay. By an admin of the ledger: it is the machines' owner who shares. */
  z.object({
    change: z.literal('context_quota'),
    context: ContextName,
    quotas: QuotaChange,
  }),
  z.object({
    change: z.literal('context_allow'),
    context: ContextName,
    allowed: z.array(Capability).max(256),
  }),
  z.object({
    change: z.literal('principal_approve'),
    principal: Principal,
    kind: PrincipalKind,
  }),
  z.object({ change: z.literal('principal_revoke'), principal: Principal, kind: PrincipalKind }),
  z.object({ change: z.literal('node_drain'), principal: Principal, kind: z.literal('node') }),
  z.object({ change: z.literal('node_undrain'), principal: Principal, kind: z.literal('node') }),
  z.object({
    change: z.literal('token_create'),
    /** SHA-256 of the token, hex: the token itself is its maker's to give away. */
    hash: z.string().regex(/^[0-9a-f]{64}$/),
    uses: z.int().min(1).max(TOKEN_USES_MAX),
    ttl_ms: z.int().min(1).max(TOKEN_TTL_MAX_MS),
  }),
]);
export type LedgerChange = z.infer<typeof LedgerChange>;

export const LedgerChangePayload = z.object({
  v: z.literal(1),
  change: LedgerChange,
  reason: z.string().max(1024).nullable().default(null),
  nonce: z.string().min(8).max(128),
  issued_at: z.iso.datetime(),
});
export type LedgerChangePayload = z.infer<typeof LedgerChangePayload>;

/** Bucket `ledger_grants`: who changed what, when and why; `id` is the digest of the signed payload. */
export const ChangeRecord = z.object({
  v: z.literal(1),
  id: z.string(),
  by: Principal,
  at_ms: z.int(),
  reason: z.string().nullable(),
  change: LedgerChange,
});
export type ChangeRecord = z.infer<typeof ChangeRecord>;

/** Bucket `ledger_tokens`, key = the token's SHA-256: who may still come in with it, and who did. */
export const TokenRecord = z.object({
  v: z.literal(1),
  hash: z.string(),
  by: Principal,
  uses: z.int(),
  used: z.array(z.object({ principal: Principal, kind: PrincipalKind, at_ms: z.int() })),
  created_ms: z.int(),
  expires_ms: z.int(),
  marks: z.record(z.string(), ChangeMark).optional(),
  last: ChangeRecord.optional(),
});
export type TokenRecord = z.infer<typeof TokenRecord>;

/** Bucket `ledger_meta`, key `admission`: does every key that proves itself get in? */
export const AdmissionRecord = z.object({ v: z.literal(1), open: z.boolean() });

/** New credentials for the caller, before the old ones end. */
export const RenewRequest = z.object({ kind: PrincipalKind });
export const RenewReply = z.object({ jwt: z.string() });

/** All that a node judges by: the contexts the caller may see, and who may decide for the control plane. */
export const ContextsReply = z.object({
  contexts: z.array(ContextRecord),
  coords: z.array(Address),
  revision: z.int(),
});
export type ContextsReply = z.infer<typeof ContextsReply>;
export const ContextRequest = z.object({ context: ContextName });

/** Long lists come in pages: ask again after the last key until `next` is null. */
export const PageRequest = z.object({
  after: z.string().max(128).nullable().default(null),
  limit: z.int().min(1).max(1000).default(500),
});
export type PageRequest = z.infer<typeof PageRequest>;
export const PrincipalsReply = z.object({
  principals: z.array(PrincipalRecord),
  next: z.string().nullable(),
});
export type PrincipalsReply = z.infer<typeof PrincipalsReply>;

export const LedgerError = z.object({
  code: z.string(),
  message: z.string(),
  fix: z.string().nullable().default(null),
  cause: ErrorRecord.nullable().optional(),
});

/** Every reply of the ledger is one of the two. */
export const LedgerReply = z.union([
  z.object({ ok: z.unknown() }),
  z.object({ error: LedgerError }),
]);

/** What the control plane tells of a context's flows and refusals. */
export const FlowsRequest = z.object({
  context: ContextName,
  after: FlowId.nullable().default(null),
  limit: z.int().min(1).max(1000).default(100),
});
export type FlowsRequest = z.infer<typeof FlowsRequest>;

const Time = z.iso.datetime().nullable();
export const FlowSummary = z.object({
  flow: FlowId,
  context: z.string(),
  /** Sequence of the first entry of its log. */
  seq: z.int(),
  status: FlowStatus,
  submitted_by: z.array(z.string()),
  supervisor: Address.nullable(),
  created_at: Time,
  ended_at: Time,
  error: ErrorRecord.nullable(),
  /** Why no node has it, where none has. */
  unplaced: z.string().nullable(),
});
export type FlowSummary = z.infer<typeof FlowSummary>;
export const FlowsReply = z.object({ flows: z.array(FlowSummary), next: FlowId.nullable() });
export type FlowsReply = z.infer<typeof FlowsReply>;

export const RefusalsRequest = z.object({
  context: ContextName,
  id: z.string().nullable().default(null),
});
export type RefusalsRequest = z.infer<typeof RefusalsRequest>;
/** `at`: when the stream took it, epoch ms. */
export const RefusalsReply = z.object({ refusals: z.array(Refusal.extend({ at: z.number() })) });
export type RefusalsReply = z.infer<typeof RefusalsReply>;
