/** Every example runs as its first lines say, on one node, and gives the value it should. */
import assert from 'node:assert/strict';
import { readdirSync, readFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { test } from 'node:test';
import { herobus, startNode } from './nodes.ts';

const EXAMPLES = resolve(import.meta.dirname, '../../examples');

/** By what is to be seen of it; the value where it is the same every time. */
const VALUES: Record<string, unknown> = {
  'hello.rhai': 'hello world\n',
  'fleet.rhai': { jobs: 21, sum: 2870, attempts: 3 },
  '01-hello.rhai': 'hello\n',
  '02-arguments.rhai': ['hello world', 'hello world'],
  '03-many.rhai': 2870,
  '04-errors.rhai': { attempts: 3, caught: 'job_failed', late: 'timeout', found: false },
  '05-after.rhai': ['3', 'apple', 'pear', 'plum'],
  '06-race.rhai': { winner: '0', states: ['cancelled', 'completed', 'cancelled'] },
  '07-time.rhai': { polls: 3, slept: true, id: 36, dice: true },
  '08-state.rhai': { runs: 1, keys: ['examples/last', 'examples/runs'], big: 9223372036854775807n },
  '09-files.rhai': {
    changed: [true, false],
    text: 'be kind\nand brief\n',
    names: ['motd'],
    gone: true,
  },
  '10-nodes.rhai': [{ said: 'hello from first', on: 'first' }],
};

/** What the example's own first lines say to grant: its first command. */
function grantsOf(name: string): string[] {
  const head = readFileSync(join(EXAMPLES, name), 'utf8').split('\n').slice(0, 8).join('\n');
  const grant = /herobus deploy examples\/\S+.*--grant (\S+)/.exec(head)?.[1];
  assert.match(head, new RegExp(`herobus deploy examples/${name}`), `${name} says how it is run`);
  return grant === undefined ? [] : ['--grant', grant];
}

/** Numbers beyond 2^53 stay exact where a test wants to see them. */
const exact = (text: string): unknown =>
  JSON.parse(text, (_, value: unknown, context?: { source?: string }) =>
    typeof value === 'number' && !Number.isSafeInteger(value) && context?.source !== undefined
      ? BigInt(context.source)
      : value,
  );

test('examples - each one runs and gives its value', async (t) => {
  const node = await startNode(t);
  const names = readdirSync(EXAMPLES).filter((name) => name.endsWith('.rhai'));
  assert.deepEqual(names.toSorted(), Object.keys(VALUES).toSorted(), 'every example has a value');
  for (const name of names) {
    await t.test(name, async () => {
      const args = ['deploy', join(EXAMPLES, name), ...grantsOf(name)];
      const { code, stdout, stderr } = await herobus(node.home, args);
      assert.equal(code, 0, stderr);
      assert.deepEqual(exact(stdout), VALUES[name]);
    });
  }
  await t.test('08-state.rhai counts its runs', async () => {
    const args = ['deploy', join(EXAMPLES, '08-state.rhai'), ...grantsOf('08-state.rhai')];
    const { stdout } = await herobus(node.home, args);
    assert.equal((exact(stdout) as { runs: number }).runs, 2);
  });
  await t.test('02-arguments.rhai takes arguments of both kinds', async () => {
    const path = join(EXAMPLES, '02-arguments.rhai');
    const args = ['--arg', 'name=; rm -rf ~', '--arg', 'times:=1'];
    const { stdout } = await herobus(node.home, ['deploy', path, ...args]);
    assert.deepEqual(exact(stdout), ['hello ; rm -rf ~']);
  });
});
