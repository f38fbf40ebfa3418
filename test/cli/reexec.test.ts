/**
 * Started by an older Node, the CLI runs on the packaged one: arguments, input, output, exit code and signals
 * go through, and it does not outlive who started it.
 *
 * The older Node is one of PATH; where there is none, this Node under another version's name.
 */
import assert from 'node:assert/strict';
import { type ChildProcess, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, readFileSync } from 'node:fs';
import { delimiter, join } from 'node:path';
import { text } from 'node:stream/consumers';
import { describe, it } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { bareEnvironment, ROOT, temporaryFolder } from './cli.ts';

const BIN = join(ROOT, 'bin', 'herobus.js');
const PRETEND =
  'data:text/javascript,Object.defineProperty(process, "versions", { value: { ...process.versions, node: "20.1.0" } })';

/** The command line of an older Node. */
function olderNode(): string[] {
  for (const folder of (process.env['PATH'] ?? '').split(delimiter)) {
    const node = join(folder, 'node');
    if (folder.includes('node_modules') || !existsSync(node)) continue;
    const { stdout } = spawnSync(node, ['-p', 'process.versions.node'], { encoding: 'utf8' });
    const major = Number(stdout.split('.')[0]);
    if (major >= 20 && major < 24) return [node];
  }
  return [process.execPath, '--import', PRETEND];
}

function start(home: string, args: string[]): ChildProcess {
  const [node = '', ...before] = olderNode();
  return spawn(node, [...before, BIN, ...args], {
    stdio: ['pipe', 'pipe', 'pipe'],
    env: bareEnvironment(home),
  });
}

async function run(home: string, args: string[], input: string) {
  const child = start(home, args);
  child.stdin?.end(input);
  const said = text(child.stdout as NodeJS.ReadableStream as never);
  const [code] = (await once(child, 'exit')) as [number | null];
  return { code, stdout: await said };
}

/** The process of the packaged Node below this one. */
async function childOf(pid: number): Promise<number> {
  for (let tries = 0; tries < 100; tries++) {
    const list = readFileSync(`/proc/${pid}/task/${pid}/children`, 'utf8').trim();
    if (list !== '') return Number(list.split(' ')[0]);
    await delay(50);
  }
  throw new Error(`process ${pid} has started nothing`);
}

async function isGone(pid: number): Promise<boolean> {
  for (let tries = 0; tries < 100; tries++) {
    try {
      process.kill(pid, 0);
    } catch {
      return true;
    }
    await delay(50);
  }
  return false;
}

const built = existsSync(join(ROOT, 'dist', 'cli.js'));
const options = built ? {} : { skip: 'dist is not built: npm run build' };

describe('cli - on an older Node', options, () => {
  it('passes arguments, input, output and exit codes through', async (t) => {
    const home = temporaryFolder(t);
    const done = await run(home, ['script', 'run', '-', '--arg', 'n:=20'], 'arg("n") * 2 + 2');
    assert.deepEqual(done, { code: 0, stdout: '42\n' });
    const failed = await run(home, ['script', 'run', '-'], 'throw 1');
    assert.equal(failed.code, 1);
    assert.equal((await run(home, ['frob'], '')).code, 64);
  });

  it('passes signals on, and dies with what it stands for', async (t) => {
    const home = temporaryFolder(t);
    // Waits for its input: ended only by the signal.
    const child = start(home, ['script', 'run', '-']);
    const inner = await childOf(child.pid ?? 0);
    await delay(500);
    child.kill('SIGTERM');
    const [code, signal] = (await once(child, 'exit')) as [number | null, string | null];
    assert.equal(signal ?? code, 'SIGTERM');
    assert.equal(await isGone(inner), true);
  });

  it('leaves nothing behind when it is killed hard', async (t) => {
    const home = temporaryFolder(t);
    const child = start(home, ['script', 'run', '-']);
    const inner = await childOf(child.pid ?? 0);
    await delay(500);
    child.kill('SIGKILL');
    await once(child, 'exit');
    assert.equal(await isGone(inner), true);
  });
});
