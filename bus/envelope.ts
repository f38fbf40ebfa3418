/**
 * DSSE envelopes (INTERFACES 4): the bytes that were signed are the bytes that are parsed.
 *
 * `open` judges only the form; `verifySignatures` says whose valid signatures it carries; whether these
 * people may do what the payload asks is the context's policy (actors/flow/authorise.ts). A signature is
 * never an id: the flow id and the digests come from the payload's and the message's bytes.
 */
import { createHash } from 'node:crypto';
import { DEPLOY_BYTES_MAX } from '../schemas/deployment.ts';
import { HeroError, type ErrorCode } from '../schemas/errors.ts';
import type { FlowId, Principal } from '../schemas/ids.ts';
import { parseStrictBytes, type JsonValue } from '../schemas/json.ts';
import { base32, nkeyBytes, verifySignature, type SigningKey } from './identity.ts';

/** More signers than any policy can ask for (schemas/ledger.ts: m <= 16), and bounded work to refuse. */
const SIGNATURES_MAX = 32;

export type EnvelopeSignature = { keyid: Principal; sig: Uint8Array };

export type OpenedEnvelope = {
  payload: Uint8Array;
  payloadType: string;
  signatures: EnvelopeSignature[];
  /** SHA-256 of the payload, hex. */
  digest: string;
  /** The flow id these payload bytes give, whoever signed them. */
  flow: FlowId;
  /** Digest of the message's bytes, written like a flow id. */
  envelopeDigest: string;
};

function sha256(bytes: Uint8Array): Buffer {
  return createHash('sha256').update(bytes).digest();
}

function shortDigest(bytes: Uint8Array): string {
  return base32(sha256(bytes).subarray(0, 16)).toLowerCase();
}

/** Flow id: lower-case base32 of the first 16 bytes of SHA-256 over the payload. */
export function flowIdOf(payload: Uint8Array): FlowId {
  return shortDigest(payload);
}

/** Names a message that may not even be an envelope: the last token of `hb.refused.<ctx>.…`. */
export function envelopeDigest(bytes: Uint8Array): string {
  return shortDigest(bytes);
}

/** The bytes that are signed. The type keeps what one key signs for different uses apart. */
export function signedBytes(payloadType: string, payload: Uint8Array): Uint8Array {
  const typeLength = Buffer.byteLength(payloadType);
  const head = `DSSEv1 ${typeLength} ${payloadType} ${payload.length} `;
  return Buffer.concat([Buffer.from(head), payload]);
}

export function seal(
  payload: Uint8Array,
  payloadType: string,
  keys: readonly SigningKey[],
): Uint8Array {
  const message = signedBytes(payloadType, payload);
  return encode({
    payload,
    payloadType,
    signatures: keys.map((key) => ({ keyid: key.public, sig: key.sign(message) })),
  });
}

/** Adds a signature over the payload as it stands; an earlier one of the same key is replaced. */
export function addSignature(bytes: Uint8Array, key: SigningKey): Uint8Array {
  const opened = open(bytes);
  const others = opened.signatures.filter(({ keyid }) => keyid !== key.public);
  const sig = key.sign(signedBytes(opened.payloadType, opened.payload));
  return encode({ ...opened, signatures: [...others, { keyid: key.public, sig }] });
}

function encode(
  envelope: Pick<OpenedEnvelope, 'payload' | 'payloadType' | 'signatures'>,
): Uint8Array {
  const bytes = Buffer.from(
    JSON.stringify({
      payload: Buffer.from(envelope.payload).toString('base64'),
      payloadType: envelope.payloadType,
      signatures: envelope.signatures.map(({ keyid, sig }) => ({
        keyid,
        sig: Buffer.from(sig).toString('base64'),
      })),
    }),
  );
  assertSize(bytes);
  return bytes;
}

/**
 * Reads an envelope strictly. Throws bad_envelope, duplicate_key, too_large; and bad_signature where a
 * signature cannot even be one, so that a byte changed in it always has the same code.
 */
