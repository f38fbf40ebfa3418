/**
 * The pool of script workers, seen from the main thread: open a script, advance it, close it.
 *
 * A worker that dies (out of memory) is replaced; whoever waited for it is told, and opens its script again
 * from the log. Invariant: one `advance` of a script at a time.
 */
import { Worker } from 'node:worker_threads';
import type { DerivedJob, Note, ScriptEnv, Step } from '../actors/flow/derive.ts';
import { HeroError } from '../schemas/errors.ts';
import type { Facts, FromWorker, ToWorker } from './script-sessions.ts';

export type Advanced = { step: Step; jobs: DerivedJob[]; notes: Note[] };

export interface Script {
  /** `spawnTo`: jobs it may have spawned before it is held. */
  advance(facts: Facts, nowMs: number, spawnTo: number): Promise<Advanced>;
  close(): void;
}

/** The worker died; `guilty`: while it ran this very script. */
export class WorkerDied extends Error {
  override readonly name = 'WorkerDied';
  readonly guilty: boolean;

  constructor(message: string, guilty: boolean) {
    super(message);
    this.guilty = guilty;
  }
}

const WORKER_FILE = new URL(
  import.meta.url.endsWith('.ts') ? './script-worker.ts' : './script-worker.js',
  import.meta.url,
);
/** A script's own limits keep it far below; this bounds what all scripts of a worker hold together. */
const WORKER_HEAP_MIB = 1024;

type Pending = {
  jobs: DerivedJob[];
  resolve: (advanced: Advanced) => void;
  reject: (error: Error) => void;
};
type Seat = {
  worker: ScriptWorker;
  pending: Map<string, Pending>;
  scripts: number;
  running: string;
};

/** What runs script sessions (script-sessions.ts) somewhere: by default in a worker thread. */
export type ScriptWorker = {
  postMessage(message: ToWorker): void;
  on(event: 'message', listener: (message: FromWorker) => void): unknown;
  on(event: 'error', listener: (error: unknown) => void): unknown;
  on(event: 'exit', listener: () => void): unknown;
  terminate(): Promise<unknown>;
};

function startThread(): ScriptWorker {
  const worker = new Worker(WORKER_FILE, {
    resourceLimits: { maxOldGenerationSizeMb: WORKER_HEAP_MIB, stackSizeMb: 8 },
  });
  worker.unref();
  return worker;
}

export class ScriptPool {
  readonly #size: number;
  readonly #startWorker: () => ScriptWorker;
  readonly #seats: Seat[] = [];
  #stopped = false;

  constructor(size: number, startWorker: () => ScriptWorker = startThread) {
    this.#size = size;
    this.#startWorker = startWorker;
  }

  open(id: string, env: Omit<ScriptEnv, 'sha256'>, memory: Facts): Script {
    const seat = this.#seat();
    seat.scripts += 1;
    const post = (message: ToWorker): void => seat.worker.postMessage(message);
    post({ type: 'open', id, env, memory });
    return {
      advance: (facts, nowMs, spawnTo) =>
        new Promise<Advanced>((resolve, reject) => {
          if (!this.#seats.includes(seat)) {
            reject(new WorkerDied(`the script worker of ${id} has died`, false));
            return;
          }
          if (seat.pending.has(id))
            throw new HeroError('internal', `script ${id} is being advanced`);
          seat.pending.set(id, { jobs: [], resolve, reject });
          post({ type: 'advance', id, facts, nowMs, spawnTo });
        }),
      close: () => {
        seat.scripts -= 1;
        seat.pending.delete(id);
        post({ type: 'close', id });
      },
    };
  }

  async stop(): Promise<void> {
    this.#stopped = true;
    await Promise.all(this.#seats.map(({ worker }) => worker.terminate()));
  }

  #seat(): Seat {
    if (this.#seats.length < this.#size) this.#seats.push(this.#start());
    return this.#seats.reduce((best, seat) => (seat.scripts < best.scripts ? seat : best));
  }

  #start(): Seat {
    const worker = this.#startWorker();
    const seat: Seat = { worker, pending: new Map(), scripts: 0, running: '' };
    worker.on('message', (message: FromWorker) => {
      if (message.type === 'runs') {
        seat.running = message.id;
        return;
      }
      const pending = seat.pending.get(message.id);
      if (message.type === 'jobs') {
        for (const job of message.jobs) pending?.jobs.push(job);
        return;
      }
      seat.pending.delete(message.id);
      pending?.resolve({ step: message.step, jobs: pending.jobs, notes: message.notes });
    });
    let cause: Error | undefined;
    worker.on('error', (error) => {
      cause = error instanceof Error ? error : new Error(String(error));
    });
    worker.on('exit', () => {
      this.#seats.splice(this.#seats.indexOf(seat), 1);
      if (this.#stopped) return;
      const why = `the script worker died: ${cause?.message ?? 'no reason given'}`;
      for (const [id, { reject }] of seat.pending) reject(new WorkerDied(why, id === seat.running));
    });
    return seat;
  }
}
