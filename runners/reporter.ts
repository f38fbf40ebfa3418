/**
 * The reporter of one pack: what began and how it ended, appended to the flow's log as facts.
 *
 * Facts of one turn of the event loop are gathered; while an append is under way the next one gathers, so
 * a result waits for at most one append and never for a slower job.
 *
 *   R1 `begun` resolves only after the commit: what it lists may be executed then, not earlier;
 *   R2 nothing is appended without a lease, however late that is noticed;
 *   R3 what could not be appended is tried again while the lease holds; a fact twice changes nothing.
 */
import { setTimeout as delay } from 'node:timers/promises';
import { backoffMs } from '../actors/supervise.ts';
import type { FlowLog } from '../bus/bus.ts';
import type { RunEntry } from '../schemas/flow.ts';
import type { FlowRef, PackId } from '../schemas/ids.ts';
import type { Begun, Result } from '../schemas/job.ts';

/** An entry is at most 256 KiB (DESIGN 3); the largest single result stays well below the rest. */
const ENTRY_BYTES_MAX = 200 * 1024;
const BEGUN_BYTES = 40;
const RETRY = { firstMs: 20, maxMs: 1000 };

export type ReporterOptions = {
  log: FlowLog;
  ref: FlowRef;
  pack: PackId;
  inc: string;
  runner: string;
  /** Checked before every append. */
  mayReport: () => boolean;
  onReported: (results: number) => void;
  /** Called before each append is put together: what begins next can travel with what has ended. */
  beforeAppend: () => void;
};

type Item = {
  bytes: number;
  fact: { begun: Begun } | { result: Result };
  /** With where its fact stands in the log. */
  resolve: (seq: number) => void;
  reject: (reason: Error) => void;
};

class NotReported extends Error {
  override readonly name = 'NotReported';
}

export class Reporter {
  readonly #options: ReporterOptions;
  #items: Item[] = [];
  #flushing = false;
  #halted = false;
  #idle: (() => void)[] = [];

  constructor(options: ReporterOptions) {
    this.#options = options;
  }

  /**
   * Resolves when all are committed, with where the log says so; rejects with NotReported when they never
   * will be.
   */
  async begun(list: Begun[]): Promise<number> {
    return Math.max(...(await Promise.all(list.map((begun) => this.#add({ begun }, BEGUN_BYTES)))));
  }

  /** Makes an append soon, if `beforeAppend` or anybody else has something for it. */
  poke(): void {
    if (this.#flushing || this.#halted) return;
    this.#flushing = true;
    setImmediate(() => void this.#flush());
  }

  /** Kept until it is committed or the lease is gone. */
  result(result: Result): void {
    this.#add({ result }, Buffer.byteLength(JSON.stringify(result))).catch(() => undefined);
  }

  /** When nothing waits to be appended. */
  async settled(): Promise<void> {
    if (!this.#flushing && this.#items.length === 0) return;
    await new Promise<void>((resolve) => {
      this.#idle.push(resolve);
    });
  }

  /** Appends nothing any more. */
  halt(): void {
    this.#halted = true;
    this.#drop(this.#items.splice(0));
  }

  #add(fact: Item['fact'], bytes: number): Promise<number> {
    if (this.#halted) return Promise.reject(new NotReported('the runner reports nothing any more'));
    return new Promise((resolve, reject) => {
      this.#items.push({ bytes, fact, resolve, reject });
      this.poke();
    });
  }

  async #flush(): Promise<void> {
    for (;;) {
      if (!this.#halted) this.#options.beforeAppend();
      if (this.#items.length === 0) break;
      const batch = this.#nextBatch();
      const seq = await this.#append(batch);
      if (seq !== undefined) {
        for (const item of batch) item.resolve(seq);
        const results = batch.filter(({ fact }) => 'result' in fact).length;
        if (results > 0) this.#options.onReported(results);
      } else {
        this.#drop(batch);
      }
    }
    this.#flushing = false;
    for (const resolve of this.#idle.splice(0)) resolve();
  }

  #nextBatch(): Item[] {
    let bytes = 0;
    let count = 0;
    for (const item of this.#items) {
      bytes += item.bytes;
      if (count > 0 && bytes > ENTRY_BYTES_MAX) break;
      count++;
    }
    return this.#items.splice(0, count);
  }

  /** Where it stands; undefined when it will not be appended: halted, or the lease is gone. */
  async #append(batch: Item[]): Promise<number | undefined> {
    const { log, ref, pack, inc, runner, mayReport } = this.#options;
    const body: RunEntry = { v: 1, inc, runner, begun: [], results: [] };
    for (const { fact } of batch) {
      if ('begun' in fact) body.begun.push(fact.begun);
      else body.results.push(fact.result);
    }
    for (let tries = 0; ; tries++) {
      if (this.#halted || !mayReport()) return undefined;
      try {
        return (await log.fact(ref, pack, body)).seq;
      } catch {
        await delay(backoffMs(tries, RETRY));
      }
    }
  }

  #drop(items: Item[]): void {
    for (const item of items) item.reject(new NotReported('the lease is gone'));
  }
}
