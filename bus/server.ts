/**
 * The embedded nats-server: a child process that lives and dies with this one.
 *
 * Here: its start, readiness, restart with back-off, orderly stop, the kept port. What it is told is
 * bus/server-config.ts; which binary is bus/server-binary.ts; whom it trusts is bus/credentials.ts; that only
 * one `up` uses a data folder is bus/data-lock.ts, taken here because the store must not be opened twice.
 *
 * S1 The server never outlives this process (setpriv --pdeathsig), and one that did is ended first.
 * S2 The port is chosen once and kept in the data folder: clients and nodes hold its address.
 * S3 A server that dies is started again, for ever, until `stop`; each time it is said, with the cause.
 * S4 The same holds for its first start, unless it ends by itself again and again: that no start mends.
 */
import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { glob, mkdir, readFile, rm, stat } from 'node:fs/promises';
import { createServer } from 'node:net';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { isMainThread } from 'node:worker_threads';
import { ensureError, HeroError } from '../schemas/errors.ts';
import { readIfThere, writeAtomic } from './atomic-file.ts';
import { backoffMs } from './backoff.ts';
import { lockData, type DataLock } from './data-lock.ts';
import { isRunning, portHolder, startedWith } from './processes.ts';
import { findServerBinary, type ServerBinary } from './server-binary.ts';
import {
  serverConfig,
  type ServerOptions,
  type ServerPaths,
  serverPaths,
} from './server-config.ts';

export type EmbeddedServer = {
  /** `nats://host:port`, the same for the life of the data folder. */
  readonly url: string;
  readonly version: string;
  /** The child's pid; undefined while it is being started again. */
  pid(): number | undefined;
  /** How many times it was started again. */
  restarts(): number;
  stop(): Promise<void>;
};

/** Before it is ready a server reads all that it stores: 1 to 2 s for each GB on a quiet machine. */
const READY_TIMEOUT_MS = { least: 60_000, aGigabyte: 60_000 };
/** Larger stores are told of, since nothing else is said meanwhile. */
const TOLD_BEYOND_GB = 2;
const READY_POLL_MS = 10;
const STOP_DEADLINE_MS = 10_000;
const RESTART = { firstMs: 100, capMs: 5_000 };
/** A server that ran this long was well: the next death starts the back-off anew. */
const WELL_AFTER_MS = 5_000;
/** A first start that the server itself ended so often in a row ends the same way for ever. */
const OWN_ENDS_MAX = 3;
const STDERR_KEPT = 8 * 1024;
type Running = { child: ChildProcess; pid: number; port: number };

/** The server ended before it was ready: by itself, or by a signal somebody sent. */
class EndedAtStart extends HeroError {
  readonly byItself: boolean;

  constructor(byItself: boolean, why: string, log: string) {
    super('unreachable', `nats-server ended at its start: ${why}`, { fix: `See ${log}.` });
    this.byItself = byItself;
  }
}

/** Starts the server of a data folder and resolves when it answers. */
export async function startServer(options: ServerOptions): Promise<EmbeddedServer> {
  if (!isMainThread) {
    throw new HeroError(
      'internal',
      'the death signal follows the spawning thread: use the main one',
    );
  }
  const binary = await findServerBinary();
  const lock = await lockData(options.dataDir);
  const paths = serverPaths(options.dataDir);
  try {
    await mkdir(paths.ports, { recursive: true, mode: 0o700 });
    await endLeftovers(paths.config);
    const running = await firstLaunch(binary, options, paths, await keptPort(paths));
    await writeAtomic(paths.port, `${running.port}\n`, 0o644);
    return keepRunning(binary, options, paths, lock, running);
  } catch (error) {
    await lock.release();
    throw error;
  }
}

