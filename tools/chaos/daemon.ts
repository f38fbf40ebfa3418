/**
 * One process of the cluster, kept running: whatever ends it, it is started again, as the service manager of a
 * machine would.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { closeSync, openSync, readFileSync } from 'node:fs';
import { createInterface } from 'node:readline';
import { setTimeout as delay } from 'node:timers/promises';
import { boundToParent } from '../bench/workspace.ts';

export type DaemonOptions = {
  name: string;
  args: string[];
  env: Record<string, string>;
  /** What it says is appended here. */
  log: string;
  /** How long its service manager waits before it starts it again. */
  restartAfterMs: () => number;
  /** Told of an end that nobody here brought about, with its last words. */
  onOwnEnd: (name: string, how: string) => void;
};

type Ready = { event: string; server: string };

const STOP_DEADLINE_MS = 20_000;
const LOG_TAIL_CHARS = 800;

export class Daemon {
  readonly name: string;
  readonly #options: DaemonOptions;
  readonly #stopping = new AbortController();
  readonly #firstReady = Promise.withResolvers<Ready>();
  #child: ChildProcess | undefined;
  #running: Promise<void> | undefined;
  #killed = false;
  #said = '';
  /** Ends that nobody here brought about. */
  ownEnds = 0;
  starts = 0;

  constructor(options: DaemonOptions) {
    this.name = options.name;
    this.#options = options;
  }

  /** Resolves with the address of the bus once the process said for the first time that it is ready. */
  start(readyWithinMs: number): Promise<Ready> {
    this.#running ??= this.#keepRunning();
    const late = setTimeout(() => {
      this.#firstReady.reject(new Error(`${this.name} was not ready in ${readyWithinMs} ms`));
    }, readyWithinMs);
    return this.#firstReady.promise.finally(() => clearTimeout(late));
  }

  /** Undefined while it is being started again. */
  get pid(): number | undefined {
    const child = this.#child;
    return child === undefined || hasEnded(child) ? undefined : child.pid;
  }

  /** Pids of its children whose command line says this. */
  children(saying: string): number[] {
    const { pid } = this;
    if (pid === undefined) return [];
    const children = textOf(`/proc/${pid}/task/${pid}/children`);
    return children
      .split(' ')
      .filter((each) => each !== '')
      .map(Number)
      .filter((each) => textOf(`/proc/${each}/cmdline`).includes(saying));
  }

  kill(): void {
    this.#killed = true;
    this.#child?.kill('SIGKILL');
  }

  /** In order, or by force when it does not go. */
  async stop(): Promise<void> {
    this.#stopping.abort();
    const child = this.#child;
    child?.kill('SIGCONT');
    child?.kill('SIGTERM');
    const deadline = setTimeout(() => child?.kill('SIGKILL'), STOP_DEADLINE_MS);
    await this.#running;
    clearTimeout(deadline);
  }

  /** At once; what it started goes with it. */
  abandon(): void {
    this.#stopping.abort();
    this.#child?.kill('SIGKILL');
  }

  async #keepRunning(): Promise<void> {
    const { signal } = this.#stopping;
    while (!signal.aborted) {
      this.#killed = false;
      const child = this.#spawn();
      this.#child = child;
      this.starts += 1;
      await ended(child);
      if (signal.aborted) return;
      if (!this.#killed) this.#endedItself(child);
      await delay(this.#options.restartAfterMs(), undefined, { signal }).catch(() => undefined);
    }
  }

  #endedItself({ exitCode, signalCode }: ChildProcess): void {
    this.ownEnds += 1;
    const said = this.#said || textOf(this.#options.log).trim().slice(-LOG_TAIL_CHARS);
    const how = `${signalCode ?? `exit code ${exitCode}`}: ${said}`;
    this.#options.onOwnEnd(this.name, how);
    // Without effect once it was ready: only a first start that fails is an error of the run.
    this.#firstReady.reject(new Error(`${this.name} ended at its start, ${how}`));
  }

  #spawn(): ChildProcess {
    const { args, env, log } = this.#options;
    const file = openSync(log, 'a');
    const child = spawn(...boundToParent(process.execPath, args), {
      env: { ...process.env, ...env },
      stdio: ['ignore', 'pipe', file],
    });
    closeSync(file);
    if (child.stdout !== null) {
      createInterface({ input: child.stdout }).on('line', (line) => {
        this.#said = line;
        const event = JSON.parse(line) as Ready;
        if (event.event === 'ready') this.#firstReady.resolve(event);
      });
    }
    return child;
  }
}

const hasEnded = ({ exitCode, signalCode }: ChildProcess): boolean =>
  exitCode !== null || signalCode !== null;

async function ended(child: ChildProcess): Promise<void> {
  if (child.pid !== undefined && !hasEnded(child)) await once(child, 'exit');
}

function textOf(path: string): string {
  try {
    return readFileSync(path, 'utf8');
  } catch {
    return '';
  }
}
