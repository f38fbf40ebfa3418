/** Quotas of a context through the CLI: set by an admin of the ledger, kept by coord and supervisor. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { flowOf, herobus, startNode, until } from './nodes.ts';

test('quota - refused or failed with the figure, paced where it can wait; shown, signed, raised', async (t) => {
  const node = await startNode(t);
  const server = node.ready?.server ?? '';
  const run = (...args: string[]) => herobus(node.home, ['--server', server, '--json', ...args]);
  const deploy = async (script: string, ...args: string[]) => {
    const sent = ['--server', server, '--json', 'deploy', '-', ...args];
    return herobus(node.home, sent, script);
  };
  const shown = await run('context', 'quota', 'default', '--open-flows', '1', '--jobs-per-flow=3');
  assert.equal(shown.code, 0, shown.stderr);
  assert.deepEqual(JSON.parse(shown.stdout).quotas, {
    open_flows: 1,
    deploys_per_minute: null,
    jobs_per_flow: 3,
    open_jobs: null,
  });
  const sleeping = await deploy('sleep("1h")', '--detach');
  const { flow } = JSON.parse(sleeping.stdout.trim().split('\n').at(-1) ?? '') as { flow: string };
  await until(
    'the quota refuses',
    async () => {
      const second = await deploy(`1 // ${Math.random()}`);
      return second.code === 2 && /quota open_flows is 1/.test(second.stderr + second.stdout)
        ? true
        : undefined;
    },
    30_000,
  );
  assert.equal((await run('cancel', flow)).code, 0);
  await until(
    'the end of the cancelled flow',
    async () => ((await flowOf(node.home, server, flow)).ended_at === null ? undefined : true),
    30_000,
  );
  const many = 'let all = []; for i in 0..9 { all.push(process("true")); } join_all(all).len()';
  const failed = await deploy(many);
  assert.equal(failed.code, 1, failed.stderr);
  assert.match(failed.stdout, /"code":"quota".*the 3 that default allows a flow/);
  await run('context', 'quota', 'default', '--jobs-per-flow', 'none', '--open-jobs', '2');
  await until(
    'a flow whose spawns are paced',
    async () => {
      const paced = await deploy(many);
      const { status, value } = JSON.parse(paced.stdout.trim().split('\n').at(-1) ?? '') as {
        status: string;
        value: unknown;
      };
      return status === 'completed' && value === 9 ? true : undefined;
    },
    60_000,
  );
});
