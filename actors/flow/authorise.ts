/**
 * May these signers have this done? Pure judgement over a payload whose signatures were verified before.
 *
 * Used alike by the coord (before a flow exists) and by the supervisor (for itself, from the log). Times
 * are the stream's, never a local clock: the moment the bus took the message decides whether it was late.
 */
import { Command } from '../../schemas/command.ts';
import { DEPLOY_LIFETIME_MAX_MS, Deployment } from '../../schemas/deployment.ts';
import { type ErrorCode, type ErrorRecord, failure } from '../../schemas/errors.ts';
import type { Principal } from '../../schemas/ids.ts';
import type { ContextRecord } from '../../schemas/ledger.ts';
import { z } from 'zod';

/** How far a client's clock may run ahead of the bus before its message is called not yet valid. */
export const CLOCK_TOLERANCE_MS = 120_000;

export type Evidence = {
  /** The payload as parsed from exactly the signed bytes. */
  payload: unknown;
  /** Context named by the subject the message came on. */
  subjectContext: string;
  /** Principals whose signature over the payload is valid, each once. */
  signers: Principal[];
  /** When the stream took the message, epoch ms. */
  atMs: number;
  /** The context as the ledger knows it; undefined: there is none of that name. */
  context: ContextRecord | undefined;
  isRegistered: (principal: Principal) => boolean;
};

export type Verdict<T> = { ok: T } | { refused: ErrorRecord };

const refuse = (code: ErrorCode, message: string): { refused: ErrorRecord } => ({
  refused: failure(code, message),
});

export function authoriseDeployment(evidence: Evidence): Verdict<Deployment> {
  const parsed = Deployment.safeParse(evidence.payload);
  if (!parsed.success) {
    return refuse('bad_envelope', `the payload is no deployment: ${z.prettifyError(parsed.error)}`);
  }
  const refused =
    refusePlaceAndTime(parsed.data, evidence) ?? refuseSigners(evidence, (c) => c.executors);
  return refused ?? { ok: parsed.data };
}

/** Commands need one executor or admin of the context; its signing policy binds deployments only. */
export function authoriseCommand(evidence: Evidence): Verdict<Command> {
  const parsed = Command.safeParse(evidence.payload);
  if (!parsed.success) {
    return refuse('bad_envelope', `the payload is no command: ${z.prettifyError(parsed.error)}`);
  }
  const refused =
    refusePlaceAndTime(parsed.data, evidence) ??
    refuseSigners(
      evidence.context === undefined
        ? evidence
        : { ...evidence, context: { ...evidence.context, policy: { m: 1, required: [] } } },
      (c) => [...c.executors, ...c.admins],
    );
  return refused ?? { ok: parsed.data };
}

function refusePlaceAndTime(
  payload: { context: string; issued_at: string; expires_at: string },
  { subjectContext, atMs }: Evidence,
): { refused: ErrorRecord } | undefined {
  if (payload.context !== subjectContext) {
    return refuse(
      'context_mismatch',
      `signed for context ${payload.context}, published to ${subjectContext}`,
    );
  }
  const issuedMs = Date.parse(payload.issued_at);
  const expiresMs = Date.parse(payload.expires_at);
  if (!(expiresMs > issuedMs) || expiresMs - issuedMs > DEPLOY_LIFETIME_MAX_MS) {
    return refuse(
      'bad_envelope',
      `expires_at must be after issued_at and at most 24 h later (${payload.issued_at} to ${payload.expires_at})`,
    );
  }
  if (atMs >= expiresMs) {
    return refuse(
      'expired',
      `expired at ${payload.expires_at}; the bus took it at ${new Date(atMs).toISOString()}`,
    );
  }
  if (issuedMs > atMs + CLOCK_TOLERANCE_MS) {
    const aheadS = Math.round((issuedMs - atMs) / 1000);
    return refuse(
      'not_yet_valid',
      `issued ${aheadS} s in the future: your clock is ${aheadS} s ahead of the bus`,
    );
  }
  return undefined;
}

function refuseSigners(
  { signers, context, subjectContext, isRegistered }: Evidence,
  entitled: (context: ContextRecord) => Principal[],
): { refused: ErrorRecord } | undefined {
  if (signers.length === 0) return refuse('policy_unmet', 'it carries no signature');
  const known = signers.filter(isRegistered);
  if (known.length === 0) {
    return refuse('unknown_signer', `no signer is registered: ${signers.join(', ')}`);
  }
  if (context === undefined) {
    return refuse(
      'not_executor',
      `there is no context ${subjectContext}, or you have no part in it`,
    );
  }
  const rightful = known.filter((signer) => entitled(context).includes(signer));
  if (rightful.length === 0) {
    return refuse(
      'not_executor',
      `no signer is an executor of ${subjectContext}: ${known.join(', ')}`,
    );
  }
  const { m, required } = context.policy;
  const missing = required.filter((signer) => !rightful.includes(signer));
  if (rightful.length < m || missing.length > 0) {
    const lacking = missing.length > 0 ? `; missing: ${missing.join(', ')}` : '';
    return refuse(
      'policy_unmet',
      `${subjectContext} asks for ${m} signatures of its executors, this carries ${rightful.length}${lacking}`,
    );
  }
  return undefined;
}

/** Does a granted or offered list cover a capability? `family:*` and bare `family` cover the family. */
export function covers(list: readonly string[], capability: string): boolean {
  const family = capability.split(':')[0];
  return list.some((each) => each === capability || each === `${family}:*` || each === family);
}
