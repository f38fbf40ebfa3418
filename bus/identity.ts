/**
 * Keys and what follows from them: one ed25519 seed gives a principal its nkey, its signatures and, as
 * X25519, its mycelium address.
 *
 * Signing and verifying run on node:crypto (about 0.1 ms); the strict checks of keys and of S, which
 * OpenSSL leaves open or to its version, are done here with @noble/ed25519. The written forms of
 * principals and addresses are checked in schemas/ids.ts; files that hold seeds are bus/credentials.ts
 * and bus/connect.ts.
 */
import {
  createHash,
  createPrivateKey,
  createPublicKey,
  randomBytes,
  sign as cryptoSign,
  verify as cryptoVerify,
  type KeyObject,
} from 'node:crypto';
import { Point } from '@noble/ed25519';
import { blake3 } from '@noble/hashes/blake3.js';
import { HeroError } from '../schemas/errors.ts';
import type { Address, Principal } from '../schemas/ids.ts';

/** nkey roles used here: user, account, operator. */
export type NkeyRole = 'U' | 'A' | 'O';

const ROLE_BYTE: Record<NkeyRole, number> = { U: 0xa0, A: 0x00, O: 0x70 };
const SEED_BYTE = 0x90;
const ALPHABET = 'ABCDEFGHIJKLMNOPQRSTUVWXYZ234567';
/** Seeds as PKCS #8, the only raw form node:crypto reads: this header, then the 32 bytes. */
const PKCS8_HEADER = Buffer.from('302e020100300506032b657004220420', 'hex');

/** A key that signs: a principal's, or one of the bus's own (operator, account). */
export type SigningKey = {
  readonly role: NkeyRole;
  /** The public nkey text, `U…`, `A…` or `O…`. */
  readonly public: string;
  readonly publicBytes: Uint8Array;
  sign: (message: Uint8Array) => Uint8Array;
  /** The seed's text, `SU…`. Only for files of mode 0600. */
  seedText: () => string;
};

/** A principal's key with all that follows from it. */
export type Identity = SigningKey & {
  readonly principal: Principal;
  readonly address: Address;
  /** The mycelium secret: SHA-512(seed)[0..32], clamped. */
  x25519Secret: () => Uint8Array;
};

export function base32(bytes: Uint8Array): string {
  let text = '';
  let bits = 0;
  let value = 0;
  for (const byte of bytes) {
    value = ((value << 8) | byte) & 0xffff;
    bits += 8;
    while (bits >= 5) {
      bits -= 5;
      text += ALPHABET[(value >>> bits) & 31];
    }
  }
  return bits > 0 ? text + ALPHABET[(value << (5 - bits)) & 31] : text;
}

/** Undefined unless the text is exactly what `base32` writes: one text for one value. */
export function parseBase32(text: string): Uint8Array | undefined {
  const bytes = new Uint8Array(Math.floor((text.length * 5) / 8));
  let bits = 0;
  let value = 0;
  let at = 0;
  for (const character of text) {
    const digit = ALPHABET.indexOf(character);
    if (digit < 0) return undefined;
    value = ((value << 5) | digit) & 0xffff;
    bits += 5;
    if (bits >= 8) {
      bits -= 8;
      bytes[at++] = (value >>> bits) & 0xff;
    }
  }
  return base32(bytes) === text ? bytes : undefined;
}

/** CRC-16/XMODEM, appended little-endian to every nkey. */
function crc16(bytes: Uint8Array): number {
  let crc = 0;
  for (const byte of bytes) {
    crc ^= byte << 8;
    for (let i = 0; i < 8; i++)
      crc = ((crc & 0x8000 ? (crc << 1) ^ 0x1021 : crc << 1) & 0xffff) >>> 0;
  }
  return crc;
}

function withCrc(body: Uint8Array): string {
  const crc = crc16(body);
  return base32(Buffer.concat([body, Buffer.from([crc & 0xff, crc >>> 8])]));
}

