/**
 * Nonces to sign, and the check of what was signed: that a key is held by who claims it.
 *
 * A nonce carries what has to be remembered of it (its age and a MAC that binds it to the principal), so
 * ten thousand keys that only ask cost nothing. Invariants:
 *   P1 a nonce is good for the principal it was issued to, of this start of the ledger, for `NONCE_TTL_MS`
 *      of monotonic time;
 *   P2 a nonce proves a key once: it is spent by its first valid signature, never by an invalid one;
 *   P3 the table of spent nonces is bounded: where it is full of fresh ones, proofs wait, none is forgotten.
 * What follows from a proof is registration.machine.ts.
 */
import { createHmac, randomBytes, timingSafeEqual } from 'node:crypto';
import { open, verifySignatures } from '../../bus/envelope.ts';
import { HeroError, type ErrorCode } from '../../schemas/errors.ts';
import type { Principal } from '../../schemas/ids.ts';
import { parseStrictBytes } from '../../schemas/json.ts';
import { REGISTER_PAYLOAD_TYPE, RegisterPayload } from '../../schemas/ledger.ts';

export const NONCE_TTL_MS = 60_000;
const SPENT_MAX = 100_000;
const TIME_BYTES = 8;
const RANDOM_BYTES = 16;
const MAC_BYTES = 16;
const NONCE_BYTES = TIME_BYTES + RANDOM_BYTES + MAC_BYTES;
const AGAIN = { fix: 'Ask hb.ledger.challenge for a new nonce and sign that one.' };

export class Proofs {
  readonly #secret = randomBytes(32);
  readonly #monotonicMs: () => number;
  /** Spent nonces by when they would have ended; insertion order is age, roughly. */
  readonly #spent = new Map<string, number>();

  constructor(monotonicMs: () => number) {
    this.#monotonicMs = monotonicMs;
  }

  issue(principal: Principal): string {
    const head = Buffer.alloc(TIME_BYTES + RANDOM_BYTES);
    head.writeDoubleBE(this.#monotonicMs(), 0);
    randomBytes(RANDOM_BYTES).copy(head, TIME_BYTES);
    return Buffer.concat([head, this.#mac(head, principal)]).toString('base64');
  }

  /** Reads a registration and checks its proof; throws bad_envelope, bad_signature, expired, not_allowed. */
  check(data: Uint8Array): RegisterPayload {
    const payload = signedPayload(data);
    this.#spend(payload.nonce, payload.principal);
    return payload;
  }

  #spend(nonce: string, principal: Principal): void {
    const bytes = Buffer.from(nonce, 'base64');
    const head = bytes.subarray(0, TIME_BYTES + RANDOM_BYTES);
    if (bytes.length !== NONCE_BYTES || bytes.toString('base64') !== nonce) {
      throw new HeroError('not_allowed', 'the nonce is none of this ledger', AGAIN);
    }
    if (!timingSafeEqual(this.#mac(head, principal), bytes.subarray(head.length))) {
      throw new HeroError('not_allowed', 'the nonce was not issued to this principal', AGAIN);
    }
    const now = this.#monotonicMs();
    const endsMs = head.readDoubleBE(0) + NONCE_TTL_MS;
    if (now >= endsMs) throw new HeroError('expired', 'the nonce is too old', AGAIN);
    if (this.#spent.has(nonce)) throw new HeroError('expired', 'the nonce is spent', AGAIN);
    this.#forget(now);
    if (this.#spent.size >= SPENT_MAX) {
      throw new HeroError('quota', 'too many registrations at once', { fix: 'Try again soon.' });
    }
    this.#spent.set(nonce, endsMs);
  }

  #forget(now: number): void {
    for (const [nonce, endsMs] of this.#spent) {
      if (endsMs > now) break;
      this.#spent.delete(nonce);
    }
  }

  #mac(head: Uint8Array, principal: Principal): Buffer {
    return createHmac('sha256', this.#secret)
      .update(head)
      .update(principal)
      .digest()
      .subarray(0, MAC_BYTES);
  }
}

function signedPayload(data: Uint8Array): RegisterPayload {
  const { payload, signers } = openSigned(data, REGISTER_PAYLOAD_TYPE);
  const parsed = RegisterPayload.safeParse(payload);
  if (!parsed.success) throw new HeroError('bad_envelope', 'the payload is no registration');
  if (!signers.includes(parsed.data.principal)) {
    throw new HeroError('bad_signature', `not signed by ${parsed.data.principal} itself`);
  }
  return parsed.data;
}

/** An envelope of one payload type with all its signatures valid: what it says, who says it, which bytes. */
export function openSigned(
  data: Uint8Array,
  payloadType: string,
): { payload: unknown; signers: Principal[]; digest: string } {
  const opened = open(data);
  if (opened.payloadType !== payloadType) {
    throw new HeroError('bad_envelope', `the payload type is not ${payloadType}`);
  }
  const signers = verifySignatures(opened);
  return { payload: strictJson(opened.payload, 'bad_envelope'), signers, digest: opened.digest };
}

/** JSON without duplicate keys, as plain values for a schema. */
export function strictJson(data: Uint8Array, invalid: ErrorCode): unknown {
  parseStrictBytes(data, invalid);
  return JSON.parse(Buffer.from(data).toString());
}
