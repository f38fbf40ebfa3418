/**
 * Reading a flow's log: what is stored (a range), and what is stored from now on (a follow).
 *
 * F1 Entries come from the stream or from the stream's own copies of what it stored (`hb.stored.…`), never
 *    from what somebody published.
 * F2 A follow listens first and reads then, so nothing falls between; by sequence, each once, in order.
 * F3 When the link was down, copies were lost: what arrives afterwards is held until the range is read
 *    again.
 * F4 A copy may be lost although no link went down. Each reading of a follow `with onMissed` starts after the
 *    last one, so that it finds what was passed over; who follows asks for one when things stand still.
 *
 * How a range is read depends on the connection: the control plane reads the stream directly, everybody
 * else through a pull consumer that the ledger made for them (bus/nats.ts gives the `RangeReader`).
 */
import type { NatsConnection } from '@nats-io/transport-node';
import { exactJson } from '../schemas/json.ts';
import { backoffMs } from './backoff.ts';
import type { Entry, Follower, Link } from './bus.ts';
import type { BusClock } from './clock.ts';
import { proofOf } from './entry-signature.ts';
import {
  HEADER,
  pullNow,
  readBatch,
  readLast,
  storedFromHeaders,
  type Stored,
} from './jetstream.ts';
import { parseFlowSubject, streams } from './subjects.ts';

/** Reads what a log holds from a sequence on, page by page. One reader serves one follow or read. */
export type RangeReader = (from: number) => AsyncIterable<Stored[]>;

const PAGE_ITEMS = 256;
const PAGE_BYTES = 8 * 1024 * 1024;
const READ_TIMEOUT_MS = 5_000;
const RETRY = { firstMs: 50, capMs: 5_000 };

/** For who may read the stream itself: what stands under a filter. */
export function directRange(
  nats: NatsConnection,
  filter: string,
  stream: string = streams.flow,
): RangeReader {
  return async function* (from) {
    for (let seq = from; ; ) {
      const { messages, pending } = await readBatch(nats, stream, {
        seq,
        next_by_subj: filter,
        batch: PAGE_ITEMS,
        max_bytes: PAGE_BYTES,
      });
      const last = messages.at(-1);
      if (last === undefined) return;
      yield messages;
      if (pending === 0) return;
      seq = last.seq + 1;
    }
  };
}

/** Within the 60 s after which an idle consumer is gone: a pull of one that is gone has no answer at all. */
const CONSUMER_KEPT_MS = 40_000;

/**
 * Through a consumer that `make` asks for. It is its own cursor and is kept for the next range, unless it
 * may be gone: after a while without a pull, and with its server, as it lives in that one's memory.
 */
export function consumerRange(
  { nats, link }: { nats: NatsConnection; link: Link },
  make: (from: number) => Promise<{ stream: string; consumer: string }>,
): RangeReader {
  let kept: { stream: string; consumer: string; pulledMs: number } | undefined;
  const isFresh = () =>
    kept !== undefined &&
    kept.pulledMs > link.state().sinceMs &&
    performance.now() - kept.pulledMs < CONSUMER_KEPT_MS;
  return async function* (from) {
    let seq = from;
    for (;;) {
      kept = isFresh() && kept ? kept : { ...(await make(seq)), pulledMs: performance.now() };
      const { messages, pending } = await pullNow(nats, kept, PAGE_ITEMS).catch(
        (error: unknown) => {
          kept = undefined;
          throw error;
        },
      );
      kept.pulledMs = performance.now();
      const wanted = messages.filter((message) => message.seq >= seq);
      if (wanted.length > 0) yield wanted;
      seq = Math.max(seq, (messages.at(-1)?.seq ?? 0) + 1);
      if (messages.length === 0 || pending === 0) return;
    }
  };
}

export type FollowOptions = {
  nats: NatsConnection;
  link: Link;
  clock: BusClock;
  /** Where copies come. */
  live: string;
  range: RangeReader;
  /** First sequence to deliver; or a filter: what comes after the last message under it. */
  from: number | { after: string };
  wanted: (entry: Entry) => boolean;
  onEntry: (entry: Entry) => void;
  /** Told of an entry that stands before others which were delivered already: its copy was lost. */
  onMissed?: ((entry: Entry) => void) | undefined;
};

/** Copies that no reading has confirmed: more are not remembered, a reading confirms them. */
const UNCONFIRMED_MAX = 8192;

export function startFollow(options: FollowOptions): Follower {
  return new Follow(options);
}

class Follow implements Follower {
  readonly #options: FollowOptions;
  readonly #caughtUp = Promise.withResolvers<number>();
  readonly #endings: (() => void)[];
  /** Sequence of the last entry delivered or passed over. */
  #last: number;
  /** Up to here the stream was read; and what was delivered beyond, by its copies alone (F4). */
  #confirmed: number;
  readonly #unconfirmed = new Set<number>();
  /** What came live while a range was, or has to be, read; undefined when nothing is held. */
  #held: Stored[] | undefined = [];
  /** A wish that comes while a read runs is read for afterwards. */
  #wished = 0;
  #fulfilled = 0;
  #running = false;
  readonly #checks: (() => void)[] = [];
  #stopped = false;

