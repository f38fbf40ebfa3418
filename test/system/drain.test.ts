/** A node is drained by order: its flows move, what runs finishes, nothing new comes; undrained it is back. */
import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { type FlowObject, flowOf, herobus, Node, temporaryFolder, until } from './nodes.ts';

type Shown = {
  address: string;
  name: string;
  liveness: string;
  reason: string | null;
  flows: number;
};

const SCRIPT = `
let open = arg("open");
let job = process(#{ cmd: "sh", args: ["-c", \`while [ ! -e \${open} ]; do sleep 0.1; done; echo $HEROBUS_ATTEMPT\`] });
let first = job.value.stdout;
let second = process("echo", ["well"]);
join(second);
#{ attempt: first, node: second.node }`;

test('a drained node finishes what runs and takes nothing new; its flows move', async (t) => {
  const folder = temporaryFolder(t);
  const control = new Node(t, join(folder, 'control'), join(folder, 'bus'), [
    '--roles',
    'ledger,roster,coord',
  ]);
  const { server } = await control.start();
  const ask = async <T>(args: string[], code = 0, input?: string): Promise<T> => {
    const ran = await herobus(control.home, ['--server', server, '--json', ...args], input);
    assert.equal(ran.code, code, `${args.join(' ')}: ${ran.stdout}${ran.stderr}`);
    return JSON.parse(ran.stdout.trimEnd().split('\n').at(-1) ?? '') as T;
  };
  for (const name of ['one', 'two']) {
    const worker = new Node(t, join(folder, name), join(folder, `${name}-data`), [
      '--join',
      server,
      '--name',
      name,
      '--roles',
      'supervisor,runner',
      '--runners',
      'process=2',
    ]);
    await worker.start();
  }
  const nodes = await until(
    'both nodes with their runners',
    async () => {
      const list = await ask<(Shown & { runners: object[] })[]>(['nodes']);
      const ready = list.filter(({ runners }) => runners.length > 0);
      return ready.length === 2 ? ready : undefined;
    },
    30_000,
  );
  const open = join(folder, 'open');
  const deploy = ['deploy', '-', '--arg', `open=${open}`, '--detach', '--on', 'name=one'];
  // The selector holds the flow on `one`, its jobs go anywhere: one of two flows begins one there.
  const flows: string[] = [];
  for (const on of [deploy, deploy.slice(0, -2)]) {
    flows.push((await ask<FlowObject>(on, 0, SCRIPT)).flow);
  }
  const look = (flow: string) =>
    flowOf(control.home, server, flow) as Promise<FlowObject & { supervisor: string }>;
  await until(
    'both first jobs',
    async () => {
      const seen = await Promise.all(flows.map(look));
      return seen.every(({ jobs }) => jobs[0]?.status === 'running') ? true : undefined;
    },
    30_000,
  );
  const one = nodes.find(({ name }) => name === 'one')?.address ?? '';
  const two = nodes.find(({ name }) => name === 'two')?.address ?? '';

  await ask(['node', 'drain', 'one', '--reason', 'new disks']);
  const drained = await until(
    'the roster to say so',
    async () => {
      const seen = await ask<Shown>(['node', 'one']);
      return seen.liveness === 'drained' ? seen : undefined;
    },
    20_000,
  );
  assert.match(drained.reason ?? '', /^new disks, by order of U\w+$/);
  const nowhere = await ask<FlowObject & { unplaced: string }>(
    ['deploy', '-', '--on', 'name=one', '--place-within', '8s'],
    2,
    'process("true").value',
  );
  assert.match(nowhere.unplaced, /one: is drained \(new disks, by order of U\w+\)/);
  const moved = flows[1] ?? '';
  await until(
    'the flow that may be anywhere on two',
    async () => ((await look(moved)).supervisor === two ? true : undefined),
    20_000,
  );
  writeFileSync(open, '');
  const ended = await ask<FlowObject>(['watch', moved]);
  assert.deepEqual(ended.value, { attempt: '1\n', node: two });

  await ask(['node', 'undrain', one]);
  const back = await ask<FlowObject>(['watch', nowhere.flow]);
  assert.equal(back.status, 'completed', 'what waited for the node runs there now');
  assert.equal((await ask<FlowObject>(['watch', flows[0] ?? ''])).status, 'completed');
  await ask(['node', 'drain', 'three'], 1);
});
