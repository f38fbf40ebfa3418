/**
 * Gathering: what is asked for in one turn of the event loop goes to the server together.
 *
 * One fsync for each message is the cost that decides everything (DESIGN 3, Packing). A gatherer waits for
 * nothing when idle: what comes alone goes alone at the end of the turn; while its few sends are under way
 * it gathers more. How items are sent, and what each learns of it, is bus/append.ts.
 */
import type { NatsConnection } from '@nats-io/transport-node';
import { randomBytes } from 'node:crypto';
import { assertThere, publishAcked, toHeaders, type Headers, type PubAck } from './jetstream.ts';

/** An entry of a log is at most this; a longer plan is several (DESIGN 3). */
export const ENTRY_BYTES_MAX = 256 * 1024;
/** The server takes 1,000 messages in a batch; larger ones gain little and hold up more. */
export const BATCH_ITEMS_MAX = 250;
export const BATCH_BYTES_MAX = 1024 * 1024;
/**
 * A batch is staged on disk first, with syncs of its own (four in all, seen with strace on 2.15.1), so
 * fewer messages than this are cheaper one by one.
 */
export const BATCH_ITEMS_MIN = 5;

export type Gatherer<T> = {
  add(item: T): void;
  /** How many wait or are under way. */
  size(): number;
};

export type GathererOptions<T> = {
  /** Sends under way at a time. */
  inFlightMax: number;
  bytes: (item: T) => number;
  /** Items with the same key never travel in one send: the second could not know of the first. */
  key: (item: T) => string | undefined;
  /** Settles every item by itself; must not reject. */
  send: (items: T[]) => Promise<void>;
};

export function makeGatherer<T>(options: GathererOptions<T>): Gatherer<T> {
  let waiting: T[] = [];
  let underWay = 0;
  let inFlight = 0;
  let scheduled = false;

  const flush = () => {
    scheduled = false;
    while (waiting.length > 0 && inFlight < options.inFlightMax) {
      const { taken, left } = takeBatch(waiting, options);
      waiting = left;
      inFlight++;
      underWay += taken.length;
      void options.send(taken).finally(() => {
        inFlight--;
        underWay -= taken.length;
        schedule();
      });
    }
  };
  const schedule = () => {
    if (scheduled || waiting.length === 0 || inFlight >= options.inFlightMax) return;
    scheduled = true;
    setImmediate(flush);
  };
  return {
    add: (item) => {
      waiting.push(item);
      schedule();
    },
    size: () => waiting.length + underWay,
  };
}

function takeBatch<T>(waiting: T[], { bytes, key }: GathererOptions<T>): { taken: T[]; left: T[] } {
  const taken: T[] = [];
  const left: T[] = [];
  const keys = new Set<string>();
  let size = 0;
  for (const [index, item] of waiting.entries()) {
    const full = taken.length >= BATCH_ITEMS_MAX || size + bytes(item) > BATCH_BYTES_MAX;
    if (full && taken.length > 0) {
      left.push(...waiting.slice(index));
      break;
    }
    const name = key(item);
    if (name !== undefined && keys.has(name)) {
      left.push(item);
      continue;
    }
    if (name !== undefined) keys.add(name);
    size += bytes(item);
    taken.push(item);
  }
  return { taken, left };
}

export type BatchItem = { subject: string; data: Uint8Array; headers: Headers };

/**
 * Publishes several messages as one: all are stored or none. Items are stored in order under consecutive
 * sequences that end with the acknowledgement's. A refusal does not say whose fence failed.
 */
export async function publishBatch(
  nats: NatsConnection,
  items: readonly BatchItem[],
  timeoutMs: number,
): Promise<PubAck> {
  await assertThere(nats, 'a batch', timeoutMs);
  const id = randomBytes(16).toString('hex');
  const last = items.length - 1;
  for (const [index, item] of items.entries()) {
    const headers = {
      ...item.headers,
      'Nats-Batch-Id': id,
      'Nats-Batch-Sequence': String(index + 1),
    };
    if (index === last) {
      return publishAcked(nats, item.subject, item.data, {
        headers: { ...headers, 'Nats-Batch-Commit': '1' },
        timeoutMs,
      });
    }
    nats.publish(item.subject, item.data, { headers: toHeaders(headers) });
  }
  throw new TypeError('an empty batch');
}
