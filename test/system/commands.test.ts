/**
 * Commands to a flow, end to end: a retry opens what failed again and only that, a pause holds the rest of a
 * flow back until it is resumed, and `why` tells both.
 */
import assert from 'node:assert/strict';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { readKey } from '../../actors/identity/key-file.ts';
import { subjects } from '../../bus/subjects.ts';
import { sealCommand } from '../../tools/cli/seal.ts';
import { connectAs } from './evidence.ts';
import {
  type FlowObject,
  flowOf,
  herobus,
  type Node,
  startNode,
  temporaryFolder,
  until,
} from './nodes.ts';

const RUNNERS = ['--runners', 'process=4,sal=1'];

/** Job 0 leaves a mark, job 1 fails until the gate is open, job 2 goes on until the flow's end takes it. */
const GATED = `
let dir = arg("dir");
let sh = |name, text| process(#{ cmd: "sh", args: ["-c", text], name: name });
sh.call("first", \`echo ran >> \${dir}/first\`).value;
let gate = sh.call("gate", \`test -e \${dir}/gate || exit 7\`);
let slow = sh.call("slow", \`test -e \${dir}/gate || sleep 60; echo ran >> \${dir}/slow\`);
join(gate);
join(slow);
"through"
`;

type Why = { state: string; because: { fact: string; source: string }[] };

async function ask<T>(node: Node, args: string[], code = 0, input?: string): Promise<T> {
  const server = node.ready?.server ?? '';
  const ran = await herobus(node.home, ['--server', server, '--json', ...args], input);
  assert.equal(ran.code, code, `${args.join(' ')}: ${ran.stdout}${ran.stderr}\n${node.log}`);
  return JSON.parse(ran.stdout.trimEnd().split('\n').at(-1) ?? '') as T;
}

const states = ({ jobs }: FlowObject) => jobs.map(({ status, attempt }) => `${status} ${attempt}`);
const lines = (file: string): number => readFileSync(file, 'utf8').trimEnd().split('\n').length;

