/**
 * Buckets of JSON values (NATS KV), read and written raw so that no right to make consumers is needed.
 *
 * Keys are any text: `escapeKey` is the one function that makes a subject token of it (INTERFACES 4).
 * Values are JSON; numbers print as they were written (`exactJson`), so typed values pass unharmed. Which buckets there are is bus/streams.ts.
 */
import type { NatsConnection } from '@nats-io/transport-node';
import { exactJson } from '../schemas/json.ts';
import { backoffMs } from './backoff.ts';
import { RevisionLost, type Kv, type KvEntry, type Link, type Subscription } from './bus.ts';
import type { BusClock } from './clock.ts';
import {
  HEADER,
  isFenceRefusal,
  publishAcked,
  readLast,
  readLastOfAll,
  storedFromHeaders,
  type Headers,
  type Stored,
} from './jetstream.ts';
import { gatheredPublisher } from './gathered.ts';
import { bucketCopies, bucketStream, isFleeting } from './streams.ts';

const TIMEOUT_MS = 5_000;
const TRIES_MAX = 6;
const RETRY = { firstMs: 50, capMs: 5_000 };
const NO_DATA = new Uint8Array(0);
/** How long a deletion stands in a fleeting bucket: longer than any write of the same key is under way. */
const DELETED_FOR = '10m';

/** Bytes outside `[A-Za-z0-9_-]` as `=hh`; the empty key as `=`: one token, and another for each key. */
export function escapeKey(key: string): string {
  if (key === '') return '=';
  let token = '';
  for (const byte of new TextEncoder().encode(key)) {
    const character = String.fromCharCode(byte);
    token += /[A-Za-z0-9_-]/.test(character) ? character : `=${byte.toString(16).padStart(2, '0')}`;
  }
  return token;
}

/** Undefined for what `escapeKey` never writes. */
export function unescapeKey(token: string): string | undefined {
  if (token === '=') return '';
  if (!/^(?:[A-Za-z0-9_-]|=[0-9a-f]{2})+$/.test(token)) return undefined;
  const bytes: number[] = [];
  for (let at = 0; at < token.length; at++) {
    if (token[at] === '=') {
      bytes.push(Number.parseInt(token.slice(at + 1, at + 3), 16));
      at += 2;
    } else {
      bytes.push(token.charCodeAt(at));
    }
  }
  try {
    const key = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(
      Uint8Array.from(bytes),
    );
    return escapeKey(key) === token ? key : undefined;
  } catch {
    return undefined;
  }
}

export type KvOptions = {
  nats: NatsConnection;
  link: Link;
  clock: BusClock;
  bucket: string;
  /** New for each write: how a writer knows its own value again after a lost acknowledgement. */
  writeId: () => string;
};

type Write = { data: Uint8Array; headers?: Headers; expected?: number };

export function openKv(options: KvOptions): Kv {
  const { nats, bucket } = options;
  const stream = bucketStream(bucket);
  const subjectOf = (key: string) => `$KV.${bucket}.${escapeKey(key)}`;
  const last = (key: string) => readLast(nats, stream, subjectOf(key), TIMEOUT_MS);
  const value = (data: unknown) => Buffer.from(JSON.stringify(data ?? null));
  const writeTo = (key: string, change: Write) => write(options, stream, subjectOf(key), change);
  const gathered = gatheredPublisher({
    nats,
    ordered: true,
    alone: ({ subject, data, headers }) => write(options, stream, subject, { data, headers }),
  });
  const set = (key: string, data: Uint8Array, headers: Headers = {}): Promise<number> =>
    isFleeting(bucket)
      ? gathered.publish({ subject: subjectOf(key), data, headers })
      : writeTo(key, { data, headers });
  return {
    get: async (key) => {
      const stored = await last(key);
      return stored === undefined ? undefined : toEntry(key, stored);
    },
    revision: async (key) => (await last(key))?.seq ?? 0,
    put: (key, data) => set(key, value(data)),
    create: async (key, data) => {
      try {
        return await writeTo(key, { data: value(data), expected: 0 });
      } catch (error) {
        // A key that was deleted still has a last revision: its tombstone's.
        const stored = error instanceof RevisionLost ? await last(key) : undefined;
        if (stored === undefined || !isTombstone(stored)) throw error;
        return writeTo(key, { data: value(data), expected: stored.seq });
      }
    },
    update: (key, data, revision) => writeTo(key, { data: value(data), expected: revision }),
    delete: async (key, revision) => {
      const fleeting: Headers = isFleeting(bucket) ? { [HEADER.ttl]: DELETED_FOR } : {};
      const headers = { [HEADER.operation]: 'DEL', ...fleeting };
      if (revision === undefined) await set(key, NO_DATA, headers);
      else await writeTo(key, { data: NO_DATA, headers, expected: revision });
    },
    list: async (prefix = '') => {
      const keys: string[] = [];
      for (const stored of await readAll(nats, bucket)) {
        const key = keyOf(bucket, stored.subject);
        if (key?.startsWith(prefix) && !isTombstone(stored)) keys.push(key);
      }
      return keys.toSorted();
    },
    watch: (onChange) => watchBucket(options, onChange),
  };
}

