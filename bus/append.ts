/**
 * Appending to HB_FLOW: each append resolves after its own commit, and "it threw" means "it is not there".
 *
 * A1 An entry has an id of its own in the header hb-entry (incarnation and counter), so that a writer
 *    finds out whether an entry whose acknowledgement was lost is stored.
 * A2 A fenced entry, if stored, is the first one of its filter after the sequence it expected. That is
 *    where a refused writer looks: its own entry there means that it had succeeded.
 * A3 A fenced entry may be sent again as often as needed: a fence lets it in once.
 * A4 At most one entry of a filter travels in a batch: two that expect the same would both be stored.
 *
 * Which entries there are, and with which fence, is bus/log.ts; what travels together is bus/pack.ts. When
 * they were stored is learnt by who reads them: acknowledgements do not tell.
 */
import type { NatsConnection } from '@nats-io/transport-node';
import { HeroError, ensureError } from '../schemas/errors.ts';
import type { Incarnation } from '../schemas/ids.ts';
import { backoffMs } from './backoff.ts';
import { FenceLost, type Appended, type Link } from './bus.ts';
import { type EntrySigner, signEntry } from './entry-signature.ts';
import {
  HEADER,
  isFenceRefusal,
  mapNatsError,
  publishAcked,
  readLast,
  ServerRefusal,
  type Headers,
  type Stored,
} from './jetstream.ts';
import { BATCH_ITEMS_MIN, makeGatherer, publishBatch } from './pack.ts';
import { streams } from './subjects.ts';

export type Fence = { filter: string; expected: number };
/** Kinds that never share a batch: a refused one must not hold up the others (DESIGN 3). */
export type Lane = 'decision' | 'claim' | 'fact';

export type Appender = {
  append(lane: Lane, subject: string, data: Uint8Array, fence?: Fence): Promise<Appended>;
  close(): void;
};

export type AppenderOptions = {
  nats: NatsConnection;
  link: Link;
  incarnation: Incarnation;
  /** Who writes. */
  signer: EntrySigner;
  /** The first entry under a fence's filter from a sequence on; for the rare case of A2. */
  firstFrom: (filter: string, seq: number) => Promise<Stored | undefined>;
};

type Item = {
  id: string;
  subject: string;
  data: Uint8Array;
  fence: Fence | undefined;
  signature: string;
  sends: number;
  settled: boolean;
  resolve: (appended: Appended) => void;
  reject: (error: Error) => void;
};

const ACK_TIMEOUT_MS = 5_000;
const BATCH_TIMEOUT_MS = 10_000;
const READ_TIMEOUT_MS = 5_000;
const RETRY = { firstMs: 50, capMs: 2_000 };
/** Sends under way for each lane: more would only queue in the server, unpacked. */
const IN_FLIGHT_MAX = 4;

export function makeAppender(options: AppenderOptions): Appender {
  const pending = new Map<string, Item>();
  const closing = new AbortController();
  let counter = 0;
  const context: Context = { ...options, pending, closing: closing.signal };
  const gather = () =>
    makeGatherer<Item>({
      inFlightMax: IN_FLIGHT_MAX,
      bytes: (item) => item.data.length,
      key: (item) => item.fence?.filter,
      send: (items) => send(context, items),
    });
  const lanes = { decision: gather(), claim: gather(), fact: gather() };
  return {
    append: (lane, subject, data, fence) =>
      new Promise((resolve, reject) => {
        if (closing.signal.aborted) return reject(closed());
        const id = `${options.incarnation}:${++counter}`;
        const item: Item = {
          id,
          subject,
          data,
          fence,
          signature: signEntry(
            options.signer,
            { subject, id, data },
            lane === 'decision' ? (fence?.expected ?? null) : null,
          ),
          sends: 0,
          settled: false,
          resolve,
          reject,
        };
        pending.set(id, item);
        lanes[lane].add(item);
      }),
    close: () => {
      closing.abort();
      for (const item of pending.values()) fail(context, item, closed());
    },
  };
}

type Context = AppenderOptions & { pending: Map<string, Item>; closing: AbortSignal };

/** The one case where an append that threw may yet be stored: its process no longer asks. */
function closed(): HeroError {
  return new HeroError('unreachable', 'the bus was closed while an append was under way');
}

function done(context: Context, item: Item, appended: Appended): void {
  if (item.settled) return;
  item.settled = true;
  context.pending.delete(item.id);
  item.resolve(appended);
}

function fail(context: Context, item: Item, error: Error): void {
  if (item.settled) return;
  item.settled = true;
  context.pending.delete(item.id);
  item.reject(error);
}

function itemHeaders(item: Item): Headers {
  const own = { [HEADER.entry]: item.id, [HEADER.signature]: item.signature };
  if (item.fence === undefined) return own;
  return {
    ...own,
    [HEADER.expected]: String(item.fence.expected),
    [HEADER.expectedFilter]: item.fence.filter,
  };
}

