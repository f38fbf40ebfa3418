/**
 * Reading what the jobs of a flow print: pages of `HB_LOGS`, taken as fast as the reader wants them.
 *
 *   P1 in order, each message once; one page is in memory, the next is asked for when it is wanted;
 *   P2 a consumer that may have handed out what did not arrive (a fault, a wait that was ended) is given up:
 *      its successor begins anew behind what was delivered;
 *   P3 the stream may lose its last messages with its server and give their sequences to others
 *      (`persist_mode: async`, bus/streams.ts). So a successor begins some messages back: those that were
 *      delivered are passed over, known by sequence and time; others are news, whatever their sequence.
 *
 * What the messages hold is schemas/job.ts; what people see of it is tools/cli/logs.ts.
 */
import type { NatsConnection } from '@nats-io/transport-node';
import { HeroError } from '../schemas/errors.ts';
import type { FlowRef } from '../schemas/ids.ts';
import { backoffMs } from './backoff.ts';
import type { Link } from './bus.ts';
import { pullPage, type Stored } from './jetstream.ts';
import { parseLogsSubject } from './subjects.ts';

export type OutputQuery = {
  ref: FlowRef;
  /** One job; null for all and the script's own. */
  job: number | null;
  /** First sequence to deliver; null for the first, or the first since `since`. */
  from: number | null;
  /** What was stored from this time on, epoch ms. */
  since: number | null;
};

export type OutputMessage = { seq: number; at: number; job: number | 'main'; data: Uint8Array };

export interface OutputReader {
  /**
   * What is stored next. Without a signal, empty means: nothing more was stored at the time of the call. With
   * one it waits for what comes, and is empty when the signal ended the wait or nothing came for a while.
   * Goes on by itself while the bus is away, for `AWAY_MAX_MS`; rejects with `unreachable` after that.
   */
  next(signal?: AbortSignal): Promise<OutputMessage[]>;
}

/** A client's memory is a few of these, whatever the flow printed. */
const PAGE = { batch: 64, maxBytes: 2 * 1024 * 1024 } as const;
const WAIT_MS = 20_000;
/** How many messages of this reader are looked at again after a fault (P3). */
const REMEMBERED_MAX = 64;
/** Within the 60 s after which an idle consumer is gone. */
const CONSUMER_KEPT_MS = 40_000;
/** A bus that is restarted is back well within this. */
const AWAY_MAX_MS = 120_000;
const RETRY = { firstMs: 50, capMs: 2_000 };
/** What the ledger says while it is busy or starting: worth another try. */
const PASSING: ReadonlySet<string> = new Set(['unreachable', 'quota']);

type Target = { stream: string; consumer: string };
type Make = (from: number | null) => Promise<Target>;

export function readOutput(
  connection: { nats: NatsConnection; link: Link },
  query: OutputQuery,
  make: Make,
): OutputReader {
  return new Reader(connection, query, make);
}

class Reader implements OutputReader {
  readonly #nats: NatsConnection;
  readonly #link: Link;
  readonly #make: Make;
  readonly #first: number | null;
  #kept: (Target & { pulledMs: number }) | undefined;
  /** The last messages delivered, oldest first. */
  #delivered: { seq: number; at: number }[] = [];

  constructor(
    { nats, link }: { nats: NatsConnection; link: Link },
    { from }: OutputQuery,
    make: Make,
  ) {
    this.#nats = nats;
    this.#link = link;
    this.#make = make;
    this.#first = from;
  }

  async next(signal?: AbortSignal): Promise<OutputMessage[]> {
    const begunMs = performance.now();
    for (let attempt = 0; ; attempt++) {
      try {
        const page = await this.#page(0, signal);
        if (page.length > 0 || signal === undefined) return page;
        return await this.#page(WAIT_MS, signal);
      } catch (error) {
        this.#kept = undefined;
        if (signal?.aborted) return [];
        if (!(error instanceof HeroError) || !PASSING.has(error.code)) throw error;
        if (performance.now() - begunMs > AWAY_MAX_MS + WAIT_MS) throw error;
        await new Promise((resolve) => setTimeout(resolve, backoffMs(attempt, RETRY)));
      }
    }
  }

  /** News only; goes on past pages that hold none, so that empty means what `next` says. */
  async #page(waitMs: number, signal: AbortSignal | undefined): Promise<OutputMessage[]> {
    for (;;) {
      const target = await this.#consumer();
      // A wait ends with its first message: what else has come by then is the next page.
      const wanted = waitMs > 0 ? { ...PAGE, batch: 1 } : PAGE;
      const request = { ...wanted, waitMs, ...(signal === undefined ? {} : { signal }) };
      const { messages } = await pullPage(this.#nats, target, request);
      target.pulledMs = performance.now();
      if (messages.length === 0) return [];
      const news = messages.filter((message) => this.#isNews(message)).flatMap(toOutput);
      if (news.length > 0) return news;
    }
  }

  async #consumer(): Promise<Target & { pulledMs: number }> {
    const kept = this.#kept;
    const isFresh =
      kept !== undefined &&
      kept.pulledMs > this.#link.state().sinceMs &&
      performance.now() - kept.pulledMs < CONSUMER_KEPT_MS;
    if (isFresh) return kept;
    const from = this.#delivered[0]?.seq ?? this.#first;
    this.#kept = { ...(await this.#make(from)), pulledMs: performance.now() };
    return this.#kept;
  }

  #isNews({ seq, at }: Stored): boolean {
    if (this.#delivered.some((known) => known.seq === seq && known.at === at)) return false;
    this.#delivered.push({ seq, at });
    if (this.#delivered.length > REMEMBERED_MAX) this.#delivered.shift();
    return true;
  }
}

function toOutput({ subject, seq, at, data }: Stored): OutputMessage[] {
  const job = parseLogsSubject(subject);
  return job === undefined ? [] : [{ seq, at, job, data }];
}
