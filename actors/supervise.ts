/**
 * Supervision as in OTP: children are started in order, restarted when they end, and given up when they
 * end too often, with the reason of the last end.
 *
 * It knows nothing of what a child is: a process, a server, a loop. Invariants:
 *   V1 at most one instance of a child runs at a time;
 *   V2 a restart waits (capped exponential, jittered), so a child that dies at once costs no CPU;
 *   V3 more than `intensity` ends within `periodMs` escalate: everything is stopped, `onEscalate` is told;
 *   V4 with `rest_for_one` the children started after the dead one are restarted with it, in order.
 */
import { setTimeout as delay } from 'node:timers/promises';
import { ensureError } from '../schemas/errors.ts';

export type Running = {
  /** Settles when the child has ended by itself; the value is why. */
  ended: Promise<string>;
  stop: () => Promise<void>;
};

export type ChildSpec = {
  id: string;
  start: () => Promise<Running>;
  /** Ends that are no failure: a child that ended so is not started again. */
  isDone?: (reason: string) => boolean;
};

/** A child that ran this long was well: its next end starts the back-off anew (V3 counts it all the same). */
const WELL_AFTER_MS = 5_000;

export type SuperviseOptions = {
  strategy: 'one_for_one' | 'rest_for_one';
  intensity: number;
  periodMs: number;
  backoff: { firstMs: number; maxMs: number };
  onRestart: (id: string, reason: string, waitMs: number) => void;
  onEscalate: (id: string, reason: string) => void;
  random?: () => number;
};

/** Full jitter over the upper half: restarts of many nodes do not line up. */
export function backoffMs(
  attempt: number,
  { firstMs, maxMs }: { firstMs: number; maxMs: number },
  random: () => number = Math.random,
): number {
  const ceiling = Math.min(maxMs, firstMs * 2 ** Math.min(attempt, 30));
  return Math.round(ceiling / 2 + (random() * ceiling) / 2);
}

export class Supervision {
  readonly #specs: ChildSpec[];
  readonly #options: SuperviseOptions;
  readonly #running = new Map<string, Running>();
  readonly #stopping = new AbortController();
  #ends: number[] = [];
  #failures = new Map<string, number>();

  constructor(specs: ChildSpec[], options: SuperviseOptions) {
    this.#specs = specs;
    this.#options = options;
  }

  /** Starts all children in order; a child that cannot start at all is an error of the caller's. */
  async start(): Promise<void> {
    for (const spec of this.#specs) await this.#begin(spec);
  }

  /** Stops all children, the last started first. */
  async stop(): Promise<void> {
    this.#stopping.abort();
    for (const spec of [...this.#specs].reverse()) {
      const running = this.#running.get(spec.id);
      this.#running.delete(spec.id);
      await running?.stop();
    }
  }

  async #begin(spec: ChildSpec): Promise<void> {
    const running = await spec.start();
    if (this.#stopping.signal.aborted) return running.stop();
    this.#running.set(spec.id, running);
    const startedMs = performance.now();
    void running.ended.then((reason) => {
      if (this.#running.get(spec.id) !== running) return;
      this.#running.delete(spec.id);
      if (spec.isDone?.(reason) === true) return;
      if (performance.now() - startedMs > WELL_AFTER_MS) this.#failures.delete(spec.id);
      void this.#again(spec, reason);
    });
  }

  async #again(spec: ChildSpec, reason: string): Promise<void> {
    if (this.#stopping.signal.aborted) return;
    const now = performance.now();
    this.#ends = [...this.#ends.filter((at) => now - at < this.#options.periodMs), now];
    if (this.#ends.length > this.#options.intensity) {
      await this.stop();
      this.#options.onEscalate(spec.id, reason);
      return;
    }
    const later = this.#options.strategy === 'rest_for_one' ? this.#after(spec) : [];
    for (const other of [...later].reverse()) {
      const running = this.#running.get(other.id);
      this.#running.delete(other.id);
      await running?.stop();
    }
    const failures = this.#failures.get(spec.id) ?? 0;
    this.#failures.set(spec.id, failures + 1);
    const waitMs = backoffMs(failures, this.#options.backoff, this.#options.random);
    this.#options.onRestart(spec.id, reason, waitMs);
    try {
      await delay(waitMs, undefined, { signal: this.#stopping.signal });
      for (const each of [spec, ...later]) await this.#begin(each);
    } catch (error) {
      if (!this.#stopping.signal.aborted) await this.#again(spec, ensureError(error).message);
    }
  }

  #after(spec: ChildSpec): ChildSpec[] {
    return this.#specs.slice(this.#specs.indexOf(spec) + 1);
  }
}
