/** What a script does to the outside: once, at once, and not again after a kill. */
import assert from 'node:assert/strict';
import { existsSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { flowOf, herobus, startNode, temporaryFolder, until } from './nodes.ts';

test('h.cancel() ends the process of its job while the flow goes on', async (t) => {
  const node = await startNode(t);
  const server = node.ready?.server ?? '';
  const ticks = join(temporaryFolder(t), 'ticks');
  const script = `
    let h = process("sh", ["-c", "while :; do echo tick >> ${ticks}; sleep 0.1; done"]);
    let other = process("sh", ["-c", "sleep 6"]);
    sleep("1s");
    h.cancel();
    join(other);
    h.status`;
  const running = herobus(node.home, ['--server', server, '--json', 'deploy', '-'], script);
  await until('the first tick', async () => (existsSync(ticks) ? true : undefined), 20_000);
  // It is gone when its file has stopped growing for a second, long before the flow ends.
  let size = 0;
  await until(
    'the end of the ticking',
    async () => {
      const before = size;
      await new Promise((resolve) => setTimeout(resolve, 900));
      size = statSync(ticks).size;
      return size === before ? true : undefined;
    },
    15_000,
  );
  const { stdout, code } = await running;
  const flow = JSON.parse(stdout.trim().split('\n').at(-1) ?? '{}') as {
    status: string;
    value: string;
    ended_at: string;
  };
  assert.equal(code, 0, stdout);
  assert.equal(flow.value, 'cancelled');
  assert.ok(
    Date.parse(flow.ended_at) > statSync(ticks).mtimeMs + 1500,
    'it ticked until its flow ended',
  );
});

test('a write to the bucket is done once, also when up is killed after it and somebody else wrote', async (t) => {
  const node = await startNode(t);
  const server = node.ready?.server ?? '';
  const cli = (...args: string[]) => herobus(node.home, ['--server', server, ...args]);
  const script =
    'kv_set("lock", 1); process(#{ cmd: "sleep", args: ["4"], idempotent: true }).value.code';
  const args = ['--server', server, '--json', 'deploy', '-', '--detach', '--grant', 'kv:write'];
  const { flow } = JSON.parse((await herobus(node.home, args, script)).stdout) as { flow: string };
  await until(
    'the running job',
    async () => {
      const seen = await flowOf(node.home, server, flow);
      return seen.jobs[0]?.status === 'running' ? true : undefined;
    },
    20_000,
  );
  assert.match((await cli('kv', 'get', 'lock')).stdout, /1/);
  assert.equal((await cli('kv', 'del', 'lock')).code, 0);
  await node.kill('SIGKILL');
  await node.start();
  const ended = await until(
    'the end',
    async () => {
      const seen = await flowOf(node.home, server, flow);
      return seen.status === 'completed' ? seen : undefined;
    },
    60_000,
  );
  assert.equal(ended.value, 0);
  const again = await cli('kv', 'get', 'lock');
  assert.notEqual(again.code, 0, `the deleted key is back: ${again.stdout}`);
});
