/**
 * The workspace of a benchmark: one folder for everything that is measured, and every process started for it.
 *
 * All systems keep their data below this folder, so that they share one disk and one filesystem. What is
 * started here ends with it: in order at the end, on SIGINT or a failure too, and by the kernel when the
 * benchmark itself is killed.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { createWriteStream } from 'node:fs';
import { mkdir, mkdtemp, readdir, readFile, rm } from 'node:fs/promises';
import { createServer, type AddressInfo } from 'node:net';
import { join, resolve } from 'node:path';
import { isRunning } from '../../bus/processes.ts';
import { findCommand } from '../../sal/command.ts';

export const ROOT = resolve(import.meta.dirname, '../..');
/** What benchmarks install and write; removed without loss. */
export const CACHE = join(ROOT, '.cache', 'bench');

const STOP_DEADLINE_MS = 15_000;
const LOG_TAIL_CHARS = 800;

export type SpawnOptions = {
  env?: Record<string, string>;
  /** Its stdout is read by who started it, instead of logged. */
  pipeStdout?: boolean;
  /** Messages by `process.send`, for a child that is a program of ours. */
  ipc?: boolean;
};

export class Workspace {
  readonly folder: string;
  readonly #endings: (() => Promise<void> | void)[] = [];
  #closing: Promise<void> | undefined;

  private constructor(folder: string) {
    this.folder = folder;
  }

  /** Opens one for what `act` does, and closes it whatever happens. */
  static async use<T>(act: (workspace: Workspace) => Promise<T>): Promise<T> {
    await mkdir(CACHE, { recursive: true });
    await sweep();
    const workspace = new Workspace(await mkdtemp(join(CACHE, `run-${process.pid}-`)));
    const interrupted = (): void => {
      void workspace.close().finally(() => process.exit(130));
    };
    process.once('SIGINT', interrupted).once('SIGTERM', interrupted);
    try {
      return await act(workspace);
    } finally {
      await workspace.close();
      process.off('SIGINT', interrupted).off('SIGTERM', interrupted);
    }
  }

  /** A new folder below this one. */
  async subfolder(name: string): Promise<string> {
    const path = join(this.folder, name);
    await mkdir(path, { recursive: true, mode: 0o700 });
    return path;
  }

  /** To be done at the end, before what was there earlier ends. */
  atEnd(step: () => Promise<void> | void): void {
    this.#endings.push(step);
  }

  /** Starts a process that ends with the workspace; what it says is in `<name>.log`. */
  spawn(name: string, command: string, args: string[], options: SpawnOptions = {}): Child {
    const log = join(this.folder, `${name}.log`);
    const child = spawn(...boundToParent(command, args), {
      cwd: this.folder,
      env: { ...process.env, ...options.env },
      stdio: ['ignore', 'pipe', 'pipe', ...(options.ipc ? (['ipc'] as const) : [])],
    });
    const sink = createWriteStream(log, { flags: 'a' });
    child.stderr?.pipe(sink, { end: false });
    if (!options.pipeStdout) child.stdout?.pipe(sink, { end: false });
    const started = new Child(name, child, log);
    this.atEnd(async () => {
      await started.stop();
      sink.end();
    });
    return started;
  }

  close(): Promise<void> {
    this.#closing ??= this.#close();
    return this.#closing;
  }

  async #close(): Promise<void> {
    for (const step of this.#endings.splice(0).reverse()) {
      await Promise.resolve(step()).catch((error: unknown) => console.error(String(error)));
    }
    await rm(this.folder, { recursive: true, force: true, maxRetries: 10, retryDelay: 100 });
  }
}

/** Folders of benchmarks that were killed. */
async function sweep(): Promise<void> {
  for (const name of await readdir(CACHE)) {
    const pid = /^run-(\d+)-/.exec(name)?.[1];
    if (pid === undefined || (await isRunning(Number(pid)))) continue;
    await rm(join(CACHE, name), { recursive: true, force: true });
  }
}

/** setpriv: the kernel kills the process when this one dies, however it dies. */
export function boundToParent(command: string, args: string[]): [string, string[]] {
  const setpriv = onPath('setpriv');
  return setpriv === null ? [command, args] : [setpriv, ['--pdeathsig', 'KILL', command, ...args]];
}

/** The program of this name on PATH; null when there is none. */
export function onPath(name: string): string | null {
  try {
    return findCommand(name, process.env['PATH'], ROOT);
  } catch {
    return null;
  }
}

export class Child {
  readonly process: ChildProcess;
  readonly #name: string;
  readonly #log: string;

  constructor(name: string, child: ChildProcess, log: string) {
    this.process = child;
    this.#name = name;
    this.#log = log;
    child.on('error', () => undefined);
  }

  get pid(): number {
    const { pid } = this.process;
    if (pid === undefined) throw new Error(`${this.#name} could not be started`);
    return pid;
  }

  get #ended(): boolean {
    const { pid, exitCode, signalCode } = this.process;
    return pid === undefined || exitCode !== null || signalCode !== null;
  }

  async stop(): Promise<void> {
    if (this.#ended) return;
    const gone = once(this.process, 'exit');
    this.process.kill('SIGTERM');
    const deadline = setTimeout(() => this.process.kill('SIGKILL'), STOP_DEADLINE_MS);
    await gone;
    clearTimeout(deadline);
  }

  /** Waits for something the process brings about; rejects with its last words when it ends before. */
  async until<T>(what: Promise<T>, patienceMs: number): Promise<T> {
    const over = new AbortController();
    const { signal } = over;
    const ended = once(this.process, 'exit', { signal }).then(() => this.#fail('ended'));
    const late = new Promise<never>((_, reject) => {
      const timer = setTimeout(() => {
        this.#fail(`was not ready in ${patienceMs} ms`).catch(reject);
      }, patienceMs);
      signal.addEventListener('abort', () => clearTimeout(timer));
    });
    ended.catch(() => undefined);
    try {
      if (this.#ended) await this.#fail('ended');
      return await Promise.race([what, ended, late]);
    } finally {
      over.abort();
    }
  }

  /** The next message of a child with `ipc` that has this key. */
  async message<T>(key: string, patienceMs: number): Promise<T> {
    const { process: child } = this;
    const come = Promise.withResolvers<T>();
    const take = (message: unknown): void => {
      if (message !== null && typeof message === 'object' && key in message) {
        come.resolve((message as Record<string, T>)[key] as T);
      }
    };
    child.on('message', take);
    try {
      return await this.until(come.promise, patienceMs);
    } finally {
      child.off('message', take);
    }
  }

  async #fail(what: string): Promise<never> {
    const said = await readFile(this.#log, 'utf8').catch(() => '');
    throw new Error(`${this.#name} ${what}: ${said.trim().slice(-LOG_TAIL_CHARS)}`);
  }
}

/** A port nobody listens on now. */
export async function freePort(): Promise<number> {
  const probe = createServer().listen(0, '127.0.0.1');
  await once(probe, 'listening');
  const { port } = probe.address() as AddressInfo;
  probe.close();
  await once(probe, 'close');
  return port;
}
