/** No flow waits for a wake that was told to nobody: after restarts, deaths and cancels in the wrong moment. */
import assert from 'node:assert/strict';
import { join } from 'node:path';
import { test } from 'node:test';
import { connectAs } from './evidence.ts';
import { DEPLOY, deployment, flowId, makeKey, publish, seal, seedOf } from './foreign-client.ts';
import { readFileSync } from 'node:fs';
import { flowOf, herobus, Node, temporaryFolder, until } from './nodes.ts';

const FLOWS = 60;

test(`control plane and supervisor killed together: each of ${FLOWS} waiting flows is woken again`, async (t) => {
  const folder = temporaryFolder(t);
  const control = new Node(t, join(folder, 'control'), join(folder, 'bus'), [
    '--roles',
    'ledger,roster,coord',
  ]);
  const { server } = await control.start();
  const worker = new Node(t, join(folder, 'worker'), join(folder, 'node'), [
    '--join',
    server,
    '--roles',
    'supervisor',
    '--name',
    'worker',
  ]);
  await worker.start();
  const key = makeKey(seedOf(readFileSync(join(control.home, 'key.nk'), 'utf8')));
  const nats = await connectAs(control.home, control.data, server);
  t.after(() => nats.close());
  const flows = await Promise.all(
    Array.from({ length: FLOWS }, async (_, i) => {
      const payload = Buffer.from(JSON.stringify(deployment(`sleep("6s"); ${i}`)));
      await publish(nats, 'default', seal(payload, DEPLOY, key));
      return flowId(payload);
    }),
  );
  const listed = async (): Promise<{ flow: string; status: string }[]> => {
    const { stdout } = await herobus(control.home, ['--server', server, '--json', 'flows']);
    return JSON.parse(stdout) as { flow: string; status: string }[];
  };
  const running = async () => {
    const list = await listed();
    return flows.every((flow) =>
      list.some((each) => each.flow === flow && each.status === 'running'),
    )
      ? true
      : undefined;
  };
  await until('all flows to run', running, 20_000);
  await Promise.all([control.kill('SIGKILL'), worker.kill('SIGKILL')]);
  await Promise.all([control.start(), worker.start()]);
  await until(
    'the end of all flows',
    async () => {
      const list = await listed();
      return flows.every((flow) =>
        list.some((each) => each.flow === flow && each.status === 'completed'),
      )
        ? true
        : undefined;
    },
    60_000,
  );
});

test('a flow that is cancelled while its node is dead ends on another, wherever it wanted to be', async (t) => {
  const folder = temporaryFolder(t);
  const first = new Node(t, join(folder, 'first'), join(folder, 'bus'), ['--name', 'first']);
  const { server } = await first.start();
  const second = new Node(t, join(folder, 'second'), join(folder, 'node'), [
    '--join',
    server,
    '--name',
    'second',
    '--groups',
    'later',
  ]);
  const { address } = await second.start();
  const args = ['--server', server, '--json', 'deploy', '-', '--detach', '--on', 'group=later'];
  const { flow } = JSON.parse((await herobus(first.home, args, 'sleep("10m")')).stdout) as {
    flow: string;
  };
  await until(
    'the flow on the second node',
    async () => {
      const seen = (await flowOf(first.home, server, flow)) as unknown as {
        supervisor: string | null;
        status: string;
      };
      return seen.supervisor === address ? true : undefined;
    },
    20_000,
  );
  await second.kill('SIGKILL');
  await until(
    'the death of the node',
    async () => {
      const { stdout } = await herobus(first.home, ['--server', server, '--json', 'nodes']);
      return /"liveness":"dead"/.test(stdout) ? true : undefined;
    },
    30_000,
  );
  const cancelled = await herobus(first.home, ['--server', server, '--json', 'cancel', flow]);
  assert.equal(
    (JSON.parse(cancelled.stdout.trim().split('\n').at(-1) ?? '{}') as { status: string }).status,
    'cancelled',
    cancelled.stderr,
  );
});

test('a cancel of a job that does not exist is refused, with how many there are', async (t) => {
  const folder = temporaryFolder(t);
  const node = new Node(t, join(folder, 'home'), join(folder, 'data'));
  const { server } = await node.start();
  const args = ['--server', server, '--json', 'deploy', '-', '--detach'];
  const script = 'let h = process("sleep", ["20"]); join(h)';
  const { flow } = JSON.parse((await herobus(node.home, args, script)).stdout) as { flow: string };
  await until(
    'the job',
    async () => ((await flowOf(node.home, server, flow)).jobs.length === 1 ? true : undefined),
    20_000,
  );
  const refused = await herobus(node.home, ['--server', server, 'cancel', `${flow}.7`]);
  assert.equal(refused.code, 1, refused.stderr);
  assert.match(refused.stderr, /has 1 jobs so far, none of them is 7/);
  assert.equal((await herobus(node.home, ['--server', server, 'cancel', flow])).code, 0);
});
