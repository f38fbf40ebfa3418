/**
 * A client as somebody else would write it: a NATS client, node:crypto, and INTERFACES 4. Nothing of ours.
 */
import { createHash, createPrivateKey, createPublicKey, randomBytes, sign } from 'node:crypto';
import { credsAuthenticator, jwtAuthenticator, type NatsConnection } from '@nats-io/transport-node';
import { connect } from '@nats-io/transport-node';

const B32 = 'ABCDEFGHIJKLMNOPQRSTUVWXYZ234567';
export function base32(bytes: Uint8Array): string {
  let bits = '';
  for (const byte of bytes) bits += byte.toString(2).padStart(8, '0');
  return (bits.match(/.{1,5}/g) ?? [])
    .map((five) => B32[Number.parseInt(five.padEnd(5, '0'), 2)])
    .join('');
}
function crc16(bytes: Uint8Array): Buffer {
  let crc = 0;
  for (const byte of bytes) {
    crc ^= byte << 8;
    for (let i = 0; i < 8; i++) crc = ((crc << 1) ^ (crc & 0x8000 ? 0x1021 : 0)) & 0xffff;
  }
  return Buffer.from([crc & 0xff, crc >> 8]);
}

export type Key = { seed: Uint8Array; principal: string; sign: (message: Uint8Array) => Buffer };
export function makeKey(seed: Uint8Array = randomBytes(32)): Key {
  const der = Buffer.concat([Buffer.from('302e020100300506032b657004220420', 'hex'), seed]);
  const key = createPrivateKey({ key: der, format: 'der', type: 'pkcs8' });
  const raw = Buffer.from(String(createPublicKey(key).export({ format: 'jwk' }).x), 'base64url');
  const body = Buffer.concat([Buffer.from([20 << 3]), raw]);
  return {
    seed,
    principal: base32(Buffer.concat([body, crc16(body)])),
    sign: (message) => sign(null, message, key),
  };
}
function seedText(seed: Uint8Array): Uint8Array {
  const body = Buffer.concat([Buffer.from([0x90 | (0xa0 >> 5), (0xa0 & 31) << 3]), seed]);
  return Buffer.from(base32(Buffer.concat([body, crc16(body)])));
}

/** The 32 bytes in an nkey seed's text. */
export function seedOf(text: string): Uint8Array {
  let bits = '';
  for (const letter of text.trim()) bits += B32.indexOf(letter).toString(2).padStart(5, '0');
  const bytes = (bits.match(/.{8}/g) ?? []).map((eight) => Number.parseInt(eight, 2));
  return Uint8Array.from(bytes.slice(2, 34));
}

export function seal(payload: object | Buffer, type: string, ...keys: Key[]): Buffer {
  const bytes = Buffer.isBuffer(payload) ? payload : Buffer.from(JSON.stringify(payload));
  const head = `DSSEv1 ${type.length} ${type} ${bytes.length} `;
  const message = Buffer.concat([Buffer.from(head), bytes]);
  const signatures = keys.map((key) => ({
    keyid: key.principal,
    sig: key.sign(message).toString('base64'),
  }));
  return Buffer.from(
    JSON.stringify({ payload: bytes.toString('base64'), payloadType: type, signatures }),
  );
}
export const flowId = (payload: Uint8Array): string =>
  base32(createHash('sha256').update(payload).digest().subarray(0, 16)).toLowerCase();

type Reply = { ok?: Record<string, never>; error?: { code: string; message: string } };
async function ask(
  nats: NatsConnection,
  verb: string,
  body: object | Buffer,
): Promise<Record<string, string>> {
  const data = Buffer.isBuffer(body) ? body : JSON.stringify(body);
  const reply = (await nats.request(`hb.ledger.${verb}`, data, { timeout: 10_000 })).json<Reply>();
  if (reply.ok === undefined)
    throw new Error(`${verb}: ${reply.error?.code} ${reply.error?.message}`);
  return reply.ok;
}

/** Registers the key over the join credentials and returns a connection of its own. */
export async function join(url: string, joinCreds: Uint8Array, key: Key): Promise<NatsConnection> {
  const guest = await connect({ servers: url, authenticator: credsAuthenticator(joinCreds) });
  const { nonce } = await ask(guest, 'challenge', { principal: key.principal });
  const payload = {
    v: 1,
    principal: key.principal,
    nonce,
    kind: 'user',
    name: 'foreign',
    token: null,
  };
  const { jwt } = await ask(
    guest,
    'register',
    seal(payload, 'application/vnd.herobus.register+json', key),
  );
  await guest.close();
  return connect({ servers: url, authenticator: jwtAuthenticator(jwt ?? '', seedText(key.seed)) });
}

export function deployment(
  script: string,
  over: Record<string, unknown> = {},
): Record<string, unknown> {
  const now = Date.now();
  const time = (ms: number): string => new Date(ms).toISOString();
  return {
    v: 1,
    context: 'default',
    script,
    args: {},
    grants: ['process'],
    on: null,
    nonce: randomBytes(12).toString('hex'),
    issued_at: time(now),
    expires_at: time(now + 600_000),
    ...over,
  };
}
export const DEPLOY = 'application/vnd.herobus.deploy+json';

/** Publishes sealed bytes; resolves with the durable receipt of the stream. */
export async function publish(
  nats: NatsConnection,
  context: string,
  bytes: Uint8Array,
): Promise<{ stream: string; seq: number }> {
  return (await nats.request(`hb.deploy.${context}`, bytes, { timeout: 10_000 })).json();
}

export type Followed = { subject: string; body: Record<string, never> };

/** Follows a flow by the consumer the ledger makes, to its `end`. */
export async function follow(
  nats: NatsConnection,
  context: string,
  flow: string,
): Promise<Followed[]> {
  const { stream, consumer } = await ask(nats, 'follow', { context, flow, from: null });
  const entries: Followed[] = [];
  for (const deadline = Date.now() + 60_000; Date.now() < deadline; ) {
    const pull = { batch: 1, expires: 5_000_000_000 };
    const message = await nats.request(
      `$JS.API.CONSUMER.MSG.NEXT.${stream}.${consumer}`,
      JSON.stringify(pull),
      { timeout: 8_000, noMux: true },
    );
    if (message.headers?.code) continue;
    entries.push({ subject: message.subject, body: message.json() });
    if (message.subject.endsWith('.end')) return entries;
  }
  throw new Error(`flow ${flow} did not end in time`);
}