function keepRunning(
  binary: ServerBinary,
  options: ServerOptions,
  paths: ServerPaths,
  lock: DataLock,
  first: Running,
): EmbeddedServer {
  const { port } = first;
  const stopping = new AbortController();
  let current: Running | undefined = first;
  let restarts = 0;

  async function supervise(): Promise<void> {
    let attempt = 0;
    let why = '';
    while (!stopping.signal.aborted) {
      const startedAt = performance.now();
      if (current !== undefined) {
        await exited(current.child);
        why = `nats-server ended: ${endOf(current.child)}`;
      }
      current = undefined;
      if (stopping.signal.aborted) return;
      if (performance.now() - startedAt > WELL_AFTER_MS) attempt = 0;
      const waitMs = backoffMs(attempt++, RESTART);
      options.alarm?.(`${why}; started again in ${waitMs} ms`);
      await sleep(waitMs, undefined, { signal: stopping.signal }).catch(() => undefined);
      if (stopping.signal.aborted) return;
      // A start that fails is only the next round of this loop (S3).
      try {
        current = await launch(binary, options, paths, port);
        restarts++;
      } catch (error) {
        why = ensureError(error).message;
      }
    }
  }

  const supervision = supervise();
  return {
    url: `nats://${hostInUrl(options.host)}:${port}`,
    version: binary.version,
    pid: () => current?.pid,
    restarts: () => restarts,
    stop: async () => {
      stopping.abort();
      if (current !== undefined) await endChild(current.child);
      await supervision;
      // A launch that was under way when the stop came has finished by now.
      if (current !== undefined) await endChild(current.child);
      await lock.release();
    },
  };
}

/** S4: a start that was ended from outside is tried again for as long as that goes on. */
async function firstLaunch(
  binary: ServerBinary,
  options: ServerOptions,
  paths: ServerPaths,
  port: number,
): Promise<Running> {
  for (let attempt = 0, ownEnds = 0; ; attempt++) {
    try {
      return await launch(binary, options, paths, port);
    } catch (error) {
      if (!(error instanceof EndedAtStart)) throw error;
      ownEnds = error.byItself ? ownEnds + 1 : 0;
      if (ownEnds >= OWN_ENDS_MAX) throw error;
      const waitMs = backoffMs(attempt, RESTART);
      options.alarm?.(`${error.message}; started again in ${waitMs} ms`);
      await sleep(waitMs);
    }
  }
}

function hostInUrl(host = '127.0.0.1'): string {
  return host.includes(':') ? `[${host}]` : host;
}

/** The port of earlier starts, or -1 for one that the system picks. */
async function keptPort(paths: ServerPaths): Promise<number> {
  const text = await readIfThere(paths.port);
  return text === undefined ? -1 : Number.parseInt(text, 10);
}

async function assertPortFree(host: string, port: number, paths: ServerPaths): Promise<void> {
  const probe = createServer();
  probe.listen({ host, port });
  try {
    await once(probe, 'listening');
  } catch (cause) {
    const holder = (await portHolder(port)) ?? 'another process';
    throw new HeroError('unreachable', `port ${port} of ${host} is held by ${holder}`, {
      cause,
      fix: `End it, or remove ${paths.port} to take another port (clients must then be told).`,
    });
  }
  probe.close();
  await once(probe, 'close');
}

/** Ends servers that still run on this store: their parent was killed before they were. */
async function endLeftovers(config: string): Promise<void> {
  for (const pid of await startedWith(config)) {
    signal(pid, 'SIGTERM');
    const deadline = performance.now() + STOP_DEADLINE_MS;
    while (await isRunning(pid)) {
      if (performance.now() > deadline) signal(pid, 'SIGKILL');
      await sleep(READY_POLL_MS);
    }
  }
}

function signal(pid: number, name: NodeJS.Signals): void {
  try {
    process.kill(pid, name);
  } catch {
    // It ended in between.
  }
}

/**
 * What a server wrote about its streams when it ended spares the next one reading them: a message that was
 * damaged since is then a hole that nobody hears of. Without it each record is read and checked, and a stream
 * ends before the first bad one, which the watermarks see.
 */
async function forgetStates({ dir }: ServerPaths): Promise<void> {
  const streams = ['HB_FLOW', 'HB_DEPLOY', 'KV_*'];
  const states = streams.map((name) => inStore(`${name}/msgs/index.db`));
  for await (const state of glob(states, { cwd: dir })) await rm(join(dir, state));
}

const inStore = (path: string): string => `jetstream/jetstream/*/streams/${path}`;

async function storedBytes({ dir }: ServerPaths): Promise<number> {
  let bytes = 0;
  for await (const block of glob(inStore('*/msgs/*.blk'), { cwd: dir })) {
    bytes += (await stat(join(dir, block))).size;
  }
  return bytes;
}