  constructor(options: FollowOptions) {
    this.#options = options;
    this.#last = typeof options.from === 'number' ? options.from - 1 : 0;
    this.#confirmed = this.#last;
    const subscription = options.nats.subscribe(options.live, {
      callback: (error, message) => {
        const stored = error ? undefined : storedFromHeaders(message);
        if (stored !== undefined) this.#takeCopy(stored);
      },
    });
    const watch = options.link.onChange(({ up }) => {
      this.#held ??= [];
      if (up) this.poke();
    });
    this.#endings = [() => subscription.unsubscribe(), () => watch.stop()];
    this.poke();
  }

  get caughtUp(): Promise<number> {
    return this.#caughtUp.promise;
  }

  poke(): void {
    if (this.#stopped) return;
    this.#wished++;
    this.#held ??= [];
    void this.#readUntilFulfilled();
  }

  async check(): Promise<void> {
    this.poke();
    const wish = this.#wished;
    while (!this.#stopped && this.#fulfilled < wish) {
      await new Promise<void>((resolve) => this.#checks.push(resolve));
    }
  }

  stop(): void {
    this.#stopped = true;
    this.#held = [];
    this.#caughtUp.resolve(this.#last);
    this.#settleChecks();
    for (const end of this.#endings) end();
  }

  #takeCopy(stored: Stored): void {
    this.#options.clock.saw(stored.at);
    if (this.#held === undefined) this.#deliverCopy(stored);
    else this.#held.push(stored);
  }

  #deliverCopy(stored: Stored): void {
    if (this.#options.onMissed !== undefined && stored.seq > this.#last) {
      this.#unconfirmed.add(stored.seq);
      if (this.#unconfirmed.size > UNCONFIRMED_MAX && !this.#running) this.poke();
    }
    this.#deliver(stored);
  }

  #deliver(stored: Stored): void {
    if (this.#stopped || stored.seq <= this.#last) return;
    this.#last = stored.seq;
    this.#tell(stored, this.#options.onEntry);
  }

  #tell(stored: Stored, onEntry: (entry: Entry) => void): void {
    const entry = toEntry(stored);
    if (entry === undefined || !this.#options.wanted(entry)) return;
    try {
      onEntry(entry);
    } catch (error) {
      // The consumer's fault must not end the follow, and must not be lost either.
      queueMicrotask(() => {
        throw error;
      });
    }
  }

  async #readUntilFulfilled(): Promise<void> {
    if (this.#running) return;
    this.#running = true;
    for (let attempt = 0; !this.#stopped && this.#fulfilled < this.#wished; ) {
      const wish = this.#wished;
      try {
        await this.#readOnce();
        this.#fulfilled = wish;
        attempt = 0;
      } catch {
        // The link or the ledger is away: the read is repeated until it works, or nobody wants it.
        await new Promise((resolve) => setTimeout(resolve, backoffMs(attempt++, RETRY)));
      }
    }
    this.#running = false;
    if (!this.#stopped) this.#release();
    this.#caughtUp.resolve(this.#last);
    this.#settleChecks();
  }

  #settleChecks(): void {
    for (const settle of this.#checks.splice(0)) settle();
  }

  async #readOnce(): Promise<void> {
    const { from, nats, range } = this.#options;
    if (this.#fulfilled === 0 && typeof from !== 'number') {
      const latest = await readLast(nats, streams.flow, from.after, READ_TIMEOUT_MS);
      this.#last = latest?.seq ?? 0;
      return;
    }
    const { onMissed } = this.#options;
    for await (const page of range((onMissed ? this.#confirmed : this.#last) + 1)) {
      for (const stored of page) {
        const copied = this.#unconfirmed.delete(stored.seq);
        if (stored.seq > this.#last) this.#deliver(stored);
        else if (onMissed && !copied && stored.seq > this.#confirmed) this.#tell(stored, onMissed);
        this.#confirmed = Math.max(this.#confirmed, stored.seq);
        if (this.#stopped) return;
      }
    }
  }

  #release(): void {
    const ready = (this.#held ?? []).toSorted((a, b) => a.seq - b.seq);
    // A link that went down meanwhile has its own wish to come, and must find things held.
    this.#held = this.#options.link.state().up ? undefined : [];
    for (const stored of ready) this.#deliverCopy(stored);
  }
}

/** A stored message as an entry; undefined when its subject is none of a flow's log. */
export function toEntry(stored: Stored): Entry | undefined {
  const subject = parseFlowSubject(stored.subject);
  if (subject === undefined) return undefined;
  const parse = subject.lane === 'main' && subject.kind === 'end' ? exactJson : JSON.parse;
  const { seq, at, data } = stored;
  const part = { subject: stored.subject, id: stored.header(HEADER.entry) ?? '', data };
  const proof = proofOf(part, stored.header(HEADER.signature), subject.writer) ?? null;
  return { ...subject, seq, at, body: parseBody(data, parse), proof };
}

/**
 * What is no JSON has no body: the fold's schemas refuse it like any other foreign thing. Only an end
 * carries a value of the script's own, whose numbers are kept as written.
 */
function parseBody(data: Uint8Array, parse: (text: string) => unknown): unknown {
  try {
    return parse(new TextDecoder().decode(data));
  } catch {
    return undefined;
  }
}
