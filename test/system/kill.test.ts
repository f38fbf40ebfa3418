/**
 * Whatever is killed at whatever moment: the deployment ends as if nothing had happened.
 *
 * `HEROBUS_KILLS` and `HEROBUS_SEED` make it longer or repeat a failing run (`npm run test:soak -- kill`).
 */
import assert from 'node:assert/strict';
import { join, resolve } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { test, type TestContext } from 'node:test';
import { assertOnce, connectAs, storyOf, traceLines } from './evidence.ts';
import { flowOf, herobus, Node, seeded, startNode, temporaryFolder, until } from './nodes.ts';

const KILLS = Number(process.env['HEROBUS_KILLS'] ?? 5);
const SEED = Number(process.env['HEROBUS_SEED'] ?? 7);
const FLEET = resolve(import.meta.dirname, '../../examples/fleet.rhai');
/** Few slots and enough work, so that the flow still runs at the last kill. */
const RUNNERS = 'process=2,sal=1';
const SECONDS = String(Math.max(0.5, KILLS * 0.05));
/** Apart, most of a kill leaves the work alone. */
const SECONDS_APART = String(KILLS * 0.25);
/** Between a start and the next kill: from before the first job runs until well into the work. */
const KILL_AFTER_MS = [100, 2500] as const;

async function deployFleet(
  home: string,
  server: string,
  trace: string,
  seconds: string,
): Promise<string> {
  const args = ['--server', server, '--json', 'deploy', FLEET, '--detach', '--grant', 'kv:write'];
  const ran = await herobus(home, [
    ...args,
    '--arg',
    `trace=${trace}`,
    '--arg',
    `seconds=${seconds}`,
  ]);
  assert.equal(ran.code, 0, ran.stderr);
  return (JSON.parse(ran.stdout) as { flow: string }).flow;
}

const moment = (chance: () => number): number =>
  KILL_AFTER_MS[0] + chance() * (KILL_AFTER_MS[1] - KILL_AFTER_MS[0]);

async function ended(home: string, server: string, flow: string, withinMs: number) {
  return until(
    `the end of flow ${flow}`,
    async () => {
      const seen = await flowOf(home, server, flow);
      return ['completed', 'failed', 'cancelled', 'refused'].includes(seen.status)
        ? seen
        : undefined;
    },
    withinMs,
  );
}

async function assertCompleted(
  t: TestContext,
  node: Node,
  server: string,
  flow: string,
  trace: string,
  lastKill = '',
): Promise<void> {
  const shown = await ended(node.home, server, flow, 120_000);
  assert.equal(shown.status, 'completed', JSON.stringify(shown.error));
  const { ended_at: endedAt } = shown as unknown as { ended_at: string };
  assert.ok(endedAt > lastKill, 'the flow still ran at the last kill');
  const { attempts, jobs, sum } = shown.value as { attempts: number; jobs: number; sum: number };
  assert.deepEqual([jobs, sum], [21, 2870]);
  // The stubborn job gives up in its first two attempts; a lost attempt counts as one of them.
  assert.ok(attempts >= 3, `the stubborn job needed ${attempts} attempts`);
  const nats = await connectAs(node.home, node.data, server);
  t.after(() => nats.close());
  const story = await storyOf(nats, flow);
  assertOnce(story, traceLines(trace));
  const lost = story.begun.length - story.finished.length;
  t.diagnostic(
    `${story.begun.length} attempts begun, ${story.finished.length} finished, ${lost} lost`,
  );
}

test(`up killed with its server at ${KILLS} moments (seed ${SEED}): the flow completes, nothing twice`, async (t) => {
  const chance = seeded(SEED);
  const node = await startNode(t, ['--runners', RUNNERS]);
  const server = node.ready?.server ?? '';
  const trace = join(temporaryFolder(t), 'trace');
  const flow = await deployFleet(node.home, server, trace, SECONDS);
  let lastKill = '';
  for (let kill = 0; kill < KILLS; kill++) {
    await delay(moment(chance));
    lastKill = new Date().toISOString();
    await node.kill('SIGKILL');
    const again = await node.start();
    assert.equal(again.server, server, 'the port is kept');
  }
  await assertCompleted(t, node, server, flow, trace, lastKill);
});

test(`control plane, supervisor and runner apart, one killed at a time (seed ${SEED})`, async (t) => {
  const chance = seeded(SEED + 1);
  const folder = temporaryFolder(t);
  const control = new Node(t, join(folder, 'control'), join(folder, 'bus'), [
    '--roles',
    'ledger,roster,coord',
  ]);
  const { server } = await control.start();
  const roles = (role: string): Node =>
    new Node(t, join(folder, 'worker'), join(folder, 'node'), [
      '--join',
      server,
      '--roles',
      role,
      '--runners',
      RUNNERS,
      '--name',
      'worker',
    ]);
  const supervisor = roles('supervisor');
  const runner = roles('runner');
  await supervisor.start();
  await runner.start();
  const trace = join(folder, 'trace');
  const flow = await deployFleet(control.home, server, trace, SECONDS_APART);
  let lastKill = '';
  for (let kill = 0; kill < KILLS; kill++) {
    await delay(moment(chance));
    lastKill = new Date().toISOString();
    const victim = [control, supervisor, runner][Math.floor(chance() * 3)] as Node;
    await victim.kill('SIGKILL');
    await victim.start();
  }
  await assertCompleted(t, control, server, flow, trace, lastKill);
});

test('a supervisor stopped for 15 s after its flow was moved changes nothing when it goes on', async (t) => {
  const folder = temporaryFolder(t);
  const control = new Node(t, join(folder, 'control'), join(folder, 'bus'), [
    '--roles',
    'ledger,roster,coord',
  ]);
  const { server } = await control.start();
  const workers = ['one', 'two'].map(
    (name) =>
      new Node(t, join(folder, name), join(folder, `${name}-data`), [
        '--join',
        server,
        '--name',
        name,
        '--roles',
        'supervisor,runner',
      ]),
  );
  for (const worker of workers) await worker.start();
  const trace = join(folder, 'trace');
  const flow = await deployFleet(control.home, server, trace, '2');
  const first = await until(
    'a supervisor for the flow',
    async () => {
      const { supervisor, jobs } = (await flowOf(control.home, server, flow)) as unknown as {
        supervisor: string | null;
        jobs: { status: string }[];
      };
      return jobs.some((job) => job.status === 'running') ? (supervisor ?? undefined) : undefined;
    },
    20_000,
  );
  const stopped = workers.find((worker) => worker.ready?.address === first) as Node;
  assert.ok(stopped, `the assignee ${first} is one of the workers`);
  stopped.signal('SIGSTOP');
  await delay(15_000);
  const moved = await flowOf(control.home, server, flow);
  assert.notEqual(
    (moved as unknown as { supervisor: string }).supervisor,
    first,
    'the flow was moved',
  );
  stopped.signal('SIGCONT');
  await assertCompleted(t, control, server, flow, trace);
  const before = JSON.stringify(await flowOf(control.home, server, flow));
  await until(
    'the stopped node is live again',
    async () => {
      const { stdout } = await herobus(control.home, ['--server', server, '--json', 'nodes']);
      return stdout.includes(first) && /"liveness":"live"/.test(stdout) ? true : undefined;
    },
    20_000,
  );
  assert.equal(
    JSON.stringify(await flowOf(control.home, server, flow)),
    before,
    'it changed nothing',
  );
});
