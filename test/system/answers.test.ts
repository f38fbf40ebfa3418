/**
 * What every command answers with `--json`, through the CLI on a real node: each value is one of its schema
 * (schemas/answers.ts), with no field that the schema does not list. A command, or a form of one, that has
 * no row here fails the test.
 */
import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test, type TestContext } from 'node:test';
import { ANSWERS, type AnswerName, COMMAND_ANSWERS } from '../../schemas/answers.ts';
import { acts, allCommands } from '../cli/commands.ts';
import { herobus, Node, temporaryFolder } from './nodes.ts';

const SCRIPT = `
log("begins");
let said = process("sh", ["-c", "echo out; echo err >&2"]).value;
#{ said: said.stdout, exact: 9007199254740993, float: 1.5, none: () }`;
const FAILS = `let gone = process(#{ cmd: "false", name: "gone" }); join(gone)`;
const NOWHERE = `join(process(#{ cmd: "true", node: "name=nobody" }))`;
const SLEEPS = 'sleep("10m")';
const CASES = [
  '1 + 1',
  '[(), 1.5, "x", \'c\', #{a: 1..3}, Fn("f")]',
  'throw 7',
  'let x = ;',
  'print(1)',
]
  .map((script, id) => JSON.stringify({ id, mode: 'eval', script, scope_after: true }))
  .join('\n');
const NOBODY = 'a'.repeat(26);

/** What earlier rows made, for later ones. */
type Made = {
  node: Node;
  /** Another user: home, key file, principal. */
  other: { home: string; key: string; principal: string };
  dir: string;
  [flow: `flow ${string}`]: string;
};

type Row = {
  /** The command, with what the form of it is called in COMMAND_ANSWERS. */
  form: string;
  args: (made: Made) => string[];
  input?: string;
  /** 0 unless said; null: either of 0 and 1, by what this machine has. */
  code?: number | null;
  /** Keep the flow's id under this name. */
  as?: string;
  home?: (made: Made) => string;
};

const flow = (name: string) => (made: Made) => made[`flow ${name}`] ?? '';
const on =
  (command: string, name: string, ...more: string[]) =>
  (made: Made) => [...command.split(' '), flow(name)(made), ...more];
const just =
  (...args: string[]) =>
  () =>
    args;
const sealed = (made: Made) => join(made.dir, 'sealed');
const file = (made: Made, name: string, text: string): string => {
  writeFileSync(join(made.dir, name), text);
  return join(made.dir, name);
};
const other = ({ other: { principal } }: Made) => principal;

const ROWS: Row[] = [
  { form: 'init', args: just('init') },
  { form: 'deploy', args: just('deploy', '-'), input: SCRIPT, as: 'done' },
  { form: 'deploy', args: just('deploy', '-'), input: FAILS, code: 1, as: 'failed' },
  {
    form: 'deploy',
    args: just('deploy', '-', '--place-within', '1s'),
    input: NOWHERE,
    code: 2,
    as: 'unplaced job',
  },
  {
    form: 'deploy',
    args: just('deploy', '-', '--place-within', '1s', '--on', 'name=nobody'),
    input: SLEEPS,
    code: 2,
    as: 'unplaced',
  },
  { form: 'deploy', args: just('deploy', '-', '--detach'), input: SLEEPS, as: 'open' },
  { form: 'deploy --dry-run', args: just('deploy', '-', '--dry-run'), input: SCRIPT },
  {
    form: 'deploy --out FILE',
    args: (made) => ['deploy', '-', '--out', sealed(made)],
    input: SCRIPT,
  },
  { form: 'plan', args: just('plan', '-'), input: NOWHERE, code: 2 },
  { form: 'plan', args: just('plan', '-'), input: 'let x = ;', code: 2 },
  { form: 'sign', args: (made) => ['sign', sealed(made), '--key', made.other.key] },
  { form: 'verify', args: (made) => ['verify', sealed(made)] },
  { form: 'publish', args: (made) => ['publish', sealed(made)], as: 'sealed' },
  { form: 'publish', args: (made) => ['publish', file(made, 'junk', '{}')], code: 2 },
  { form: 'watch', args: on('watch', 'done') },
  { form: 'flow', args: on('flow', 'done') },
  { form: 'flow', args: on('flow', 'failed') },
  { form: 'flow', args: on('flow', 'unplaced') },
  { form: 'flow ID.N', args: (made) => ['flow', `${flow('done')(made)}.0`] },
  { form: 'flow ID.N', args: (made) => ['flow', `${flow('unplaced job')(made)}.0`] },
  { form: 'why', args: on('why', 'failed') },
  { form: 'why', args: on('why', 'unplaced') },
  { form: 'why', args: (made) => ['why', `${flow('done')(made)}.0`] },
  { form: 'logs', args: on('logs', 'done', '-f') },
  { form: 'retry', args: on('retry', 'failed'), code: 1 },
  { form: 'pause', args: on('pause', 'open') },
  { form: 'resume', args: on('resume', 'open', '--reason', 'again') },
  { form: 'cancel', args: on('cancel', 'open', '--reason', 'enough') },
  { form: 'flows', args: just('flows') },
  { form: 'flows', args: just('flows', '--status', 'paused') },
  { form: 'nodes', args: just('nodes') },
  { form: 'node', args: just('node', 'first') },
  // Another user comes in by the first command that needs the bus.
  { form: 'context show', args: just('context', 'show'), home: ({ other: { home } }) => home },
  { form: 'context create', args: just('context', 'create', 'acme') },
  { form: 'context grant', args: (made) => ['context', 'grant', 'acme', other(made), 'executor'] },
  { form: 'context quota', args: just('context', 'quota', 'acme', '--open-flows', '5') },
  { form: 'context policy', args: just('context', 'policy', 'acme', '--m', '1') },
  {
    form: 'context revoke',
    args: (made) => ['context', 'revoke', 'acme', other(made), 'executor'],
  },
  { form: 'context show NAME', args: just('context', 'show', 'acme') },
  { form: 'context show', args: just('context', 'show') },
  { form: 'principal list', args: just('principal', 'list') },
  { form: 'principal revoke', args: (made) => ['principal', 'revoke', other(made)] },
  { form: 'principal approve', args: (made) => ['principal', 'approve', other(made)] },
  { form: 'token create', args: just('token', 'create', '--uses', '2') },
  { form: 'kv set', args: just('kv', 'set', 'k', '{"a":[1,2.5,null]}', '--typed') },
  { form: 'kv get', args: just('kv', 'get', 'k') },
  { form: 'kv list', args: just('kv', 'list') },
  { form: 'kv del', args: just('kv', 'del', 'k') },
  { form: 'script check', args: just('script', 'check', '-'), input: SCRIPT },
  { form: 'script check', args: just('script', 'check', '-'), input: 'let x = ;', code: 1 },
  { form: 'script run', args: just('script', 'run', '-'), input: '#{ a: [1, ()] }' },
  { form: 'script run --json-lines', args: just('script', 'run', '--json-lines'), input: CASES },
  { form: 'doctor', args: just('doctor'), code: null },
  { form: 'node drain', args: just('node', 'drain', 'first', '--reason', 'new disks') },
  { form: 'node', args: just('node', 'first') },
  { form: 'node undrain', args: just('node', 'undrain', 'first') },
  { form: 'node revoke', args: just('node', 'revoke', 'first') },
  { form: 'node approve', args: just('node', 'approve', 'first') },
];

