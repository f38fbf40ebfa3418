/** `plan` and `deploy --dry-run`: what would be created and refused, and that nothing is changed by asking. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { herobus, startNode, until } from './nodes.ts';

type Planned = {
  creates: { job: number; kind: string; name: string; node: string | null; after: number[] }[];
  refusals: { job: number | null; code: string; message: string }[];
  hash: string;
  until: string;
};

const SCRIPT = `
let a = process("echo", [arg("word")]);
let b = process(#{ cmd: "true", name: "later", after: [a] });
let c = container(#{ image: "debian" });
join_all([a, b, c]);
process("never", ["planned"])`;

test('a plan tells jobs, nodes and refusals, and changes nothing', async (t) => {
  const node = await startNode(t, ['--runners', 'process=2']);
  const run = async (args: string[], code: number, input = SCRIPT): Promise<string> => {
    const ran = await herobus(node.home, ['--server', node.ready?.server ?? '', ...args], input);
    assert.equal(ran.code, code, `${args.join(' ')}: ${ran.stdout}${ran.stderr}`);
    return ran.stdout;
  };
  const plan = async (args: string[], code: number, input = SCRIPT): Promise<Planned> =>
    JSON.parse(await run(['--json', ...args], code, input)) as Planned;

  await until(
    'the runner',
    async () => ((await run(['--json', 'nodes'], 0)).includes('"class"') ? true : undefined),
    30_000,
  );
  const seen = await plan(['plan', '-', '--arg', 'word=hello'], 2);
  const address = node.ready?.address ?? '';
  assert.deepEqual(
    seen.creates.map(({ job, kind, name, node: on, after }) => [job, kind, name, on, after]),
    [
      [0, 'process', 'echo', address, []],
      [1, 'process', 'later', address, [0]],
      [2, 'container', 'debian', null, []],
    ],
  );
  assert.match(seen.until, /waits for jobs 0, 1, 2/);
  assert.deepEqual(
    seen.refusals.map(({ job, code }) => [job, code]),
    [[2, 'unplaced']],
  );
  assert.match(seen.refusals[0]?.message ?? '', /first: runs no container runner/);
  const again = await plan(['deploy', '-', '--dry-run', '--arg', 'word=hello'], 2);
  assert.equal(again.hash, seen.hash, 'the same plan has the same hash');
  assert.notEqual((await plan(['plan', '-', '--arg', 'word=bye'], 2)).hash, seen.hash);

  const codes = async (args: string[], input?: string): Promise<(string | null)[]> =>
    (await plan(['plan', '-', ...args], 2, input)).refusals.map(({ code }) => code);
  assert.deepEqual(await codes([], 'kv_set("k", 1)'), ['capability_not_granted']);
  assert.deepEqual(await codes([], 'let x = ;'), ['script_syntax']);
  assert.deepEqual(await codes(['-c', 'nosuch'], '1'), ['not_executor']);
  assert.deepEqual(await codes(['--on', 'name=other'], '1'), ['unplaced']);
  assert.deepEqual((await plan(['plan', '-'], 0, 'process("true").value')).refusals, []);
  assert.match(await run(['plan', '-'], 0, 'process("true").value'), /changed +nothing/);
  assert.equal(await run(['--json', 'flows'], 0), '[]\n', 'no flow came of it');
});
