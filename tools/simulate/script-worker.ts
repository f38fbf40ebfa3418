/** Scripts without a thread: the same sessions, in the process's own time, a message at a time. */
import type { Scheduler } from '../../bus/simulated/scheduler.ts';
import {
  ScriptSessions,
  type FromWorker,
  type ToWorker,
} from '../../supervisors/script-sessions.ts';
import type { ScriptWorker } from '../../supervisors/script-pool.ts';
import type { SimulatedProcess } from './process.ts';

/** What a message between two threads takes. */
const POST_MS = 0.05;

export type SimulatedScriptWorker = ScriptWorker & { die(): void };

export function startScriptWorker(
  scheduler: Scheduler,
  process: SimulatedProcess,
): SimulatedScriptWorker {
  let alive = true;
  let onMessage: (message: FromWorker) => void = () => undefined;
  let onExit: () => void = () => undefined;
  const post = <T>(message: T, take: (message: T) => void): void => {
    const copy = structuredClone(message);
    scheduler.after(POST_MS, process, () => alive && take(copy), 'message');
  };
  const sessions = new ScriptSessions((message) => post(message, (copy) => onMessage(copy)));
  return {
    postMessage: (message: ToWorker) => post(message, (copy) => sessions.take(copy)),
    on: (event, listener) => {
      if (event === 'message') onMessage = listener as typeof onMessage;
      if (event === 'exit') onExit = listener as typeof onExit;
    },
    terminate: () => {
      alive = false;
      return Promise.resolve();
    },
    die: () => {
      if (!alive) return;
      alive = false;
      scheduler.after(0, process, () => onExit(), 'message');
    },
  };
}