function checkedBody(text: string): Uint8Array | undefined {
  const bytes = parseBase32(text);
  if (bytes === undefined || bytes.length < 3) return undefined;
  const body = bytes.subarray(0, -2);
  const crc = crc16(body);
  return bytes.at(-2) === (crc & 0xff) && bytes.at(-1) === crc >>> 8 ? body : undefined;
}

export function nkeyText(role: NkeyRole, publicKey: Uint8Array): string {
  return withCrc(Buffer.concat([Buffer.from([ROLE_BYTE[role]]), publicKey]));
}

/** The 32 bytes of a public nkey of this role; undefined when the text is none. */
export function nkeyBytes(role: NkeyRole, text: string): Uint8Array | undefined {
  const body = text.length === 56 ? checkedBody(text) : undefined;
  return body?.length === 33 && body[0] === ROLE_BYTE[role] ? body.subarray(1) : undefined;
}

export function seedText(role: NkeyRole, seed: Uint8Array): string {
  const byte = ROLE_BYTE[role];
  return withCrc(Buffer.concat([Buffer.from([SEED_BYTE | (byte >> 5), (byte & 31) << 3]), seed]));
}

/** The 32 bytes of a seed text of this role; undefined when it is none. */
export function seedBytes(role: NkeyRole, text: string): Uint8Array | undefined {
  const body = text.length === 58 ? checkedBody(text) : undefined;
  const byte = ROLE_BYTE[role];
  if (body?.length !== 34 || body[0] !== (SEED_BYTE | (byte >> 5))) return undefined;
  return body[1] === (byte & 31) << 3 ? body.subarray(2) : undefined;
}

export function signingKey(role: NkeyRole, seed: Uint8Array = randomBytes(32)): SigningKey {
  const privateKey = createPrivateKey({
    key: Buffer.concat([PKCS8_HEADER, seed]),
    format: 'der',
    type: 'pkcs8',
  });
  const publicBytes = Buffer.from(String(privateKey.export({ format: 'jwk' }).x), 'base64url');
  return {
    role,
    public: nkeyText(role, publicBytes),
    publicBytes,
    sign: (message) => cryptoSign(null, message, privateKey),
    seedText: () => seedText(role, seed),
  };
}

export function signingKeyFromText(role: NkeyRole, text: string): SigningKey {
  const seed = seedBytes(role, text.trim());
  if (seed === undefined) {
    throw new HeroError('bad_request', `not an nkey seed of role ${role}`, {
      fix: `A seed is one line that begins with S${role}, as \`herobus init\` writes it to key.nk.`,
    });
  }
  return signingKey(role, seed);
}

export function identityFromSeed(seed: Uint8Array): Identity {
  const key = signingKey('U', seed);
  const x25519Secret = () => clampedScalar(seed);
  return {
    ...key,
    principal: key.public,
    address: addressOfX25519(montgomery(key.publicBytes)),
    x25519Secret,
  };
}

/** Reads the seed text `SU…` of a key file. */
export function identityFromText(text: string): Identity {
  const seed = seedBytes('U', text.trim());
  if (seed === undefined) {
    throw new HeroError('bad_request', 'the key file holds no nkey seed of a user', {
      fix: 'It must be one line that begins with SU, as `herobus init` writes it to key.nk.',
    });
  }
  return identityFromSeed(seed);
}

export function newIdentity(): Identity {
  return identityFromSeed(randomBytes(32));
}

function clampedScalar(seed: Uint8Array): Uint8Array {
  const scalar = Uint8Array.from(createHash('sha512').update(seed).digest().subarray(0, 32));
  scalar[0]! &= 248;
  scalar[31] = (scalar[31]! & 127) | 64;
  return scalar;
}

const FIELD = 2n ** 255n - 19n;

function littleEndian(bytes: Uint8Array): bigint {
  return BigInt(`0x${Buffer.from(bytes).reverse().toString('hex')}`);
}

/**
 * The X25519 public key of an ed25519 public key, u = (1 + y) / (1 - y): the same point, so a principal's
 * address follows from its nkey alone and nobody has to be asked for it.
 */