async function send(context: Context, items: Item[], round = 0): Promise<void> {
  if (items.length < BATCH_ITEMS_MIN || round > 1) {
    await Promise.all(items.map((item) => sendAlone(context, item)));
    return;
  }
  for (const item of items) item.sends++;
  try {
    const batch = items.map((item) => ({ ...item, headers: itemHeaders(item) }));
    const ack = await publishBatch(context.nats, batch, BATCH_TIMEOUT_MS);
    const first = ack.seq - items.length + 1;
    for (const [index, item] of items.entries()) done(context, item, { seq: first + index });
  } catch (thrown) {
    // Whose fence failed is not said: the stale are told, the others go once more, then singly.
    const left = isFenceRefusal(thrown) ? await dropStale(context, items) : items;
    await send(context, left, isFenceRefusal(thrown) ? round + 1 : 2);
  }
}

async function dropStale(context: Context, items: Item[]): Promise<Item[]> {
  const fresh = await Promise.all(
    items.map(async (item) => {
      if (item.settled || item.fence === undefined) return !item.settled;
      const last = await readLast(
        context.nats,
        streams.flow,
        item.fence.filter,
        READ_TIMEOUT_MS,
      ).catch(() => undefined);
      if (last === undefined || last.seq <= item.fence.expected) return true;
      await refused(context, item, last);
      return false;
    }),
  );
  return items.filter((_, index) => fresh[index]);
}

/** Sends one entry until it is certain what became of it. */
async function sendAlone(context: Context, item: Item): Promise<void> {
  for (let attempt = 0; !item.settled; attempt++) {
    try {
      item.sends++;
      const ack = await publishAcked(context.nats, item.subject, item.data, {
        // Without a fence the stream's own window keeps a second send out. A fence does that by itself,
        // and would be judged before the id (reference/bus.md 4).
        headers:
          item.fence === undefined
            ? { ...itemHeaders(item), [HEADER.messageId]: item.id }
            : itemHeaders(item),
        timeoutMs: ACK_TIMEOUT_MS,
      });
      done(context, item, { seq: ack.seq });
      return;
    } catch (thrown) {
      if (await judge(context, item, ensureError(thrown))) return;
      await pause(context, attempt);
    }
  }
}

/** True when the item is settled; false when it has to be sent again. */
async function judge(context: Context, item: Item, error: Error): Promise<boolean> {
  if (isFenceRefusal(error) && item.fence !== undefined) {
    const { filter, expected } = item.fence;
    const last = await readLast(context.nats, streams.flow, filter, READ_TIMEOUT_MS).catch(
      () => undefined,
    );
    if (last === undefined) return false;
    // Refused although nothing newer stands there: a state of the server that has passed.
    if (last.seq <= expected) {
      if (last.seq === expected) return false;
      fail(context, item, new FenceLost(last.seq));
      return true;
    }
    return refused(context, item, last);
  }
  const mapped = error instanceof ServerRefusal ? error : mapNatsError(error, item.subject);
  if (mapped instanceof HeroError && mapped.code === 'unreachable') {
    if (!context.closing.aborted && !context.nats.isClosed()) return false;
    fail(context, item, closed());
    return true;
  }
  fail(
    context,
    item,
    mapped instanceof HeroError
      ? mapped
      : new HeroError('internal', `the log refused an entry: ${mapped.message}`, { cause: mapped }),
  );
  return true;
}

/** A2: tells an entry of our own that is already stored from one that lost. True when that is settled. */
async function refused(context: Context, item: Item, last: Stored): Promise<boolean> {
  const fence = item.fence;
  if (fence === undefined) return false;
  let first: Stored | undefined = last;
  const onlyOne = Number(last.header(HEADER.expected)) === fence.expected;
  if (last.header(HEADER.entry) !== item.id && item.sends > 1 && !onlyOne) {
    first = await context.firstFrom(fence.filter, fence.expected + 1).catch(() => undefined);
    if (first === undefined) return false;
  }
  if (first.header(HEADER.entry) === item.id) done(context, item, { seq: first.seq });
  else fail(context, item, new FenceLost(last.seq));
  return true;
}

/** Waits for the back-off and for the link: sending into a dead link only fills a buffer. */
async function pause(context: Context, attempt: number): Promise<void> {
  await new Promise<void>((resolve) => {
    const timer = setTimeout(finish, backoffMs(attempt, RETRY));
    function finish() {
      clearTimeout(timer);
      context.closing.removeEventListener('abort', finish);
      resolve();
    }
    context.closing.addEventListener('abort', finish, { once: true });
  });
  if (context.closing.aborted || context.link.state().up) return;
  await new Promise<void>((resolve) => {
    const watch = context.link.onChange((state) => {
      if (state.up) finish();
    });
    function finish() {
      watch.stop();
      context.closing.removeEventListener('abort', finish);
      resolve();
    }
    context.closing.addEventListener('abort', finish, { once: true });
  });
}
