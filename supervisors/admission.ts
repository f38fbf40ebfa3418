/**
 * Admission: before a script runs here, this node judges for itself what the coord has judged.
 *
 * The envelope comes from the log as the signed bytes; signatures and policy are verified again, so that a
 * coord alone cannot invent a deployment. Parsing and limits are the script's own first step (`derive`).
 */
import { open, verifySignatures } from '../bus/envelope.ts';
import { authoriseDeployment } from '../actors/flow/authorise.ts';
import { ENGINE_VERSION, type ScriptEnv } from '../actors/flow/derive.ts';
import type { FlowState } from '../actors/flow/fold.ts';
import { type ErrorRecord, errorRecord, failure, HeroError } from '../schemas/errors.ts';
import type { FlowRef } from '../schemas/ids.ts';
import { type JsonValue, parseStrictBytes, stringifyTyped } from '../schemas/json.ts';
import type { ContextRecord } from '../schemas/ledger.ts';

export type Admitted = { env: Omit<ScriptEnv, 'sha256'>; selector: string | null };

/** Judges the deployment in the log; a fault of its own is returned, not thrown. */
export function admit(
  ref: FlowRef,
  deploy: NonNullable<FlowState['deploy']>,
  context: ContextRecord,
): Admitted | { refused: ErrorRecord } {
  if (deploy.engine !== ENGINE_VERSION) {
    const message = `the flow was begun with ${deploy.engine}, this node runs ${ENGINE_VERSION}`;
    return { refused: failure('unverifiable', message, { actor: 'supervisor' }) };
  }
  try {
    const opened = open(new TextEncoder().encode(deploy.envelope));
    if (opened.flow !== ref.flow) {
      throw new HeroError('bad_envelope', `the envelope in the log is that of flow ${opened.flow}`);
    }
    const payload = parseStrictBytes(opened.payload, 'bad_envelope');
    const signers = verifySignatures(opened);
    const verdict = authoriseDeployment({
      payload,
      subjectContext: ref.context,
      signers,
      atMs: earliestMoment(payload, deploy.at),
      context,
      isRegistered: () => true,
    });
    if ('refused' in verdict) return { refused: { ...verdict.refused, actor: 'supervisor' } };
    const { script, modules, files, args, grants, on } = verdict.ok;
    const caller = signers.find((signer) => context.executors.includes(signer)) ?? signers[0] ?? '';
    return {
      selector: on,
      env: {
        script,
        modules,
        files,
        args: stringifyTyped(args as JsonValue),
        flow: ref.flow,
        context: ref.context,
        caller,
        grants,
        allowed: context.allowed,
        deployedMs: deploy.at,
      },
    };
  } catch (error) {
    if (error instanceof HeroError) return { refused: errorRecord(error, { actor: 'supervisor' }) };
    throw error;
  }
}

/**
 * The deploy entry was stored after the message it came from: a message just in time may have become an
 * entry after its expiry. Being late was the coord's to judge, by the message; here the issue time counts.
 */
function earliestMoment(payload: JsonValue, deployedMs: number): number {
  const issued = (payload as { issued_at?: unknown } | null)?.issued_at;
  const issuedMs = typeof issued === 'string' ? Date.parse(issued) : Number.NaN;
  return Number.isNaN(issuedMs) ? deployedMs : Math.min(deployedMs, issuedMs);
}
