/**
 * Runs one command of the system in a process group of its own. The only place that uses execa.
 *
 * It streams output while the command runs, ends the whole group when asked or overdue, and maps what can
 * go wrong before a command starts to errors of ours. What the end of a command means is left to its
 * caller; who ends the groups of a runner that died is `guardian.ts`.
 *
 *   X1 the command executes nothing before its group is known to the guardian: it waits at a gate, and a
 *      gate whose opener died lets nobody through;
 *   X2 nothing of the group is left when `exec` returns, however the command ended;
 *   X3 the first reason to end a command is the one reported;
 *   X4 while `onLines` is busy its stream is not read, so a fast writer waits and loses nothing.
 */
import { existsSync, realpathSync } from 'node:fs';
import type { Readable, Writable } from 'node:stream';
import { setTimeout as delay } from 'node:timers/promises';
import { execa } from 'execa';
import { ensureError, HeroError } from '../schemas/errors.ts';
import { findCommand } from './command.ts';
import { atMoment } from './deadline.ts';
import { groupGone, signalGroup } from './group.ts';
import type { Guardian } from './guardian.ts';
import { LineSplitter, Tail } from './lines.ts';
import type { Meter } from './usage.ts';

export type OutputStream = 'stdout' | 'stderr';
export type OnLines = (stream: OutputStream, lines: string[]) => void | Promise<void>;

export type ExecRequest = {
  cmd: string;
  args: string[];
  /** All of it: nothing of this process's own environment is added. */
  env: Record<string, string>;
  cwd: string;
  stdin: string | null;
  /** Ends the group: TERM, and KILL after the grace. */
  signal: AbortSignal;
  graceMs?: number;
  /** On the monotonic clock (`performance.now()`); null for none. */
  deadlineMs?: number | null;
  onLines?: OnLines;
  guardian?: Guardian;
  meter?: Meter;
};

export type ExecResult = {
  /** Why it ended: by itself, or because it was overdue or aborted (X3). */
  ended: 'exit' | 'deadline' | 'aborted';
  code: number | null;
  signal: NodeJS.Signals | null;
  stdout: string;
  stderr: string;
  truncated: boolean;
};

/** Enough to close files and say goodbye; a cancelled job has to be gone within a second. */
export const KILL_GRACE_MS = 500;
/** A descendant that left the group can hold a pipe open for ever: it is not waited for. */
const HELD_OUTPUT_MS = 1000;
const GROUP_GONE_MS = 1000;

/** Reads the word that opens the gate from descriptor 3, then becomes the command. */
const GATE = 'read -r go <&3 || exit 125; unset go; exec 3<&-; exec "$@"';
/** Busybox has a setpriv too, without this option. */
const SETPRIV = ['/usr/bin/setpriv', '/bin/setpriv'].find(
  (file) => existsSync(file) && !realpathSync(file).endsWith('/busybox'),
);
/** The kernel ends a direct child with its parent, before the guardian comes to it. */
const WITH_PARENT = SETPRIV === undefined ? [] : [SETPRIV, '--pdeathsig', 'KILL', '--'];

export async function exec(request: ExecRequest): Promise<ExecResult> {
  request.signal.throwIfAborted();
  const file = findCommand(request.cmd, request.env['PATH'], request.cwd);
  const child = spawnOrThrow(file, request);
  const pgid = child.pid;
  if (pgid === undefined) throw spawnError(request, await child);

  const outputs = {
    stdout: new Output(child.stdout as Readable, 'stdout', request.onLines),
    stderr: new Output(child.stderr as Readable, 'stderr', request.onLines),
  };
  const exit = new Promise<Pick<ExecResult, 'code' | 'signal'>>((resolve) => {
    child.nodeChildProcess.once('exit', (code, signal) => resolve({ code, signal }));
  });
  const ending = new Ending(pgid, request);
  let exited = false;
  request.meter?.begin(pgid);
  try {
    await request.guardian?.enter(pgid);
    openGate(child.stdio[3] as unknown as Writable);
    feed(child.stdin, request.stdin);
    const { code, signal } = await exit;
    exited = true;
    await request.meter?.end();
    await ending.finish([outputs.stdout, outputs.stderr]);
    const { stdout, stderr } = outputs;
    const fault = stdout.fault ?? stderr.fault;
    if (fault !== undefined) throw fault;
    return {
      ended: ending.reason ?? 'exit',
      code,
      signal,
      stdout: stdout.tail.text(),
      stderr: stderr.tail.text(),
      truncated: stdout.tail.truncated || stderr.tail.truncated,
    };
  } finally {
    // A command that was never let through the gate.
    if (!exited) signalGroup(pgid, 'SIGKILL');
    ending.dispose();
    void request.meter?.end();
    request.guardian?.leave(pgid);
  }
}

/** Some refusals are thrown at once (a NUL in an argument), others come as the child's result. */
function spawnOrThrow(file: string, request: ExecRequest): ReturnType<typeof spawnAtGate> {
  try {
    return spawnAtGate(file, request);
  } catch (error) {
    throw spawnError(request, error);
  }
}

function spawnAtGate(file: string, { args, env, cwd, stdin }: ExecRequest) {
  return execa('/bin/sh', ['-c', GATE, 'sh', ...WITH_PARENT, file, ...args], {
    cwd,
    env,
    extendEnv: false,
    // A group and session of its own.
    detached: true,
    // Ends are ours: execa neither kills at our exit nor throws for a code.
    cleanup: false,
    reject: false,
    buffer: false,
    encoding: 'buffer',
    stdio: [stdin === null ? 'ignore' : 'pipe', 'pipe', 'pipe', 'pipe'],
  });
}

