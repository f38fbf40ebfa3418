/**
 * The one table of stable error codes, and the error that carries them.
 *
 * A failure keeps its root cause on the whole way to the user: code, message, the actor and the node it
 * happened in, and the failure below it. Decisions are made on `code`, never on text. Third-party errors
 * are mapped at the edge that meets them (`bus/`, `sal/exec.ts`).
 */
import { z } from 'zod';

type Kind = 'terminal' | 'transient';

/** code -> may a retry help? The names are public (INTERFACES 4) and never change their meaning. */
export const ERROR_CODES = {
  bad_envelope: 'terminal',
  bad_signature: 'terminal',
  unknown_signer: 'terminal',
  policy_unmet: 'terminal',
  context_mismatch: 'terminal',
  not_executor: 'terminal',
  expired: 'terminal',
  not_yet_valid: 'terminal',
  too_large: 'terminal',
  duplicate_key: 'terminal',
  script_syntax: 'terminal',
  script_failed: 'terminal',
  script_limit: 'terminal',
  capability_not_needed: 'terminal',
  capability_not_offered: 'terminal',
  capability_not_granted: 'terminal',
  capability_not_allowed: 'terminal',
  unplaced: 'transient',
  replay_mismatch: 'terminal',
  outcome_unknown: 'terminal',
  job_failed: 'terminal',
  timeout: 'terminal',
  cancelled: 'terminal',
  forged_job: 'terminal',
  unverifiable: 'transient',
  quota: 'terminal',
  kv_conflict: 'terminal',
  unreachable: 'transient',
  fence_lost: 'transient',
  not_found: 'terminal',
  not_allowed: 'terminal',
  bad_request: 'terminal',
  bad_job: 'terminal',
  missing_tool: 'terminal',
  log_regressed: 'terminal',
  usage: 'terminal',
  internal: 'terminal',
} as const satisfies Record<string, Kind>;

export type ErrorCode = keyof typeof ERROR_CODES;

/** An error as data: in log entries, replies and the flow object. Unknown codes are kept as they are. */
export type ErrorRecord = {
  code: string;
  message: string;
  actor: string | null;
  node: string | null;
  cause: ErrorRecord | null;
};

export const ErrorRecord: z.ZodType<ErrorRecord> = z.lazy(() =>
  z.object({
    code: z.string(),
    message: z.string(),
    actor: z.string().nullable().default(null),
    node: z.string().nullable().default(null),
    cause: ErrorRecord.nullable().default(null),
  }),
) as z.ZodType<ErrorRecord>;

export type ErrorWhere = { actor?: string; node?: string };

/** The only error that crosses a file's boundary on purpose. `fix` says what the reader can do. */
export class HeroError extends Error {
  override readonly name = 'HeroError';
  readonly code: ErrorCode;
  readonly fix: string | undefined;
  readonly where: ErrorWhere;

  constructor(
    code: ErrorCode,
    message: string,
    options: { fix?: string; cause?: unknown; where?: ErrorWhere } = {},
  ) {
    super(message, options.cause === undefined ? undefined : { cause: options.cause });
    this.code = code;
    this.fix = options.fix;
    this.where = options.where ?? {};
  }
}

/** The one normaliser of what a `catch` caught. */
export function ensureError(thrown: unknown): Error {
  return thrown instanceof Error ? thrown : new Error(String(thrown));
}

/** How deep a chain of causes is kept: enough for every layer of ours, bounded for everybody else's. */
const CAUSE_DEPTH_MAX = 8;
const MESSAGE_LENGTH_MAX = 4096;

/** An error as a record; `where` fills in actor and node where the error does not know them. */
export function errorRecord(thrown: unknown, where: ErrorWhere = {}, depth = 0): ErrorRecord {
  const error = ensureError(thrown);
  const known = error instanceof HeroError;
  return {
    code: known ? error.code : 'internal',
    message: error.message.slice(0, MESSAGE_LENGTH_MAX),
    actor: (known ? error.where.actor : undefined) ?? where.actor ?? null,
    node: (known ? error.where.node : undefined) ?? where.node ?? null,
    cause:
      error.cause === undefined || depth >= CAUSE_DEPTH_MAX
        ? null
        : errorRecord(error.cause, {}, depth + 1),
  };
}

/** A record with the code given, for places that never threw. */
export function failure(
  code: ErrorCode,
  message: string,
  where: ErrorWhere = {},
  cause: ErrorRecord | null = null,
): ErrorRecord {
  return {
    code,
    message: message.slice(0, MESSAGE_LENGTH_MAX),
    actor: where.actor ?? null,
    node: where.node ?? null,
    cause,
  };
}

/** The innermost cause: what actually went wrong. */
export function rootCause(error: ErrorRecord): ErrorRecord {
  return error.cause === null ? error : rootCause(error.cause);
}
