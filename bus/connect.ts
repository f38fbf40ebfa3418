/**
 * A connection that lasts: it comes back by itself for ever, proves its key at each connect with the newest
 * token, and says when it is up. Plus the two files a connection starts from: the creds file and bus.json.
 *
 * What a principal may do with it is bus/credentials.ts; what it is used for is bus/nats.ts.
 */
import {
  connect as natsConnect,
  type Authenticator,
  type NatsConnection,
} from '@nats-io/transport-node';
import { join } from 'node:path';
import { rm } from 'node:fs/promises';
import { BusFile } from '../schemas/config.ts';
import { HeroError, ensureError } from '../schemas/errors.ts';
import { readIfThere, SECRET_MODE, writeAtomic } from './atomic-file.ts';
import { backoffMs } from './backoff.ts';
import type { Link, LinkState } from './bus.ts';
import type { SigningKey } from './identity.ts';
import { connectionBack, connectionLost } from './presence.ts';

export type ConnectOptions = {
  /** `nats://host:port`, one or several. */
  server: string | readonly string[];
  /** Who connects, with a token that is asked for at each connect; absent: a guest, who may only register. */
  as?: { key: SigningKey; jwt: () => string };
  inboxPrefix: string;
  /** Shown by the server's own tools. */
  name?: string;
  /** PEM of the authority that signed the server's certificate, where the bus is TLS. */
  ca?: string;
  /** Go on trying for ever when the first connect fails, instead of throwing. */
  persist?: boolean;
  timeoutMs?: number;
};

export type Connection = {
  readonly nats: NatsConnection;
  readonly link: Link;
  close(): Promise<void>;
};

const CONNECT_TIMEOUT_MS = 5_000;
const RECONNECT = { firstMs: 50, capMs: 5_000 };
/** A server that is stopped, not dead, is noticed after two unanswered pings. */
const PING_INTERVAL_MS = 5_000;
const PINGS_OUT_MAX = 2;
/**
 * The client signs whatever the server sends. Everything else that is signed with the same key opens with
 * `DSSEv1 `, which this excludes, so a hostile server cannot have a deployment signed as its nonce.
 */
const NONCE = /^[A-Za-z0-9_-]{15,64}$/;

export function authenticator(key: SigningKey, jwt: () => string): Authenticator {
  return (nonce?: string) => {
    if (nonce === undefined) return { jwt: jwt() };
    if (!NONCE.test(nonce)) throw new HeroError('not_allowed', 'the server sent an odd nonce');
    return { jwt: jwt(), sig: Buffer.from(key.sign(Buffer.from(nonce))).toString('base64url') };
  };
}

/** Connects; throws `unreachable` naming the server and what to do. */
export async function connect(options: ConnectOptions): Promise<Connection> {
  const servers = typeof options.server === 'string' ? [options.server] : [...options.server];
  const wait = makeReconnectWait();
  for (let attempt = 0; ; attempt++) {
    try {
      const nats = await natsConnect({
        servers,
        name: options.name ?? options.as?.key.public ?? 'guest',
        inboxPrefix: options.inboxPrefix,
        ...(options.as === undefined
          ? {}
          : { authenticator: authenticator(options.as.key, options.as.jwt) }),
        timeout: options.timeoutMs ?? CONNECT_TIMEOUT_MS,
        reconnect: true,
        maxReconnectAttempts: -1,
        reconnectDelayHandler: wait.currentMs,
        // A token may expire before its renewal arrives; giving up then would be for good.
        ignoreAuthErrorAbort: true,
        pingInterval: PING_INTERVAL_MS,
        maxPingOut: PINGS_OUT_MAX,
        noAsyncTraces: true,
        ...(options.ca === undefined ? {} : { tls: { ca: options.ca } }),
      });
      return { nats, link: watchLink(nats, wait), close: () => closeConnection(nats) };
    } catch (error) {
      if (!options.persist) throw unreachable(servers, error);
      await new Promise((resolve) => setTimeout(resolve, backoffMs(attempt, RECONNECT)));
    }
  }
}

function unreachable(servers: string[], thrown: unknown): HeroError {
  const cause = ensureError(thrown);
  const where = servers.join(', ');
  if (/authorization violation|user authentication|authentication expired/i.test(cause.message)) {
    return new HeroError('not_allowed', `the bus at ${where} does not accept this key's token`, {
      cause,
      fix: 'Remove bus.creds from the home to register anew, or ask an admin whether the key is revoked.',
    });
  }
  return new HeroError('unreachable', `no bus answers at ${where}: ${cause.message}`, {
    cause,
    fix: 'Start one with `herobus up`, or name the right one with --server.',
  });
}

