/** Payloads a user signs: deployments, commands to flows, changes of the ledger. */
import { randomBytes } from 'node:crypto';
import { seal } from '../../bus/envelope.ts';
import type { SigningKey } from '../../bus/identity.ts';
import type { SentFile } from '../../schemas/blob.ts';
import { COMMAND_PAYLOAD_TYPE, type CommandVerb } from '../../schemas/command.ts';
import { DEPLOY_PAYLOAD_TYPE } from '../../schemas/deployment.ts';
import type { FlowRef } from '../../schemas/ids.ts';
import { type JsonValue, stringifyTyped } from '../../schemas/json.ts';
import { LEDGER_PAYLOAD_TYPE, type LedgerChange } from '../../schemas/ledger.ts';

const COMMAND_LIFETIME_MS = 10 * 60_000;

const nonce = (): string => randomBytes(16).toString('base64url');
const iso = (ms: number): string => new Date(ms).toISOString();

export type DeploymentDraft = {
  context: string;
  script: string;
  modules?: Readonly<Record<string, string>>;
  files?: Readonly<Record<string, SentFile>>;
  args: { [key: string]: JsonValue };
  grants: string[];
  on: string | null;
  lifetimeMs: number;
};

/** `nowMs`: bus time where there is a bus, since the bus judges by its own clock. */
export function sealDeployment(
  draft: DeploymentDraft,
  keys: readonly SigningKey[],
  nowMs: number,
): Uint8Array {
  const { context, script, modules = {}, files = {}, args, grants, on, lifetimeMs } = draft;
  const payload: JsonValue = {
    v: 1,
    context,
    script,
    // Left out when there are none: the payload is what it was before there were any.
    ...(Object.keys(modules).length === 0 ? {} : { modules: { ...modules } }),
    ...(Object.keys(files).length === 0 ? {} : { files: { ...files } }),
    args,
    grants,
    on,
    nonce: nonce(),
    issued_at: iso(nowMs),
    expires_at: iso(nowMs + lifetimeMs),
  };
  return seal(Buffer.from(stringifyTyped(payload)), DEPLOY_PAYLOAD_TYPE, keys);
}

export function sealCommand(
  { context, flow }: FlowRef,
  command: { job: number | null; verb: CommandVerb; reason: string | null },
  key: SigningKey,
  nowMs: number,
): Uint8Array {
  const payload = {
    v: 1,
    context,
    flow,
    ...command,
    nonce: nonce(),
    issued_at: iso(nowMs),
    expires_at: iso(nowMs + COMMAND_LIFETIME_MS),
  };
  return seal(Buffer.from(JSON.stringify(payload)), COMMAND_PAYLOAD_TYPE, [key]);
}

export function sealChange(
  change: LedgerChange,
  reason: string | null,
  key: SigningKey,
  nowMs: number,
): Uint8Array {
  const payload = { v: 1, change, reason, nonce: nonce(), issued_at: iso(nowMs) };
  return seal(Buffer.from(JSON.stringify(payload)), LEDGER_PAYLOAD_TYPE, [key]);
}
