/**
 * `npm run demo`: a whole herobus in a temporary folder, used through its own command line.
 *
 * Makes a key, starts a bus with one node, deploys the signed `examples/fleet.rhai`, narrates it and shows
 * its value. Everything is taken down and removed at the end, unless `--keep` is given.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { createInterface } from 'node:readline';

const ROOT = resolve(import.meta.dirname, '..');
const HEROBUS = join(ROOT, 'bin', 'herobus.js');
const READY_WITHIN_MS = 60_000;

type Ready = { event: 'ready'; server: string; web: string | null; address: string };

async function demo(keep: boolean): Promise<number> {
  const folder = await mkdtemp(join(tmpdir(), 'herobus-demo-'));
  const home = ['--home', join(folder, 'home')];
  let node: ChildProcess | undefined;
  try {
    await herobus([...home, 'init', '--name', 'demo']);
    console.log('demo: starting a bus and one node');
    node = spawn(process.execPath, [HEROBUS, ...home, '--json', 'up', '--name', 'demo'], {
      stdio: ['ignore', 'pipe', 'inherit'],
    });
    const ready = await readyLine(node);
    console.log(`demo: the bus answers at ${ready.server}`);
    console.log('demo: deploying examples/fleet.rhai (20 processes, one that fails twice)');
    const script = join(ROOT, 'examples', 'fleet.rhai');
    const code = await herobus([...home, 'deploy', script, '--grant', 'kv:read,kv:write']);
    if (ready.web !== null) console.log(`demo: the web page is at ${ready.web}`);
    if (keep) {
      console.log(`demo: kept running; try: node bin/herobus.js ${home.join(' ')} flows`);
      console.log('demo: end it with Ctrl-C');
      await Promise.race([once(process, 'SIGINT'), once(node, 'exit')]);
    }
    console.log('demo: taking it down; go on with docs/tutorial.md');
    return code;
  } finally {
    await stop(node);
    await rm(folder, { recursive: true, force: true });
  }
}

/** Runs one command of the CLI in the foreground; resolves with its exit code. */
async function herobus(args: string[]): Promise<number> {
  const child = spawn(process.execPath, [HEROBUS, ...args], { stdio: 'inherit' });
  const [code] = (await once(child, 'exit')) as [number | null];
  return code ?? 1;
}

async function readyLine(node: ChildProcess): Promise<Ready> {
  if (node.stdout === null) throw new Error('the node has no output to read');
  const lines = createInterface({ input: node.stdout });
  const signal = AbortSignal.timeout(READY_WITHIN_MS);
  const ended = once(node, 'exit', { signal }).then(([code]) => {
    throw new Error(`the node ended with exit code ${String(code)} before it was ready`);
  });
  const ready = (async () => {
    for await (const line of lines) {
      const event = JSON.parse(line) as Ready;
      if (event.event === 'ready') return event;
    }
    return ended;
  })();
  return Promise.race([ready, ended]);
}

async function stop(node: ChildProcess | undefined): Promise<void> {
  if (node === undefined || node.exitCode !== null || node.signalCode !== null) return;
  const gone = once(node, 'exit');
  node.kill('SIGTERM');
  await gone;
}

process.exitCode = await demo(process.argv.includes('--keep'));
