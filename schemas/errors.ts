/**
 * The one table of stable error codes, and the error that carries them.
 *
 * A failure keeps its root cause on the whole way to the user: code, message, the actor and the node it
 * happened in, and the failure below it. Decisions are made on `code`, never on text. Third-party errors
 * are mapped at the edge that meets them (`bus/`, `sal/exec.ts`).
 */
import { z } from 'zod';
import { addressText } from './ids.ts';

type Kind = 'terminal' | 'transient';
type Entry = { kind: Kind; means: string; fix: string };

/**
 * code -> may a retry help, what has happened, what the reader can do (docs/errors.md is made of it).
 * The names are public (INTERFACES 4) and never change their meaning.
 */
export const ERROR_CODES = {
  bad_envelope: {
    kind: 'terminal',
    means: 'the message is no envelope that can be read',
    fix: 'Seal it with `herobus deploy --out`, or see docs/wire.md for its form.',
  },
  bad_signature: {
    kind: 'terminal',
    means: 'a signature does not fit the bytes; one that is wrong spoils the whole message',
    fix: 'Sign the very bytes that are sent; a change after signing needs new signatures.',
  },
  unknown_signer: {
    kind: 'terminal',
    means: 'no signer is registered with this bus',
    fix: 'Register the key: any `herobus` command that connects does it.',
  },
  policy_unmet: {
    kind: 'terminal',
    means: 'it has fewer signatures, or others, than the context asks for',
    fix: 'See who must sign with `herobus context show`; add them with `herobus sign`.',
  },
  context_mismatch: {
    kind: 'terminal',
    means: 'the payload names another context than the subject it came on',
    fix: 'Publish it on the context it was signed for.',
  },
  not_executor: {
    kind: 'terminal',
    means: 'no signer is an executor of the context',
    fix: 'Ask one of its admins: `herobus context grant <context> <U…> executor`.',
  },
  expired: {
    kind: 'terminal',
    means: 'it came after its time',
    fix: 'Seal it anew; a longer `--expires` gives more time, 24 h at most.',
  },
  not_yet_valid: {
    kind: 'terminal',
    means: 'it was issued in the future',
    fix: 'Set the clock of the machine that signed it.',
  },
  too_large: {
    kind: 'terminal',
    means: 'it is larger than may be sent or kept',
    fix: 'Send less, or send files instead of text in the script.',
  },
  duplicate_key: {
    kind: 'terminal',
    means: 'its JSON has one key twice',
    fix: 'Write each key once.',
  },
  script_syntax: {
    kind: 'terminal',
    means: 'the script does not parse',
    fix: 'Mend it at the line and column that are named; `herobus script check` tries it again.',
  },
  script_failed: {
    kind: 'terminal',
    means: 'the script threw, or did what cannot be done',
    fix: 'Look at the line; catch what may fail with `try`.',
  },
  script_limit: {
    kind: 'terminal',
    means: 'the script went over one of its limits',
    fix: 'Do less in the script and more in its jobs; the limit is named with its figure.',
  },
  capability_not_needed: {
    kind: 'terminal',
    means: 'more was granted than anything in it needs',
    fix: 'Grant less.',
  },
  capability_not_offered: {
    kind: 'terminal',
    means: 'no node offers what is needed',
    fix: 'Start a node that does, as with `herobus up --runners`.',
  },
  capability_not_granted: {
    kind: 'terminal',
    means: 'the script needs what its signer did not grant',
    fix: 'Deploy it again with `--grant`.',
  },
  capability_not_allowed: {
    kind: 'terminal',
    means: 'the script needs what its context does not allow',
    fix: 'Ask an admin of the context to allow it.',
  },
  unplaced: {
    kind: 'transient',
    means: 'no node fits at present',
    fix: 'It begins as soon as one fits; the reason names what each node lacks.',
  },
  replay_mismatch: {
    kind: 'terminal',
    means: 'run again, the script asked for something else than the log holds',
    fix: 'It is a fault of herobus, or the log was tampered with: please report it with the two values.',
  },
  outcome_unknown: {
    kind: 'terminal',
    means: 'the job was begun, and its runner was lost before it reported',
    fix: 'See how far it came, then `herobus retry`; mark jobs `idempotent: true` that may run twice.',
  },
  job_failed: {
    kind: 'terminal',
    means: 'the job ran and failed',
    fix: 'Look at the cause below it: exit code, signal, the end of stderr.',
  },
  timeout: {
    kind: 'terminal',
    means: 'the job did not end in its time and was ended',
    fix: 'Give it a longer `timeout`, or less to do.',
  },
  cancelled: {
    kind: 'terminal',
    means: "somebody, the script or the flow's end called it off",
    fix: 'The message says who and why.',
  },
  forged_job: {
    kind: 'terminal',
    means: 'a job came that the signed script does not ask for',
    fix: 'Find out who may write to the bus; nothing of it was run.',
  },
  unverifiable: {
    kind: 'transient',
    means: 'it cannot be checked at present',
    fix: 'It is tried again; see whether the ledger runs with `herobus nodes`.',
  },
  quota: {
    kind: 'terminal',
    means: 'the context has used up what it may use',
    fix: 'Wait, clean up, or ask an admin for more.',
  },
  kv_conflict: {
    kind: 'terminal',
    means: 'somebody else wrote the key in between',
    fix: 'Read it again, then write.',
  },
  unreachable: {
    kind: 'transient',
    means: 'nobody answers on the bus',
    fix: 'See that `herobus up` runs and that --server names it.',
  },
  fence_lost: {
    kind: 'transient',
    means: 'another decision was stored first',
    fix: 'It is looked at again by itself.',
  },
  not_found: {
    kind: 'terminal',
    means: 'there is no such thing',
    fix: 'See what there is: `herobus flows`, `herobus nodes`, `herobus kv list`.',
  },
  not_allowed: {
    kind: 'terminal',
    means: 'you may not do this',
    fix: 'Ask an admin of the context, or of the ledger.',
  },
  bad_request: {
    kind: 'terminal',
    means: 'the request has not the form it must have',
    fix: 'See docs/schemas for the form.',
  },
  bad_job: {
    kind: 'terminal',
    means: 'the script asks for a job that cannot be',
    fix: 'Mend the key that is named.',
  },
  missing_tool: {
    kind: 'terminal',
    means: 'the node lacks a program it needs for this',
    fix: 'Install it there, or name another node.',
  },
  log_regressed: {
    kind: 'terminal',
    means:
      'a stream ends before what was stored, or holds something else there: damaged, or from a backup',
    fix: 'Put a copy of the store in place that holds the sequences named, or accept the loss: `herobus up --accept-loss`. Until then nothing is decided.',
  },
  usage: {
    kind: 'terminal',
    means: 'the command was called in a wrong way',
    fix: 'See its `--help`.',
  },
  internal: {
    kind: 'terminal',
    means: 'a fault of herobus itself',
    fix: 'Please report it.',
  },
} as const satisfies Record<string, Entry>;

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

/** As people and programs are shown it: its nodes as addresses are shown everywhere. */
export function shownError(error: ErrorRecord): ErrorRecord {
  const { node, cause } = error;
  return {
    ...error,
    node: node === null ? null : addressText(node),
    cause: cause === null ? null : shownError(cause),
  };
}

/** The innermost cause: what actually went wrong. */
export function rootCause(error: ErrorRecord): ErrorRecord {
  return error.cause === null ? error : rootCause(error.cause);
}