/** Form -> the schema of what it answers. */
const FORMS = new Map<string, AnswerName>(
  Object.entries(COMMAND_ANSWERS).flatMap(([command, forms]) =>
    forms.map(({ when, answer }) => [when === undefined ? command : `${command} ${when}`, answer]),
  ),
);

function assertAnswer(name: AnswerName, line: string): unknown {
  const value: unknown = JSON.parse(line);
  const parsed = ANSWERS[name].safeParse(value);
  assert.ok(parsed.success, `${parsed.error?.message}\n${line}`);
  // What a schema does not list it leaves out.
  assert.deepEqual(value, parsed.data, 'a field that the schema does not list');
  return value;
}

async function started(t: TestContext): Promise<Made> {
  const dir = temporaryFolder(t);
  const node = new Node(t, join(dir, 'home'), join(dir, 'data'), ['--name', 'first']);
  await node.start();
  const home = join(dir, 'other');
  const { stdout } = await herobus(home, ['--json', 'init']);
  const { principal } = JSON.parse(stdout) as { principal: string };
  // A key that the bus has not seen comes in by the join credentials.
  await herobus(home, ['--server', join(node.data, 'bus.json'), 'nodes']);
  return { node, dir, other: { home, key: join(home, 'key.nk'), principal } };
}

test('answers - every command answers with --json as its schema says', async (t) => {
  const made = await started(t);
  const { node } = made;
  const server = join(node.data, 'bus.json');
  for (const [n, { form, args, input, code = 0, as, home }] of ROWS.entries()) {
    await t.test(`${n}: ${form}`, async () => {
      const answer = FORMS.get(form);
      assert.ok(answer !== undefined, `COMMAND_ANSWERS has no ${form}`);
      const given = ['--server', server, '--json', ...args(made)];
      const ran = await herobus(home?.(made) ?? node.home, given, input);
      const what = `${ran.stdout}${ran.stderr}\n${node.log}`;
      if (code !== null) assert.equal(ran.code, code, what);
      const lines = ran.stdout.split('\n').filter((line) => line !== '');
      assert.notEqual(lines.length, 0, what);
      const values = lines.map((line) => assertAnswer(answer, line));
      if (as !== undefined) made[`flow ${as}`] = (values[0] as { flow: string }).flow;
    });
  }
  await t.test('a flow in the list is the flow itself', async () => {
    const ask = async (...args: string[]): Promise<unknown> =>
      JSON.parse((await herobus(node.home, ['--server', server, '--json', ...args])).stdout);
    const listed = (await ask('flows')) as { flow: string }[];
    for (const name of ['done', 'failed', 'unplaced', 'sealed']) {
      const id = made[`flow ${name}`] ?? '';
      const { refusals: _, ...alone } = (await ask('flow', id)) as { refusals?: unknown };
      assert.deepEqual(
        listed.find(({ flow }) => flow === id),
        alone,
        name,
      );
    }
  });
  await t.test('whatever fails', async () => {
    const { stdout } = await herobus(node.home, ['--server', server, '--json', 'flow', NOBODY]);
    assertAnswer('failure', stdout);
  });
  await t.test('up', async () => {
    await node.kill('SIGTERM');
    assert.equal(node.events.length, 2);
    for (const event of node.events) assertAnswer('up-event', JSON.stringify(event));
  });
});

test('answers - every command of the CLI has its answer and a row', async () => {
  const commands = await allCommands();
  const acting = [...commands].filter(([name, command]) => name !== '' && acts(command));
  const names = acting.map(([name]) => name);
  assert.deepEqual(names.toSorted(), Object.keys(COMMAND_ANSWERS).toSorted());
  const rows = new Set([...ROWS.map(({ form }) => form), 'up']);
  assert.deepEqual([...FORMS.keys()].toSorted(), [...rows].toSorted());
});
