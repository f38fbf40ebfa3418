/**
 * The output of one job on its way to `hb.logs`: in order, in batches, held back rather than dropped.
 *
 *   O1 lines leave in the order they came, one batch under way at a time;
 *   O2 `write` waits while the buffer is full, which stops the reading of the process's pipe;
 *   O3 `flush` resolves when everything written before it is stored: a result never overtakes its output.
 * A batch the bus refuses for good is dropped and its lines are counted in a line of their own: a job does
 * not hang because its log does.
 */
import { randomUUID } from 'node:crypto';
import { setTimeout as delay } from 'node:timers/promises';
import { backoffMs } from '../actors/supervise.ts';
import type { Bus } from '../bus/bus.ts';
import { subjects } from '../bus/subjects.ts';
import { ERROR_CODES, HeroError } from '../schemas/errors.ts';
import type { FlowRef, Incarnation } from '../schemas/ids.ts';
import type { LogLines } from '../schemas/job.ts';

type Line = LogLines['lines'][number];

const FLUSH_MS = 50;
const BATCH_LINES_MAX = 200;
const BATCH_BYTES_MAX = 256 * 1024;
const BUFFER_LINES_MAX = 2000;
const BUFFER_BYTES_MAX = 1024 * 1024;
/** JSON around a line: stream, time, quotes. */
const LINE_OVERHEAD_BYTES = 64;
const RETRY = { firstMs: 20, maxMs: 1000 };

const sizeOf = ({ line }: Line): number => line.length + LINE_OVERHEAD_BYTES;

export class JobOutput {
  readonly #bus: Bus;
  readonly #subject: string;
  readonly #inc: Incarnation;
  #lines: Line[] = [];
  #bytes = 0;
  #lost = 0;
  #halted = false;
  readonly #halt = Promise.withResolvers<void>();
  #timer: NodeJS.Timeout | undefined;
  #sending: Promise<void> | undefined;

  constructor(bus: Bus, ref: FlowRef, n: number, inc: Incarnation) {
    this.#bus = bus;
    this.#subject = subjects.logs(ref, n);
    this.#inc = inc;
  }

  /** Takes lines; a promise means: no more until it resolves (O2). */
  write(stream: Line['stream'], lines: string[]): void | Promise<void> {
    if (this.#halted) return;
    const at = Math.round(this.#bus.now());
    for (const line of lines) {
      const entry = { stream, line, at };
      this.#lines.push(entry);
      this.#bytes += sizeOf(entry);
    }
    if (this.#lines.length >= BATCH_LINES_MAX || this.#bytes >= BATCH_BYTES_MAX) void this.#send();
    else this.#timer ??= setTimeout(() => void this.#send(), FLUSH_MS);
    if (this.#isFull()) return this.#room();
  }

  async flush(): Promise<void> {
    while (!this.#halted && this.#lines.length > 0) await this.#sendOrHalt();
    if (!this.#halted && this.#lost > 0) await this.#sendOrHalt();
    if (!this.#halted && this.#sending !== undefined) await this.#sendOrHalt();
  }

  /** Sends nothing any more and lets go whoever waits. */
  halt(): void {
    this.#halted = true;
    this.#halt.resolve();
    this.#lines = [];
    this.#bytes = 0;
    clearTimeout(this.#timer);
  }

  #isFull(): boolean {
    return this.#lines.length >= BUFFER_LINES_MAX || this.#bytes >= BUFFER_BYTES_MAX;
  }

  async #room(): Promise<void> {
    while (!this.#halted && this.#isFull()) await this.#sendOrHalt();
  }

  /** A bus that does not answer holds nobody once nothing is sent any more. */
  #sendOrHalt(): Promise<void> {
    return Promise.race([this.#send(), this.#halt.promise]);
  }

  #send(): Promise<void> {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    this.#sending ??= this.#sendAll().finally(() => {
      this.#sending = undefined;
    });
    return this.#sending;
  }

  /** Batches until less than a full one is left and nobody asked for more. */
  async #sendAll(): Promise<void> {
    do {
      const batch = this.#nextBatch();
      if (batch.length === 0) return;
      if (await this.#store(batch)) continue;
      this.#lost += batch.length;
    } while (!this.#halted && this.#lines.length >= BATCH_LINES_MAX);
    if (!this.#halted && this.#lines.length > 0) {
      this.#timer ??= setTimeout(() => void this.#send(), FLUSH_MS);
    }
  }

  #nextBatch(): Line[] {
    const batch: Line[] = [];
    if (this.#lost > 0) {
      const line = `${this.#lost} lines of output could not be stored`;
      batch.push({ stream: 'log', line, at: Math.round(this.#bus.now()) });
      this.#lost = 0;
    }
    let bytes = 0;
    let count = 0;
    for (const line of this.#lines) {
      bytes += sizeOf(line);
      if (count > 0 && (count >= BATCH_LINES_MAX || bytes > BATCH_BYTES_MAX)) break;
      count++;
    }
    const taken = this.#lines.splice(0, count);
    for (const line of taken) this.#bytes -= sizeOf(line);
    return [...batch, ...taken];
  }

  /** True when stored, or when nothing is sent any more; false when the bus refuses it for good. */
  async #store(lines: Line[]): Promise<boolean> {
    const body: LogLines = { v: 1, inc: this.#inc, lines };
    // One for all tries: a batch whose acknowledgement was lost is not stored again.
    const id = randomUUID();
    for (let tries = 0; !this.#halted; tries++) {
      try {
        await this.#bus.queues.publish(this.#subject, body, id);
        return true;
      } catch (error) {
        const terminal = error instanceof HeroError && ERROR_CODES[error.code].kind === 'terminal';
        if (terminal || (!(error instanceof HeroError) && tries >= 5)) return false;
        await delay(backoffMs(tries, RETRY));
      }
    }
    return true;
  }
}