async function launch(
  binary: ServerBinary,
  options: ServerOptions,
  paths: ServerPaths,
  port: number,
): Promise<Running> {
  if (port > 0) await assertPortFree(options.host ?? '127.0.0.1', port, paths);
  await rm(paths.ports, { recursive: true, force: true });
  await mkdir(paths.ports, { recursive: true, mode: 0o700 });
  await forgetStates(paths);
  const gigabytes = (await storedBytes(paths)) / 1e9;
  const withinMs = READY_TIMEOUT_MS.least + gigabytes * READY_TIMEOUT_MS.aGigabyte;
  if (gigabytes > TOLD_BEYOND_GB) {
    options.alarm?.(
      `nats-server reads the ${gigabytes.toFixed(1)} GB it stores before it is ready`,
    );
  }
  await writeAtomic(paths.config, serverConfig(options, port), 0o600);
  const args = ['-c', paths.config, '--ports_file_dir', paths.ports];
  const { child, errors } = await spawnBound(binary.file, args);
  try {
    const pid = child.pid;
    if (pid === undefined) throw new HeroError('unreachable', 'the server could not be started');
    return { child, pid, port: await readyPort(child, pid, paths, errors, withinMs) };
  } catch (error) {
    await endChild(child);
    throw error;
  }
}

/** Spawns so that the kernel kills the child with us (S1); without setpriv `endLeftovers` must do. */
async function spawnBound(
  file: string,
  args: string[],
): Promise<{ child: ChildProcess; errors: () => string }> {
  let errors = '';
  const start = (command: string, all: string[]) => {
    const child = spawn(command, all, { stdio: ['ignore', 'ignore', 'pipe'] });
    child.stderr?.on('data', (data: Buffer) => {
      errors = (errors + data.toString()).slice(-STDERR_KEPT);
    });
    return child;
  };
  let child = start('setpriv', ['--pdeathsig', 'KILL', file, ...args]);
  try {
    await once(child, 'spawn');
  } catch {
    child = start(file, args);
    await once(child, 'spawn');
  }
  return { child, errors: () => errors };
}

function hasExited(child: ChildProcess): boolean {
  return child.exitCode !== null || child.signalCode !== null;
}

async function exited(child: ChildProcess): Promise<void> {
  if (!hasExited(child)) await once(child, 'exit');
}

async function endChild(child: ChildProcess): Promise<void> {
  if (hasExited(child)) return;
  const gone = once(child, 'exit');
  child.kill('SIGTERM');
  const deadline = setTimeout(() => child.kill('SIGKILL'), STOP_DEADLINE_MS);
  await gone;
  clearTimeout(deadline);
}

/** The port the server says it listens on: written by it when it accepts clients. */
async function readyPort(
  child: ChildProcess,
  pid: number,
  paths: ServerPaths,
  errors: () => string,
  withinMs: number,
): Promise<number> {
  const file = join(paths.ports, `nats-server_${pid}.ports`);
  const deadline = performance.now() + withinMs;
  while (performance.now() < deadline) {
    if (hasExited(child)) {
      const why = await lastWords(child, paths, errors);
      throw new EndedAtStart(child.signalCode === null, why, paths.log);
    }
    const port = portIn(await readIfThere(file));
    if (port !== undefined) return port;
    await sleep(READY_POLL_MS);
  }
  const seconds = Math.round(withinMs / 1000);
  throw new HeroError('unreachable', `nats-server was not ready within ${seconds} s`, {
    fix: `See ${paths.log}.`,
  });
}

/** The file may be seen half written. */
function portIn(text: string | undefined): number | undefined {
  const match = /"nats":\s*\[\s*"[a-z]+:\/\/[^"]*:(\d+)"/.exec(text ?? '');
  return match?.[1] === undefined || !text?.trimEnd().endsWith('}') ? undefined : Number(match[1]);
}

/** Earlier starts wrote to the same log: only the lines of this process tell why it ended. */
async function lastWords(
  child: ChildProcess,
  paths: ServerPaths,
  errors: () => string,
): Promise<string> {
  const { pid } = child;
  const log = await readFile(paths.log, 'utf8').catch(() => '');
  const own = log.split('\n').filter((line) => line.startsWith(`[${pid}] `));
  const fatal = own.findLast((line) => /\[(FTL|ERR)\]/.test(line));
  return (errors().trim() || fatal || endOf(child)).slice(-1024);
}

function endOf({ exitCode, signalCode }: ChildProcess): string {
  return signalCode === null
    ? `it gave no reason (exit code ${exitCode})`
    : `it was ended by ${signalCode}`;
}