test('a flow that failed is retried: what completed is kept, what failed has another attempt', async (t) => {
  const node = await startNode(t, RUNNERS);
  const dir = temporaryFolder(t);
  const failed = await ask<FlowObject>(node, ['deploy', '-', '--arg', `dir=${dir}`], 1, GATED);
  assert.deepEqual(states(failed), ['completed 1', 'failed 1', 'cancelled 1']);
  const { flow } = failed;

  const why = await ask<Why>(node, ['why', flow]);
  assert.equal(why.state, 'failed');
  const told = JSON.stringify(why.because);
  assert.match(told, /job 1 \(gate\): failed on first in attempt 1: [^"]*7/);
  assert.ok(why.because.every(({ source }) => source !== ''));
  assert.match(JSON.stringify(await ask<Why>(node, ['why', `${flow}.2`])), /its flow ended failed/);

  const again = await ask<FlowObject>(node, ['retry', flow, '--reason', 'still shut'], 1);
  assert.deepEqual(states(again), ['completed 1', 'failed 2', 'cancelled 2']);

  await ask(node, ['retry', `${flow}.0`], 2);
  writeFileSync(join(dir, 'gate'), '');
  await retryTwiceWithTheSameBytes(node, flow);
  const done = await until(
    'the end of the retried flow',
    async () => {
      const seen = await flowOf(node.home, node.ready?.server ?? '', flow);
      return seen.status === 'completed' ? seen : undefined;
    },
    60_000,
  );
  assert.equal(done.value, 'through');
  assert.deepEqual(states(done), ['completed 1', 'completed 3', 'completed 3']);
  assert.equal(lines(join(dir, 'first')), 1, 'what had completed did not run again');
  assert.equal(lines(join(dir, 'slow')), 1);
  const refused = await ask<{ error: { message: string } }>(node, ['retry', flow], 2);
  assert.match(refused.error.message, /ended completed: only a flow that ended failed/);
  const story = await ask<Why>(node, ['why', `${flow}.1`]);
  assert.match(
    JSON.stringify(story),
    /was given attempt 3 by the retry of its flow.*log #\d+ retry/,
  );
});

/** The message may come twice: the second time it does nothing, whatever the flow came to meanwhile. */
async function retryTwiceWithTheSameBytes(node: Node, flow: string): Promise<void> {
  const server = node.ready?.server ?? '';
  const key = await readKey(node.home);
  assert.ok(key);
  const nats = await connectAs(node.home, node.data, server);
  const ref = { context: 'default', flow };
  const bytes = sealCommand(ref, { job: null, verb: 'retry', reason: null }, key, Date.now());
  for (let i = 0; i < 2; i++) await nats.request(subjects.deploy('default'), bytes);
  await nats.close();
}

test('a retried flow is found again by a control plane that was killed', async (t) => {
  const node = await startNode(t, RUNNERS);
  const dir = temporaryFolder(t);
  const script = `
let dir = arg("dir");
let job = process(#{ cmd: "sh", args: ["-c", \`test -e \${dir}/gate || exit 7; while [ ! -e \${dir}/open ]; do sleep 0.1; done\`], idempotent: true });
join(job);
"through"`;
  const { flow } = await ask<FlowObject>(node, ['deploy', '-', '--arg', `dir=${dir}`], 1, script);
  writeFileSync(join(dir, 'gate'), '');
  await ask(node, ['retry', flow, '--detach']);
  const server = node.ready?.server ?? '';
  const running = async (): Promise<true | undefined> =>
    (await flowOf(node.home, server, flow)).jobs[0]?.status === 'running' ? true : undefined;
  await until('the second attempt', running, 30_000);
  await node.kill('SIGKILL');
  await node.start();
  writeFileSync(join(dir, 'open'), '');
  const ended = await ask<FlowObject>(node, ['watch', flow]);
  assert.equal(ended.value, 'through');
  assert.equal((await ask<FlowObject[]>(node, ['flows', '--status', 'completed']))[0]?.flow, flow);
});

test('a script that went another way after the failure cannot be retried, and says so', async (t) => {
  const node = await startNode(t, RUNNERS);
  const dir = temporaryFolder(t);
  const script = `
let dir = arg("dir");
let one = process(#{ cmd: "sh", args: ["-c", \`test -e \${dir}/gate || exit 7\`], name: "one" });
let ok = try_join(one).ok;
if !ok { process("true").value; throw "it did not work" }
process("echo", ["well"]).value.stdout`;
  const { flow } = await ask<FlowObject>(node, ['deploy', '-', '--arg', `dir=${dir}`], 1, script);
  writeFileSync(join(dir, 'gate'), '');
  const again = await ask<FlowObject>(node, ['retry', flow], 1);
  assert.equal(again.error?.code, 'replay_mismatch');
  assert.match(again.error?.message ?? '', /after the retry .*took another way/);
});

test('a paused flow begins nothing more until it is resumed', async (t) => {
  const node = await startNode(t, RUNNERS);
  const dir = temporaryFolder(t);
  const script = `
let dir = arg("dir");
process("sh", ["-c", \`while [ ! -e \${dir}/open ]; do sleep 0.1; done\`]).value;
process("true").value;
"through"`;
  const args = ['deploy', '-', '--arg', `dir=${dir}`, '--detach'];
  const { flow } = await ask<FlowObject>(node, args, 0, script);
  const look = (): Promise<FlowObject> => flowOf(node.home, node.ready?.server ?? '', flow);
  const first = async (status: string): Promise<true | undefined> =>
    (await look()).jobs[0]?.status === status ? true : undefined;
  await until('the first job', () => first('running'), 30_000);
  await ask(node, ['pause', flow, '--reason', 'lunch']);
  writeFileSync(join(dir, 'open'), '');
  await until('the end of the first job', () => first('completed'), 30_000);
  const paused = await look();
  assert.deepEqual([paused.status, paused.jobs.length], ['paused', 1]);
  assert.equal((await ask<FlowObject[]>(node, ['flows', '--status', 'paused']))[0]?.flow, flow);
  assert.match(JSON.stringify(await ask<Why>(node, ['why', flow])), /pause was asked by U.*lunch/);
  await ask(node, ['resume', flow]);
  const ended = await ask<FlowObject>(node, ['watch', flow]);
  assert.deepEqual([ended.status, ended.value], ['completed', 'through']);
  await ask(node, ['pause', flow], 2);
});
