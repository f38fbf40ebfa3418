/**
 * A simulated process: a scope for all that runs in it. What it started, it takes along when it dies.
 *
 *   P1 its timers and messages reach it only while it lives, and later while it is paused;
 *   P2 it can die between any two of its effects: then neither the next one nor any after it is done;
 *   P3 its clocks are its own: the monotonic one starts with it and may run a little fast or slow, the wall
 *      clock may be wrong.
 */
import { AsyncLocalStorage } from 'node:async_hooks';
import type { Client, SimulatedConnection } from '../../bus/simulated/connection.ts';
import type { Scheduler } from '../../bus/simulated/scheduler.ts';

const scope = new AsyncLocalStorage<SimulatedProcess | undefined>();

/** The process on whose behalf the present code runs. */
export const currentProcess = (): SimulatedProcess | undefined => scope.getStore();

/** Runs something on behalf of a process, or of none. */
export function enter(process: object | undefined, run: () => void): void {
  scope.run(process instanceof SimulatedProcess ? process : undefined, run);
}

export type Clocks = {
  /** How fast its clock runs: 1 is right. */
  rate: number;
  /** What is wrong with its wall clock. */
  wallOffMs: number;
};

export class SimulatedProcess implements Client {
  readonly name: string;
  readonly connections: SimulatedConnection[] = [];
  readonly #scheduler: Scheduler;
  readonly #clocks: Clocks;
  readonly #bornMs: number;
  readonly #died: (() => void)[] = [];
  #alive = true;
  #pausedUntilMs = 0;
  #pausedSinceMs = 0;
  #effects = 0;
  #lastEffect = Number.POSITIVE_INFINITY;
  #onLast: () => void = () => undefined;

  constructor(name: string, scheduler: Scheduler, clocks: Clocks) {
    this.name = name;
    this.#scheduler = scheduler;
    this.#clocks = clocks;
    this.#bornMs = scheduler.nowMs;
  }

  get alive(): boolean {
    return this.#alive;
  }

  get pausedUntilMs(): number {
    return this.#pausedUntilMs;
  }

  get effects(): number {
    return this.#effects;
  }

  run(work: () => void): void {
    enter(this, work);
  }

  acts(): boolean {
    if (!this.#alive) return false;
    this.#effects++;
    if (this.#effects < this.#lastEffect) return true;
    this.#onLast();
    return this.#alive;
  }

  /** `fall` is called in place of the effect after so many more. */
  dieAfter(effects: number, fall: () => void): void {
    this.#lastEffect = this.#effects + effects + 1;
    this.#onLast = fall;
  }

  die(): void {
    if (!this.#alive) return;
    this.#alive = false;
    for (const connection of this.connections) connection.end();
    for (const tell of this.#died.splice(0)) tell();
  }

  onDeath(tell: () => void): void {
    this.#died.push(tell);
  }

  /** Gives the time since when it stands still: it may have done so already. */
  pause(forMs: number): number {
    const { nowMs } = this.#scheduler;
    if (this.#pausedUntilMs < nowMs) this.#pausedSinceMs = nowMs;
    this.#pausedUntilMs = Math.max(this.#pausedUntilMs, nowMs + forMs);
    return this.#pausedSinceMs;
  }

  monotonicMs(nowMs: number): number {
    return (nowMs - this.#bornMs) * this.#clocks.rate + 1000;
  }

  wallMs(nowMs: number): number {
    return nowMs + this.#clocks.wallOffMs;
  }

  /** How much virtual time passes while so much passes on its clock. */
  virtualMs(delayMs: number): number {
    return delayMs / this.#clocks.rate;
  }
}
