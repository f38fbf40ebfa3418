/**
 * Nodes of a test: real `herobus up` processes in temporary folders, started, killed and cleaned up.
 *
 * Everything a test starts dies with it: children by their pid, what they started by the kernel, folders at
 * the end, also when the test fails.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { createInterface } from 'node:readline';
import type { TestContext } from 'node:test';

const ROOT = resolve(import.meta.dirname, '../..');
export const HEROBUS = join(ROOT, 'bin', 'herobus.js');
const READY_WITHIN_MS = 45_000;

export type Ready = { principal: string; address: string; server: string };
export type Ran = { code: number; stdout: string; stderr: string };

export function temporaryFolder(t: TestContext): string {
  const folder = mkdtempSync(join(tmpdir(), 'herobus-test-'));
  t.after(() => rmSync(folder, { recursive: true, force: true, maxRetries: 10, retryDelay: 100 }));
  return folder;
}

/** Runs one CLI command to its end. */
export async function herobus(home: string, args: string[], input?: string): Promise<Ran> {
  const child = spawn(process.execPath, [HEROBUS, '--home', home, ...args], {
    stdio: ['pipe', 'pipe', 'pipe'],
    env: { ...process.env, NO_COLOR: '1' },
  });
  child.stdin.on('error', () => {});
  child.stdin.end(input ?? '');
  const texts = Promise.all([child.stdout, child.stderr].map(textOf));
  const [code] = (await once(child, 'exit')) as [number | null];
  const [stdout = '', stderr = ''] = await texts;
  return { code: code ?? -1, stdout, stderr };
}

async function textOf(stream: NodeJS.ReadableStream): Promise<string> {
  let text = '';
  for await (const chunk of stream.setEncoding('utf8')) text += String(chunk);
  return text;
}

/** One `herobus up`, which can be killed and started again on the same folders. */
export class Node {
  readonly home: string;
  readonly data: string;
  readonly args: string[];
  ready: Ready | undefined;
  /** What it said on stdout, a JSON value a line. */
  readonly events: unknown[] = [];
  /** What it said on stderr, for a failing test's message. */
  log = '';
  #child: ChildProcess | undefined;

  constructor(t: TestContext, home: string, data: string, args: string[] = []) {
    this.home = home;
    this.data = data;
    this.args = args;
    t.after(() => this.kill('SIGKILL'));
  }

  get pid(): number {
    const pid = this.#child?.pid;
    if (pid === undefined) throw new Error('the node does not run');
    return pid;
  }

  get running(): boolean {
    return (
      this.#child !== undefined && this.#child.exitCode === null && this.#child.signalCode === null
    );
  }

  async start(): Promise<Ready> {
    const args = [HEROBUS, '--home', this.home, '--json', 'up', '--data', this.data, ...this.args];
    const child = spawn(process.execPath, args, { stdio: ['ignore', 'pipe', 'pipe'] });
    this.#child = child;
    child.stderr.setEncoding('utf8').on('data', (text: string) => {
      this.log += text;
    });
    this.ready = await this.#readyLine(child);
    return this.ready;
  }

  async #readyLine(child: ChildProcess): Promise<Ready> {
    const deadline = AbortSignal.timeout(READY_WITHIN_MS);
    const lines = createInterface({ input: child.stdout as NodeJS.ReadableStream });
    return new Promise((resolveReady, reject) => {
      lines.on('line', (line) => {
        const event = JSON.parse(line) as Ready & { event: string };
        this.events.push(event);
        if (event.event === 'ready') resolveReady(event);
      });
      child.once('exit', () =>
        reject(new Error(`the node ended before it was ready:\n${this.log}`)),
      );
      deadline.addEventListener('abort', () =>
        reject(new Error(`the node was not ready in time:\n${this.log}`)),
      );
    });
  }

  signal(name: NodeJS.Signals): void {
    this.#child?.kill(name);
  }

  /** Kills the process; resolves when it is gone. Its server and runners go with it. */
  async kill(signal: NodeJS.Signals = 'SIGKILL'): Promise<void> {
    const child = this.#child;
    if (child === undefined || !this.running) return;
    const gone = once(child, 'exit');
    child.kill('SIGCONT');
    child.kill(signal);
    await gone;
  }

  /** Pids of the runner children, by their name. */
  runners(): number[] {
    const children = readFileSync(`/proc/${this.pid}/task/${this.pid}/children`, 'utf8');
    return children
      .split(' ')
      .filter((pid) => pid !== '')
      .map(Number)
      .filter((pid) => commandLine(pid).includes('runner'));
  }
}

function commandLine(pid: number): string {
  try {
    return readFileSync(`/proc/${pid}/cmdline`, 'utf8').replaceAll('\0', ' ');
  } catch {
    return '';
  }
}

/** A home with a key, and a node with an embedded bus in it, ready. */
export async function startNode(t: TestContext, args: string[] = []): Promise<Node> {
  const folder = temporaryFolder(t);
  const node = new Node(t, join(folder, 'home'), join(folder, 'data'), [
    '--name',
    'first',
    ...args,
  ]);
  await node.start();
  return node;
}

export type FlowObject = {
  flow: string;
  status: string;
  value: unknown;
  error: { code: string; message: string; cause: unknown } | null;
  supervisor: string | null;
  ended_at: string | null;
  jobs: {
    job: string;
    status: string;
    attempt: number;
    node: string | null;
    name: string;
    error: { code: string } | null;
  }[];
};

/** The flow object as the CLI shows it. */
export async function flowOf(home: string, server: string, id: string): Promise<FlowObject> {
  const { stdout, stderr } = await herobus(home, ['--server', server, '--json', 'flow', id]);
  try {
    return JSON.parse(stdout) as FlowObject;
  } catch {
    throw new Error(`flow ${id}: ${stdout}${stderr}`);
  }
}

/** Waits until a condition holds, looked at every 100 ms; fails with what it looked at last. */
export async function until<T>(
  what: string,
  look: () => Promise<T | undefined>,
  withinMs: number,
): Promise<T> {
  const deadline = performance.now() + withinMs;
  for (;;) {
    const seen = await look().catch(() => undefined);
    if (seen !== undefined) return seen;
    if (performance.now() > deadline) throw new Error(`${what} did not come in ${withinMs} ms`);
    await new Promise((resolveWait) => setTimeout(resolveWait, 100));
  }
}

/** A seeded source of chance (mulberry32), so that a failing run can be run again. */
export function seeded(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let t = state;
    t = Math.imul(t ^ (t >>> 15), t | 1);
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  };
}
