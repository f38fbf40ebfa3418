/**
 * After an accepted loss the flows that were open go on: one whose log lost its end does again what it cannot
 * know it did, and one that lost its deploy is not there, and may be deployed again.
 *
 * Method: two flows run, everything is killed, and the newest block of the log is cut where the second began.
 */
import assert from 'node:assert/strict';
import { readFile, truncate, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { test, type TestContext } from 'node:test';
import { watermarkPath } from '../../bus/watermark.ts';
import { WatermarkFile } from '../../schemas/config.ts';
import { newestBlock } from '../bus/store.ts';
import { flowOf, herobus, Node, startNode, temporaryFolder, until } from './nodes.ts';

const SCRIPT = `
let first = process("echo", ["one"]);
let one = join(first).stdout;
let second = process(#{cmd: "sleep", args: [arg("seconds", "0")], idempotent: true});
join(second);
one
`;
const ENDED_WITHIN_MS = 60_000;

/** Publishes what was sealed; the same bytes are the same flow. */
async function publish(node: Node, server: string, sealed: string): Promise<string> {
  const ran = await herobus(node.home, [
    '--server',
    server,
    '--json',
    'publish',
    sealed,
    '--detach',
  ]);
  assert.equal(ran.code, 0, ran.stderr);
  return (JSON.parse(ran.stdout) as { flow: string }).flow;
}

/** The second job is planned: the log holds more of the flow than its beginning. */
async function underWay(node: Node, server: string, flow: string): Promise<void> {
  await until(
    `the second job of ${flow}`,
    async () => (await flowOf(node.home, server, flow)).jobs[1],
    ENDED_WITHIN_MS,
  );
}

async function markOf(dataDir: string): Promise<number> {
  const { streams } = WatermarkFile.parse(
    JSON.parse(await readFile(watermarkPath(dataDir), 'utf8')),
  );
  return streams['HB_FLOW']?.seq ?? 0;
}

/** Where the flow begins in the newest block. A record begins with its length and its sequence. */
async function beginOf(block: string, flow: string): Promise<{ at: number; seq: number }> {
  const bytes = await readFile(block);
  for (let at = 0; at + 4 <= bytes.length; ) {
    const length = bytes.readUInt32LE(at) & 0x7fff_ffff;
    if (bytes.subarray(at, at + length).includes(flow)) {
      return { at, seq: Number(bytes.readBigUInt64LE(at + 4)) };
    }
    at += length;
  }
  return assert.fail(`the log holds nothing of ${flow}`);
}

async function completed(node: Node, server: string, flow: string): Promise<void> {
  const shown = await until(
    `the end of ${flow}`,
    async () => {
      const seen = await flowOf(node.home, server, flow);
      return seen.status === 'completed' || seen.status === 'failed' ? seen : undefined;
    },
    ENDED_WITHIN_MS,
  );
  assert.deepEqual([shown.status, shown.value], ['completed', 'one\n'], JSON.stringify(shown));
}

/** Two deployments of the script, sealed. */
async function sealedBy(t: TestContext, home: string, server: string): Promise<string[]> {
  const folder = temporaryFolder(t);
  const script = join(folder, 'two.rhai');
  await writeFile(script, SCRIPT);
  const files = ['kept', 'lost'].map((name) => join(folder, name));
  for (const out of files) {
    const args = ['--server', server, 'deploy', script, '--arg', 'seconds=3', '--out', out];
    const ran = await herobus(home, args);
    assert.equal(ran.code, 0, ran.stderr);
  }
  return files;
}

async function lose(control: Node, worker: Node, sealed: string[]): Promise<string[]> {
  const server = control.ready?.server ?? '';
  const kept = await publish(worker, server, sealed[0] ?? '');
  const lost = await publish(worker, server, sealed[1] ?? '');
  await underWay(worker, server, kept);
  await underWay(worker, server, lost);
  const block = newestBlock(control.data, 'HB_FLOW');
  const { at, seq } = await beginOf(block, lost);
  const marked = async () => (await markOf(control.data)) >= seq || undefined;
  await until('its mark', marked, ENDED_WITHIN_MS);
  await control.kill('SIGKILL');
  await truncate(block, at);
  return [kept, lost];
}

async function startAccepting(t: TestContext, before: Node): Promise<Node> {
  await assert.rejects(before.start());
  assert.match(JSON.stringify(before.events.at(-1)), /"log_regressed","message":"HB_FLOW ends at/);
  const args = [...before.args, '--accept-loss'];
  const control = new Node(t, before.home, before.data, args);
  await control.start();
  return control;
}

/** The kept flow ends as if nothing had happened; the lost one is nowhere, until it is published again. */
async function goOn(control: Node, [kept = '', lost = '']: string[], sealed: string[]) {
  const server = control.ready?.server ?? '';
  const gone = await herobus(control.home, ['--server', server, '--json', 'flow', lost]);
  assert.match(gone.stdout, /"code":"not_found"/);
  await completed(control, server, kept);
  assert.equal(await publish(control, server, sealed[1] ?? ''), lost);
  await completed(control, server, lost);
}

test('loss - what was open goes on after an accepted loss', async (t) => {
  const before = await startNode(t);
  const sealed = await sealedBy(t, before.home, before.ready?.server ?? '');
  const flows = await lose(before, before, sealed);
  const control = await startAccepting(t, before);
  await goOn(control, flows, sealed);
});

test('loss - a node that stayed up is started again, and goes by the shorter log', async (t) => {
  const folder = temporaryFolder(t);
  const roles = ['--roles', 'ledger,roster,coord'];
  const before = new Node(t, join(folder, 'control'), join(folder, 'bus'), roles);
  const { server } = await before.start();
  const work = ['--join', server, '--roles', 'supervisor,runner', '--name', 'worker'];
  const worker = new Node(t, join(folder, 'worker'), join(folder, 'node'), work);
  await worker.start();
  const sealed = await sealedBy(t, before.home, server);
  const flows = await lose(before, before, sealed);
  const control = await startAccepting(t, before);
  await worker.kill('SIGTERM');
  await worker.start();
  await goOn(control, flows, sealed);
});