export function open(bytes: Uint8Array): OpenedEnvelope {
  assertSize(bytes);
  const top = members(parseStrictBytes(bytes, 'bad_envelope'), 'the envelope', 'bad_envelope');
  exactFields(top, ['payload', 'payloadType', 'signatures'], 'the envelope', 'bad_envelope');
  const payload = base64(top['payload'], 'payload', 'bad_envelope');
  const payloadType = top['payloadType'];
  if (typeof payloadType !== 'string' || payloadType === '') {
    throw new HeroError('bad_envelope', 'payloadType is no text');
  }
  const list = top['signatures'];
  if (!Array.isArray(list) || list.length === 0) {
    throw new HeroError('bad_envelope', 'signatures is no list, or an empty one');
  }
  if (list.length > SIGNATURES_MAX) {
    throw new HeroError('bad_envelope', `more than ${SIGNATURES_MAX} signatures`);
  }
  return {
    payload,
    payloadType,
    signatures: list.map(readSignature),
    digest: sha256(payload).toString('hex'),
    flow: flowIdOf(payload),
    envelopeDigest: envelopeDigest(bytes),
  };
}

/**
 * The principals whose signatures are valid, each once. One that is not makes the whole message refused:
 * somebody changed it on its way, and guessing which part is still meant is not ours.
 */
export function verifySignatures(
  opened: Pick<OpenedEnvelope, 'payload' | 'payloadType' | 'signatures'>,
): Principal[] {
  const message = signedBytes(opened.payloadType, opened.payload);
  const valid = new Set<Principal>();
  for (const { keyid, sig } of opened.signatures) {
    if (!isValid(keyid, message, sig)) {
      throw new HeroError('bad_signature', `the signature of ${keyid} is not valid`);
    }
    valid.add(keyid);
  }
  return [...valid];
}

/** Verified once in a process (DESIGN 12): the coord and the supervisor of one see the same envelopes. */
const VERIFIED_MAX = 4096;
const verified = new Set<string>();

function isValid(keyid: Principal, message: Uint8Array, sig: Uint8Array): boolean {
  const key = `${keyid} ${sha256(message).toString('base64')} ${Buffer.from(sig).toString('base64')}`;
  if (verified.has(key)) return true;
  if (!verifySignature(keyid, message, sig)) return false;
  verified.add(key);
  for (const oldest of verified) {
    if (verified.size <= VERIFIED_MAX) break;
    verified.delete(oldest);
  }
  return true;
}

function assertSize(bytes: Uint8Array): void {
  if (bytes.length <= DEPLOY_BYTES_MAX) return;
  throw new HeroError('too_large', `the message has ${bytes.length} bytes, more than 1 MiB`, {
    fix: 'Keep large data out of the script and its arguments; name files by their digest.',
  });
}

function readSignature(value: JsonValue): EnvelopeSignature {
  const fields = members(value, 'a signature', 'bad_envelope');
  exactFields(fields, ['keyid', 'sig'], 'a signature', 'bad_envelope');
  const keyid = fields['keyid'];
  if (typeof keyid !== 'string' || nkeyBytes('U', keyid) === undefined) {
    throw new HeroError('bad_signature', 'keyid is no nkey of a user');
  }
  const sig = base64(fields['sig'], 'sig', 'bad_signature');
  if (sig.length !== 64) throw new HeroError('bad_signature', 'a signature has 64 bytes');
  return { keyid, sig };
}

type Members = { [key: string]: JsonValue };

function members(value: JsonValue, what: string, code: ErrorCode): Members {
  if (value === null || typeof value !== 'object' || Array.isArray(value)) {
    throw new HeroError(code, `${what} is no JSON object`);
  }
  return value as Members;
}

function exactFields(value: Members, names: string[], what: string, code: ErrorCode): void {
  const unknown = Object.keys(value).find((name) => !names.includes(name));
  if (unknown !== undefined) {
    throw new HeroError(code, `${what} has the unknown field ${unknown.slice(0, 80)}`);
  }
}

/** Standard base64 with padding, in the one text its bytes have. */
function base64(value: JsonValue | undefined, name: string, code: ErrorCode): Uint8Array {
  if (typeof value === 'string') {
    const bytes = Buffer.from(value, 'base64');
    if (bytes.toString('base64') === value) return bytes;
  }
  throw new HeroError(code, `${name} is no standard base64 with padding`);
}