/** Without the cause: its message has the whole command line, which may hold secrets. */
function spawnError({ cmd }: ExecRequest, cause: unknown): HeroError {
  const { code } = cause as { code?: unknown };
  const why = typeof code === 'string' ? code : 'its arguments or environment cannot be passed on';
  return new HeroError('job_failed', `${cmd} could not be started (${why})`);
}

/** The far end may be gone already (killed at the gate): that shows in how the child ended. */
function openGate(gate: Writable): void {
  gate.on('error', () => undefined);
  gate.end('\n');
}

/** A command that does not read its input to the end is no error. */
function feed(stdin: Writable | null, text: string | null): void {
  if (stdin === null || text === null) return;
  stdin.on('error', () => undefined);
  stdin.end(text);
}

/** Reads one stream to its end. */
class Output {
  readonly tail = new Tail();
  /** The sink's first fault; nothing more is handed to it, the stream is read on to its end. */
  fault: Error | undefined;
  readonly done: Promise<void>;
  readonly #stream: Readable;
  #busy = false;

  constructor(stream: Readable, name: OutputStream, onLines: OnLines | undefined) {
    this.#stream = stream;
    this.done = this.#read(name, onLines);
  }

  /** The sink holds it up, not the pipe. */
  get busy(): boolean {
    return this.#busy;
  }

  abandon(): void {
    this.#stream.destroy();
  }

  async #read(name: OutputStream, onLines: OnLines | undefined): Promise<void> {
    const splitter = new LineSplitter();
    try {
      for await (const chunk of this.#stream as AsyncIterable<Uint8Array>) {
        this.tail.push(chunk);
        if (onLines !== undefined) await this.#hand(name, splitter.push(chunk), onLines);
      }
    } catch {
      // Abandoned, or the pipe broke: what was read is what there is.
    }
    if (onLines !== undefined) await this.#hand(name, splitter.end(), onLines);
  }

  async #hand(name: OutputStream, lines: string[], onLines: OnLines): Promise<void> {
    if (lines.length === 0 || this.fault !== undefined) return;
    this.#busy = true;
    try {
      await onLines(name, lines);
    } catch (error) {
      this.fault = ensureError(error);
    } finally {
      this.#busy = false;
    }
  }
}

/** Why and how a group is ended. */
class Ending {
  reason: 'deadline' | 'aborted' | undefined;
  readonly #pgid: number;
  readonly #graceMs: number;
  readonly #signal: AbortSignal;
  readonly #onAbort = (): void => this.#end('aborted');
  #forgetDeadline: () => void = () => undefined;
  #graceEndsMs = 0;
  #kill: NodeJS.Timeout | undefined;

  constructor(pgid: number, { signal, graceMs, deadlineMs }: ExecRequest) {
    this.#pgid = pgid;
    this.#graceMs = graceMs ?? KILL_GRACE_MS;
    this.#signal = signal;
    if (signal.aborted) this.#onAbort();
    else signal.addEventListener('abort', this.#onAbort, { once: true });
    if (deadlineMs !== undefined && deadlineMs !== null) {
      this.#forgetDeadline = atMoment(deadlineMs, () => this.#end('deadline'));
    }
  }

  /** After the leader's exit: ends the rest of the group and waits for the output and for silence. */
  async finish(outputs: Output[]): Promise<void> {
    this.#forgetDeadline();
    const done = Promise.all(outputs.map((output) => output.done));
    if (this.reason !== undefined) {
      // A wrapper that dies at once must not take the grace from the command under it.
      await Promise.race([done, waitMs(this.#graceEndsMs - performance.now())]);
    }
    this.dispose();
    signalGroup(this.#pgid, 'SIGKILL');
    let drained = false;
    void done.then(() => {
      drained = true;
    });
    do {
      await Promise.race([done, waitMs(HELD_OUTPUT_MS)]);
    } while (!drained && outputs.some((output) => output.busy));
    if (!drained) {
      for (const output of outputs) output.abandon();
      await done;
    }
    await groupGone(this.#pgid, GROUP_GONE_MS);
  }

  dispose(): void {
    this.#signal.removeEventListener('abort', this.#onAbort);
    this.#forgetDeadline();
    clearTimeout(this.#kill);
  }

  #end(reason: 'deadline' | 'aborted'): void {
    if (this.reason !== undefined) return;
    this.reason = reason;
    this.#graceEndsMs = performance.now() + this.#graceMs;
    signalGroup(this.#pgid, 'SIGTERM');
    // A stopped process takes no TERM until it goes on.
    signalGroup(this.#pgid, 'SIGCONT');
    this.#kill = setTimeout(() => signalGroup(this.#pgid, 'SIGKILL'), this.#graceMs);
  }
}

function waitMs(ms: number): Promise<void> {
  return delay(Math.max(0, ms), undefined, { ref: false });
}

/** For callers that only want the text of a tool's answer. */
export function exitError(cmd: string, { code, signal, stderr }: ExecResult): HeroError {
  const how = signal === null ? `exited with code ${code}` : `was ended by ${signal}`;
  const last = lastLines(stderr);
  return new HeroError('job_failed', `${cmd} ${how}${last === '' ? '' : `: ${last}`}`);
}

const LAST_LINES = 10;
const LAST_CHARACTERS = 1500;

function lastLines(text: string): string {
  return text.trimEnd().split('\n').slice(-LAST_LINES).join('\n').slice(-LAST_CHARACTERS);
}
