/**
 * Puts what runs in this process into virtual time and under a seed: timers, clocks and chance of the
 * language and of node's own modules, for as long as a simulation runs. Each simulated process has its own
 * monotonic and wall clock, and its timers go with it.
 *
 * Patched is what the product uses; a use of something else shows as a simulation that does not replay.
 */
import crypto from 'node:crypto';
import { syncBuiltinESMExports } from 'node:module';
import os from 'node:os';
import timers from 'node:timers/promises';
import type { Random } from '../../bus/simulated/random.ts';
import type { Phase, Scheduled, Scheduler } from '../../bus/simulated/scheduler.ts';
import { currentProcess } from './process.ts';

/** Where virtual time begins: 2026-01-01. */
export const EPOCH_MS = Date.UTC(2026, 0, 1);

export type RealTurn = (run: () => void) => void;

type Restore = () => void;

/** Replaces a property until it is restored. */
function replace(target: object, name: string, value: unknown): Restore {
  const before = Object.getOwnPropertyDescriptor(target, name);
  Object.defineProperty(target, name, { value, configurable: true, writable: true });
  return () => {
    if (before === undefined) Reflect.deleteProperty(target, name);
    else Object.defineProperty(target, name, before);
  };
}

/** What node's timers give: good for clearing, and for saying that nobody need wait for it. */
class VirtualTimer {
  readonly #scheduled: Scheduled;
  constructor(scheduled: Scheduled) {
    this.#scheduled = scheduled;
  }
  cancel(): void {
    this.#scheduled.cancel();
  }
  ref(): this {
    return this;
  }
  unref(): this {
    return this;
  }
  hasRef(): boolean {
    return true;
  }
}

export type VirtualTime = {
  /** Runs something at the end of a real turn of the event loop: all that was promised has happened then. */
  realTurn: RealTurn;
  restore: Restore;
};

export function installVirtualTime(scheduler: Scheduler, random: Random): VirtualTime {
  const realImmediate = globalThis.setImmediate;
  const nowMs = () => scheduler.nowMs;
  const restores = [
    ...installTimers(scheduler),
    replace(performance, 'now', () => currentProcess()?.monotonicMs(nowMs()) ?? nowMs()),
    replace(Date, 'now', () =>
      Math.floor(EPOCH_MS + (currentProcess()?.wallMs(nowMs()) ?? nowMs())),
    ),
    replace(Math, 'random', () => random.float()),
    replace(crypto, 'randomBytes', (count: number) => random.bytes(count)),
    replace(crypto, 'randomUUID', () => uuid(random.bytes(16))),
    replace(os, 'loadavg', () => [0.5, 0.5, 0.5]),
    replace(os, 'totalmem', () => 4 * 2 ** 30),
    replace(os, 'availableParallelism', () => 2),
  ];
  syncBuiltinESMExports();
  return {
    realTurn: (run) => void realImmediate(run),
    restore: () => {
      for (const restore of restores.reverse()) restore();
      syncBuiltinESMExports();
    },
  };
}

function uuid(bytes: Buffer): string {
  const hex = bytes.toString('hex');
  return [0, 8, 12, 16, 20].map((at, i, all) => hex.slice(at, all[i + 1] ?? 32)).join('-');
}

type Callback = (...args: unknown[]) => void;

function installTimers(scheduler: Scheduler): Restore[] {
  const arm = (delayMs: number, run: () => void, phase: Phase = 'timer') => {
    const process = currentProcess();
    const virtualMs = process?.virtualMs(delayMs) ?? delayMs;
    return scheduler.after(virtualMs, process, run, phase);
  };
  // As in node: less than a millisecond is one.
  const atLeast = (delayMs: unknown) => Math.max(1, Number(delayMs) || 1);
  const after = (run: Callback, delayMs?: number, ...args: unknown[]) =>
    new VirtualTimer(arm(atLeast(delayMs), () => run(...args)));
  const turn = (run: Callback, ...args: unknown[]) =>
    new VirtualTimer(arm(0, () => run(...args), 'turn'));
  const every = (run: Callback, delayMs?: number, ...args: unknown[]) => {
    let next: Scheduled;
    const again = () => {
      next = arm(atLeast(delayMs), () => {
        again();
        run(...args);
      });
    };
    again();
    return new VirtualTimer({ cancel: () => next.cancel() });
  };
  const clear = (timer: unknown) => {
    if (timer instanceof VirtualTimer) timer.cancel();
  };
  return [
    replace(globalThis, 'setTimeout', after),
    replace(globalThis, 'setImmediate', turn),
    replace(globalThis, 'setInterval', every),
    replace(globalThis, 'clearTimeout', clear),
    replace(globalThis, 'clearImmediate', clear),
    replace(globalThis, 'clearInterval', clear),
    replace(
      timers,
      'setTimeout',
      (delayMs: number, value: unknown, options: { signal?: AbortSignal } = {}) =>
        promised((run) => after(run, delayMs), value, options.signal),
    ),
    replace(timers, 'setImmediate', (value: unknown, options: { signal?: AbortSignal } = {}) =>
      promised((run) => turn(run), value, options.signal),
    ),
  ];
}

function promised(
  arm: (run: () => void) => VirtualTimer,
  value: unknown,
  signal: AbortSignal | undefined,
): Promise<unknown> {
  return new Promise((resolve, reject) => {
    const aborted = () => {
      timer.cancel();
      reject(new DOMException('The operation was aborted', 'AbortError'));
    };
    const timer = arm(() => {
      signal?.removeEventListener('abort', aborted);
      resolve(value);
    });
    if (signal?.aborted) aborted();
    else signal?.addEventListener('abort', aborted, { once: true });
  });
}