/**
 * One write until it is certain what became of it. A fenced one that is refused on a second send may have
 * been stored by the first: then its own id stands on the key.
 */
async function write(
  { nats, writeId }: KvOptions,
  stream: string,
  subject: string,
  { data, headers = {}, expected }: Write,
): Promise<number> {
  const id = writeId();
  const fields: Headers = {
    ...headers,
    [HEADER.entry]: id,
    ...(expected === undefined
      ? { [HEADER.messageId]: id }
      : { [HEADER.expected]: String(expected) }),
  };
  for (let attempt = 0; ; attempt++) {
    try {
      const ack = await publishAcked(nats, subject, data, {
        headers: fields,
        timeoutMs: TIMEOUT_MS,
      });
      return ack.seq;
    } catch (error) {
      if (isFenceRefusal(error)) {
        const stored = await readLast(nats, stream, subject, TIMEOUT_MS);
        if (stored?.header(HEADER.entry) === id) return stored.seq;
        throw new RevisionLost(`another value stands at revision ${stored?.seq ?? 0}`);
      }
      const unreachable = error instanceof Error && 'code' in error && error.code === 'unreachable';
      if (!unreachable || attempt + 1 >= TRIES_MAX || nats.isClosed()) throw error;
      await new Promise((resolve) => setTimeout(resolve, backoffMs(attempt, RETRY)));
    }
  }
}

function isTombstone(stored: Stored): boolean {
  const operation = stored.header(HEADER.operation);
  return operation === 'DEL' || operation === 'PURGE';
}

function toEntry(key: string, stored: Stored): KvEntry | undefined {
  if (isTombstone(stored)) return undefined;
  return { key, value: parseValue(stored.data), revision: stored.seq, at: stored.at };
}

/** What is no JSON was put there by another client; its reader's schema refuses it. */
function parseValue(data: Uint8Array): unknown {
  try {
    return exactJson(new TextDecoder().decode(data));
  } catch {
    return undefined;
  }
}

/** The key in a bucket's subject; undefined for one that is not ours. */
function keyOf(bucket: string, subject: string): string | undefined {
  const prefix = `$KV.${bucket}.`;
  return subject.startsWith(prefix) ? unescapeKey(subject.slice(prefix.length)) : undefined;
}

/** The last message of every key, tombstones too. */
async function readAll(nats: NatsConnection, bucket: string): Promise<Stored[]> {
  const all: Stored[] = [];
  for await (const stored of readLastOfAll(nats, bucketStream(bucket), `$KV.${bucket}.>`)) {
    all.push(stored);
  }
  return all;
}

/**
 * Everything now, then every change, from the stream's copies of what it stored. After the link was down
 * the bucket is read again and only what differs is told.
 */
async function watchBucket(
  { nats, link, clock, bucket }: KvOptions,
  onChange: (key: string, entry: KvEntry | undefined) => void,
): Promise<Subscription> {
  /** Revision of every key told, also of those told as deleted. */
  const told = new Map<string, number>();
  let held: Stored[] | undefined = [];
  let stopped = false;

  const tell = (stored: Stored) => {
    const key = keyOf(bucket, stored.subject);
    if (stopped || key === undefined || (told.get(key) ?? 0) >= stored.seq) return;
    const isNew = !told.has(key);
    told.set(key, stored.seq);
    const entry = toEntry(key, stored);
    // A tombstone of a key nobody was told of is no news.
    if (entry !== undefined || !isNew) onChange(key, entry);
  };
  const readNow = async () => {
    held ??= [];
    for (const stored of await readAll(nats, bucket)) tell(stored);
    const waiting = held ?? [];
    held = undefined;
    for (const stored of waiting.toSorted((a, b) => a.seq - b.seq)) tell(stored);
  };
  const readUntilDone = async () => {
    for (let attempt = 0; !stopped; attempt++) {
      try {
        return await readNow();
      } catch {
        await new Promise((resolve) => setTimeout(resolve, backoffMs(attempt, RETRY)));
      }
    }
  };
  const subscription = nats.subscribe(bucketCopies(bucket), {
    callback: (error, message) => {
      const stored = error ? undefined : storedFromHeaders(message);
      if (stored === undefined) return;
      clock.saw(stored.at);
      if (held === undefined) tell(stored);
      else held.push(stored);
    },
  });
  const watch = link.onChange(({ up }) => {
    held ??= [];
    if (up) void readUntilDone();
  });
  await readNow();
  return {
    stop: () => {
      stopped = true;
      watch.stop();
      subscription.unsubscribe();
    },
  };
}
