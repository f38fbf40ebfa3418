/**
 * A pull consumer: hands out what its stream holds, and, on a work queue, again what nobody acknowledged.
 *
 *   C1 a message of a queue that is neither acked nor ended comes again: after the ack wait, or its nak's
 *      delay; how often it was delivered is told with it;
 *   C2 a pull is answered with at most what it asked for, while whoever asked still listens;
 *   C3 an acknowledgement is confirmed before it is written down: what was acked within a moment before the
 *      server died comes again.
 */
import { matcher } from './filters.ts';
import type { Party, Scheduled, Scheduler } from './scheduler.ts';
import type { StoredAt, Stream } from './stream.ts';

export type ConsumerConfig = {
  filters: readonly string[];
  explicitAck: boolean;
  ackWaitMs: number;
  inMemory: boolean;
  inactiveMs: number;
  startSeq: number;
};

/** Where the messages of one pull go. */
export type PullTarget = {
  /** False once nobody listens there. */
  listens(): boolean;
  message(message: StoredAt, ackSubject: string): void;
  status(code: number, description: string): void;
};

export type Pull = PullTarget & { left: number; expiresMs: number | null };

export type ConsumerFaults = {
  /** How soon a message comes again although its ack wait has not passed; undefined: it does not. */
  early: () => number | undefined;
};

type Delivery = { deliveries: number; timer: Scheduled | undefined };

const WORLD: Party | undefined = undefined;
/** An acknowledgement is written down within this (reference/bus.md 6). */
const ACK_WRITTEN_MS = 150;
const TIME_TO_NS = 1_000_000;

export class Consumer {
  readonly name: string;
  readonly config: ConsumerConfig;
  readonly #stream: Stream;
  readonly #scheduler: Scheduler;
  readonly #faults: ConsumerFaults;
  #pulls: Pull[] = [];
  readonly #pending = new Map<number, Delivery>();
  readonly #deliveries = new Map<number, number>();
  #again: number[] = [];
  #acked: { message: StoredAt; atMs: number }[] = [];
  #next: number;
  #count = 0;
  lastPullMs: number;

  constructor(
    name: string,
    stream: Stream,
    config: ConsumerConfig,
    scheduler: Scheduler,
    faults: ConsumerFaults,
  ) {
    this.name = name;
    this.config = config;
    this.#stream = stream;
    this.#scheduler = scheduler;
    this.#faults = faults;
    this.#next = config.startSeq;
    this.lastPullMs = scheduler.nowMs;
  }

  wants(subject: string): boolean {
    return this.config.filters.some((filter) => matcher(filter)(subject));
  }

  isGone(): boolean {
    const { inMemory, inactiveMs } = this.config;
    return inMemory && this.#scheduler.nowMs - this.lastPullMs > inactiveMs;
  }

  pull(target: PullTarget, batch: number, expiresMs: number | null): void {
    this.lastPullMs = this.#scheduler.nowMs;
    if (expiresMs === null) return this.#pullNow(target, batch);
    const pull: Pull = { ...target, left: batch, expiresMs };
    this.#pulls.push(pull);
    this.#scheduler.at(expiresMs, WORLD, () => {
      if (!this.#pulls.includes(pull)) return;
      this.#pulls = this.#pulls.filter((each) => each !== pull);
      if (pull.listens()) pull.status(408, 'Request Timeout');
    });
    this.pump();
  }

  /** Hands out what there is to whoever waits for it. */
  pump(): void {
    for (;;) {
      this.#pulls = this.#pulls.filter((pull) => pull.left > 0 && pull.listens());
      const [pull] = this.#pulls;
      if (pull === undefined) return;
      const message = this.#take();
      if (message === undefined) return;
      pull.left--;
      pull.message(message, this.#deliver(message, this.#waiting(2).length));
    }
  }

  settle(seq: number, verb: 'ack' | 'term' | 'working' | { nakMs: number }): void {
    const delivery = this.#pending.get(seq);
    if (delivery === undefined) return;
    delivery.timer?.cancel();
    if (verb === 'working') {
      delivery.timer = this.#againAfter(seq, this.config.ackWaitMs);
    } else if (typeof verb === 'object') {
      delivery.timer = this.#againAfter(seq, verb.nakMs);
    } else {
      this.#pending.delete(seq);
      const message = this.#stream.get(seq);
      if (message === undefined) return;
      const nowMs = this.#scheduler.nowMs;
      this.#acked = this.#acked.filter(({ atMs }) => nowMs - atMs < ACK_WRITTEN_MS);
      this.#acked.push({ message, atMs: nowMs });
      if (this.#stream.isQueue) this.#stream.remove(seq);
    }
  }

  /** The server died and is back: what it had not written down is as it was before. */
  serverRestarted(): void {
    const nowMs = this.#scheduler.nowMs;
    this.#pulls = [];
    for (const { message, atMs } of this.#acked.splice(0)) {
      if (nowMs - atMs > ACK_WRITTEN_MS) continue;
      this.#stream.restore(message);
      this.#again.push(message.seq);
    }
    for (const [seq, { timer }] of this.#pending) {
      timer?.cancel();
      this.#again.push(seq);
    }
    this.#pending.clear();
  }

  #take(): StoredAt | undefined {
    while (this.#again.length > 0) {
      const message = this.#stream.get(this.#again.shift() ?? 0);
      if (message !== undefined) return message;
    }
    const [message] = this.#waiting(1);
    if (message !== undefined) this.#next = message.seq + 1;
    return message;
  }

  #waiting(max: number): StoredAt[] {
    const found: StoredAt[] = [];
    for (const message of this.#stream.from(this.#next, this.config.filters)) {
      if (found.push(message) >= max) break;
    }
    return found;
  }

  #pullNow(target: PullTarget, batch: number): void {
    const page = this.#waiting(batch);
    const last = page.at(-1);
    if (last !== undefined) this.#next = last.seq + 1;
    const left = last === undefined ? 0 : this.#waiting(1).length;
    for (const [index, message] of page.entries()) {
      target.message(message, this.#deliver(message, left + page.length - 1 - index));
    }
    if (page.length < batch) target.status(404, 'No Messages');
  }

  /** The subject that acknowledges it. */
  #deliver(message: StoredAt, pending: number): string {
    const { seq, at } = message;
    const deliveries = (this.#deliveries.get(seq) ?? 0) + 1;
    if (this.config.explicitAck) {
      this.#deliveries.set(seq, deliveries);
      const waitMs = this.#faults.early() ?? this.config.ackWaitMs;
      this.#pending.get(seq)?.timer?.cancel();
      this.#pending.set(seq, { deliveries, timer: this.#againAfter(seq, waitMs) });
    }
    const time = BigInt(Math.floor(at)) * BigInt(TIME_TO_NS);
    const { config } = this.#stream;
    return `$JS.ACK.${config.name}.${this.name}.${deliveries}.${seq}.${++this.#count}.${time}.${pending}`;
  }

  #againAfter(seq: number, waitMs: number): Scheduled {
    return this.#scheduler.after(waitMs, WORLD, () => {
      if (!this.#pending.has(seq)) return;
      this.#again.push(seq);
      this.pump();
    });
  }
}