function montgomery(publicKey: Uint8Array): Uint8Array {
  const y = littleEndian(publicKey) & (2n ** 255n - 1n);
  const u = ((1n + y) * inverse((((1n - y) % FIELD) + FIELD) % FIELD)) % FIELD;
  return Uint8Array.from(Buffer.from(u.toString(16).padStart(64, '0'), 'hex').reverse());
}

/** Euclid: about 20 times as fast as a Fermat power with bigints. */
function inverse(value: bigint): bigint {
  let [a, b, x, y] = [value, FIELD, 1n, 0n];
  while (a > 1n) {
    const quotient = b / a;
    [a, b, x, y] = [b % a, a, y - quotient * x, x];
  }
  return a === 1n ? ((x % FIELD) + FIELD) % FIELD : 0n;
}

/** The mycelium address of an X25519 public key (reference/upstream.md 4.1), 32 hex digits. */
export function addressOfX25519(publicKey: Uint8Array): Address {
  const bytes = Uint8Array.from(blake3(publicKey, { dkLen: 16 }));
  let parity = 0;
  for (let byte = bytes[0] ?? 0; byte > 0; byte >>= 1) parity ^= byte & 1;
  bytes[0] = 0x04 | parity;
  return Buffer.from(bytes).toString('hex');
}

export function x25519Public(identity: Pick<SigningKey, 'publicBytes'>): Uint8Array {
  return montgomery(identity.publicBytes);
}

/** A bound, not a budget: a node meets far fewer keys, and each costs a few hundred bytes. */
const CACHE_MAX = 20_000;
const addresses = new Map<Principal, Address>();

/** The address that belongs to a principal; undefined when the text is no nkey of a user. */
export function addressOf(principal: Principal): Address | undefined {
  const known = addresses.get(principal);
  if (known !== undefined) return known;
  const publicKey = nkeyBytes('U', principal);
  if (publicKey === undefined) return undefined;
  const address = addressOfX25519(montgomery(publicKey));
  remember(addresses, principal, address);
  return address;
}

function remember<K, V>(cache: Map<K, V>, key: K, value: V): void {
  if (cache.size >= CACHE_MAX) {
    const oldest = cache.keys().next();
    if (!oldest.done) cache.delete(oldest.value);
  }
  cache.set(key, value);
}

const ORDER = Point.CURVE().n;
/** Verified keys by their text, `null` for a key that is refused: the strict check costs milliseconds. */
const verifyKeys = new Map<Principal, KeyObject | null>();

/** The key as node:crypto wants it, or null unless it is canonical and of the prime-order group. */
function strictKey(principal: Principal): KeyObject | null {
  const known = verifyKeys.get(principal);
  if (known !== undefined) return known;
  const publicKey = nkeyBytes('U', principal);
  if (publicKey === undefined) return null;
  const key = isStrictPoint(publicKey)
    ? createPublicKey({
        key: { kty: 'OKP', crv: 'Ed25519', x: Buffer.from(publicKey).toString('base64url') },
        format: 'jwk',
      })
    : null;
  remember(verifyKeys, principal, key);
  return key;
}

function isStrictPoint(publicKey: Uint8Array): boolean {
  try {
    const point = Point.fromBytes(publicKey, false);
    return !point.isSmallOrder() && point.isTorsionFree();
  } catch {
    return false;
  }
}

/**
 * Strict ed25519: refuses keys of small or mixed order and in a non-canonical form, and S not below the
 * group's order, so that one message has one signature of a key. R needs no check of its own: it is
 * compared as bytes with the canonical form of what the equation gives.
 */
export function verifySignature(
  principal: Principal,
  message: Uint8Array,
  signature: Uint8Array,
): boolean {
  if (signature.length !== 64 || littleEndian(signature.subarray(32)) >= ORDER) return false;
  const key = strictKey(principal);
  return key !== null && cryptoVerify(null, message, key, signature);
}
