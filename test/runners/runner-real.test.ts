/**
 * The runner on a real nats-server with a node's credentials, as a process of its own that can be killed.
 * The test plays the supervisor: it answers beats, publishes packs and reads the flow's log.
 */
import assert from 'node:assert/strict';
import { type ChildProcess, spawn } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import type { Entry } from '../../bus/bus.ts';
import { newIdentity } from '../../bus/identity.ts';
import type { NatsBus } from '../../bus/nats.ts';
import { subjects } from '../../bus/subjects.ts';
import { ClaimEntry, RunEntry } from '../../schemas/flow.ts';
import type { FlowRef } from '../../schemas/ids.ts';
import { LogLines, type Pack, type Result } from '../../schemas/job.ts';
import { RunnerBeat } from '../../schemas/node.ts';
import { CONTEXT, controlBus, newFlow, nodeBus, serveConsumers } from '../bus/fixtures.ts';
import { type RealBus, startRealBus } from '../bus/real-bus.ts';
import { isAlive, until, untilGone } from '../sal/waiting.ts';

let bus: RealBus;
let control: NatsBus;
let supervisor: NatsBus;
let folder: string;
let jwt: string;
const node = newIdentity();
const beats: RunnerBeat[] = [];
const logs = new Map<string, string[]>();
const children = new Set<ChildProcess>();

before(async () => {
  folder = mkdtempSync(join(tmpdir(), 'herobus-runner-'));
  bus = await startRealBus({ contexts: [CONTEXT] });
  control = await controlBus(bus);
  serveConsumers(control);
  control.subscribe(subjects.logsAll, ({ subject, data }) => {
    const { lines } = LogLines.parse(JSON.parse(Buffer.from(data).toString()));
    logs.set(subject, [...(logs.get(subject) ?? []), ...lines.map(({ line }) => line)]);
  });
  supervisor = await nodeBus(bus, node);
  jwt = await bus.issuer.node(node.principal, { contexts: [CONTEXT], classes: ['process'] });
  supervisor.subscribe(subjects.beat(node.address), ({ data, reply }) => {
    beats.push(RunnerBeat.parse(JSON.parse(Buffer.from(data).toString())));
    reply?.({ v: 1, lease_ms: 5000, drain: false, contexts: [CONTEXT] });
  });
});
after(async () => {
  for (const child of children) child.kill('SIGKILL');
  await bus.close();
  rmSync(folder, { recursive: true, force: true });
});

function startRunnerProcess(): ChildProcess {
  const child = spawn(process.execPath, [join(import.meta.dirname, 'fixtures/runner.ts')], {
    stdio: ['pipe', 'inherit', 'inherit'],
  });
  children.add(child);
  child.stdin.end(
    JSON.stringify({ server: bus.server.url, seed: node.seedText(), jwt, directory: folder }),
  );
  return child;
}

function pack({ context, flow }: FlowRef, scripts: string[], id = 'p0'): Pack {
  return {
    v: 1,
    context,
    flow,
    pack: id,
    plan: 1,
    node: node.address,
    caller: node.principal,
    jobs: scripts.map((script, n) => ({
      n,
      attempt: 1,
      spec: {
        v: 1,
        kind: 'process',
        name: `job ${n}`,
        payload: { cmd: 'sh', args: ['-c', script] },
        needs: ['process'],
        on: null,
        timeout_ms: null,
        retries: 0,
        backoff_ms: 0,
        after: [],
        idempotent: false,
      },
    })),
  };
}

const publish = (it: Pack): Promise<unknown> =>
  supervisor.queues.publish(subjects.jobs(it.context, 'process', node.address), it);

async function entries(ref: FlowRef): Promise<Entry[]> {
  const all: Entry[] = [];
  for await (const entry of supervisor.log.read(ref)) all.push(entry);
  return all;
}

async function results(ref: FlowRef): Promise<Result[]> {
  return (await entries(ref))
    .filter(({ lane }) => lane === 'run')
    .flatMap(({ body }) => RunEntry.parse(body).results);
}

const output = (ref: FlowRef, n: number): string[] => logs.get(subjects.logs(ref, n)) ?? [];

test('runner process - claims, begins, streams, reports; killed, it leaves nothing and repeats nothing', async () => {
  const ref = newFlow();
  const first = startRunnerProcess();
  await publish(pack(ref, ['echo $$; echo begun >> trace; sleep 600 & wait', 'echo quick']));
  const [quick] = await until('a result', async () => {
    const found = await results(ref);
    return found.length > 0 && found;
  });
  assert.equal(quick?.n, 1);
  const pid = Number(await until('its output', () => output(ref, 0)[0]));
  assert.ok(isAlive(pid));
  const claim = ClaimEntry.parse((await entries(ref)).find(({ lane }) => lane === 'claim')?.body);
  const beat = await until('a beat', () => beats.find(({ packs }) => packs.length > 0));
  assert.equal(claim.inc, beat.inc);
  assert.ok(claim.type === 'claim' && claim.begun.length === 2);

  first.kill('SIGKILL');
  await untilGone(pid, 2000);
  // A second delivery of the same pack to the next incarnation executes nothing.
  startRunnerProcess();
  const other = newFlow();
  await publish(pack(ref, ['echo again >> trace', 'echo again >> trace']));
  await publish(pack(other, ['echo done']));
  await until('the other flow', async () => (await results(other)).length === 1);
  assert.equal(readFileSync(join(folder, 'trace'), 'utf8'), 'begun\n');
  assert.equal((await results(ref)).length, 1);
});

test('runner process - a cancel in the log ends the job', async () => {
  const ref = newFlow();
  await control.log.decide(ref, 'deploy', { v: 1, inc: 'coord00001' }, 0);
  await publish(pack(ref, ['echo $$; sleep 600 & wait']));
  const pid = Number(await until('its output', () => output(ref, 0)[0]));
  const last = await control.log.lastDecision(ref);
  const command = {
    v: 1,
    inc: 'coord00001',
    verb: 'cancel',
    job: null,
    reason: null,
    by: [],
    envelope: '',
  };
  await control.log.decide(ref, 'cancel', command, last?.seq ?? 0);
  await untilGone(pid, 1000);
  const [result] = await until('a result', async () => {
    const found = await results(ref);
    return found.length > 0 && found;
  });
  assert.equal(result?.outcome, 'cancelled');
});