type ReconnectWait = { currentMs: () => number; tried: () => void; connected: () => void };

/**
 * The client asks for the wait over and over while it waits, and counts it from its last try: so the
 * answer may change only with a try.
 */
function makeReconnectWait(): ReconnectWait {
  let tries = 0;
  let currentMs = backoffMs(0, RECONNECT);
  const become = (count: number) => {
    tries = count;
    currentMs = backoffMs(tries, RECONNECT);
  };
  return {
    currentMs: () => currentMs,
    tried: () => become(tries + 1),
    connected: () => become(0),
  };
}

/** The client's own status events, as one state: up or down, and since when by the monotonic clock. */
function watchLink(nats: NatsConnection, wait: ReconnectWait): Link {
  let state: LinkState = { up: true, sinceMs: performance.now() };
  const listeners = new Set<(state: LinkState) => void>();
  const become = (up: boolean) => {
    if (state.up === up) return;
    state = { up, sinceMs: performance.now() };
    for (const listener of listeners) listener(state);
  };
  // A connection that was lost again before it was of use never counts as back.
  let generation = 0;
  const lost = () => {
    generation++;
    connectionLost(nats);
    become(false);
  };
  const back = async () => {
    const mine = ++generation;
    await nats.flush();
    if (mine !== generation) return;
    wait.connected();
    connectionBack(nats);
    become(true);
  };
  void (async () => {
    for await (const status of nats.status()) {
      if (status.type === 'disconnect') lost();
      if (status.type === 'reconnecting') wait.tried();
      if (status.type === 'reconnect') back().catch(() => undefined);
    }
    lost();
  })();
  return {
    state: () => state,
    onChange: (listener) => {
      listeners.add(listener);
      return { stop: () => void listeners.delete(listener) };
    },
  };
}

/** Connects anew, with the newest token. What was sent before has arrived, unless the link is down already. */
export async function reconnect({ nats, link }: Pick<Connection, 'nats' | 'link'>): Promise<void> {
  if (link.state().up) await soon(nats.flush());
  await nats.reconnect();
}

/** Sends what is still buffered, unless the link is down: then there is nowhere to send it. */
async function closeConnection(nats: NatsConnection): Promise<void> {
  if (nats.isClosed()) return;
  await soon(nats.drain());
  await nats.close();
}

/** Settles with what is awaited, whatever comes of it, or after a second without it. */
async function soon(awaited: Promise<void>): Promise<void> {
  await Promise.race([
    awaited.catch(() => undefined),
    new Promise((resolve) => setTimeout(resolve, 1000).unref()),
  ]);
}

/** A creds file as every NATS client reads it. */
export function credsText(jwt: string, seed: string): string {
  return [
    '-----BEGIN NATS USER JWT-----',
    jwt,
    '------END NATS USER JWT------',
    '',
    '-----BEGIN USER NKEY SEED-----',
    seed,
    '------END USER NKEY SEED------',
    '',
  ].join('\n');
}

export type Creds = { jwt: string; seed: string };

export function parseCreds(text: string): Creds {
  const jwt = /-+BEGIN NATS USER JWT-+\s+(\S+)\s+-+END/.exec(text)?.[1];
  const seed = /-+BEGIN USER NKEY SEED-+\s+(\S+)\s+-+END/.exec(text)?.[1];
  if (jwt === undefined || seed === undefined) {
    throw new HeroError('bad_request', 'the creds file has no user JWT or no seed');
  }
  return { jwt, seed };
}

export async function readCreds(path: string): Promise<Creds | undefined> {
  const text = await readIfThere(path);
  return text === undefined ? undefined : parseCreds(text);
}

/** Written by rename, so that a client that reads it while it is renewed sees the old or the new one. */
export async function writeCreds(path: string, jwt: string, seed: string): Promise<void> {
  await writeAtomic(path, credsText(jwt, seed), SECRET_MODE);
}

const busFilePath = (dataDir: string) => join(dataDir, 'bus.json');

export async function writeBusFile(dataDir: string, file: BusFile): Promise<void> {
  await writeAtomic(busFilePath(dataDir), `${JSON.stringify(file)}\n`, 0o644);
}

/** Undefined when no bus runs on this folder (or none was stopped in order). */
export async function readBusFile(dataDir: string): Promise<BusFile | undefined> {
  const text = await readIfThere(busFilePath(dataDir));
  return text === undefined ? undefined : BusFile.parse(JSON.parse(text));
}

export async function removeBusFile(dataDir: string): Promise<void> {
  await rm(busFilePath(dataDir), { force: true });
}
