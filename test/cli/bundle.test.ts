/** What `script check` and `deploy` make of a script with its files, without a bus. */
import assert from 'node:assert/strict';
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { test } from 'node:test';
import { runCli, runMany, temporaryFolder } from './cli.ts';

function write(folder: string, files: Record<string, string>): void {
  for (const [path, text] of Object.entries(files)) {
    mkdirSync(dirname(join(folder, path)), { recursive: true });
    writeFileSync(join(folder, path), text);
  }
}

test('cli bundle - what a script imports is signed with it, and can be run without a bus', async (t) => {
  const home = temporaryFolder(t);
  write(home, {
    'web/main.rhai': 'import "lib/a" as a;\nimport "../shared/b.rhai" as b;\na::f(b::X)',
    'web/lib/a.rhai': 'import "c" as c;\nfn f(x) { c::g(x) }',
    'web/lib/c.rhai': 'fn g(x) { x * 2 }',
    'web/lib/unused.rhai': 'fn nobody() {}',
    'shared/b.rhai': 'export const X = 21;',
  });
  const main = join(home, 'web/main.rhai');
  const out = join(home, 'sealed');
  const [, checked, sealed, ran] = await runMany(home, [
    ['init'],
    ['script', 'check', main],
    ['deploy', main, '--out', out],
    ['script', 'run', main],
  ]);
  assert.equal(checked?.code, 0, checked?.stderr);
  assert.equal(sealed?.code, 0, sealed?.stderr);
  assert.equal(ran?.stdout, '42\n', ran?.stderr);
  const { payload } = JSON.parse(readFileSync(out, 'utf8')) as { payload: string };
  const { modules } = JSON.parse(Buffer.from(payload, 'base64').toString()) as { modules: object };
  assert.deepEqual(Object.keys(modules).toSorted(), ['../shared/b', 'lib/a', 'lib/c']);
});

test('cli bundle - what cannot be followed is named with the line that asks for it', async (t) => {
  const home = temporaryFolder(t);
  write(home, {
    'missing.rhai': 'let a = 1;\nimport "lib/a" as a;',
    'lib/a.rhai': '\n  import "nosuch" as n;',
    'round.rhai': 'import "x" as x;',
    'x.rhai': 'import "y" as y;',
    'y.rhai': 'import "x" as x;',
    'broken.rhai': 'import "lib/b" as b;',
    'lib/b.rhai': 'fn f() {\n  let = 1;\n}',
    'absolute.rhai': 'import "/etc/x" as x;',
    'good.rhai': '1',
  });
  const cases: [args: string[], code: number, says: RegExp][] = [
    [
      ['missing.rhai'],
      2,
      /lib\/a:2: {3}import "nosuch" as n;\n +\^ .*lib\/nosuch\.rhai cannot be read: no such file/,
    ],
    [['round.rhai'], 2, /y:1: import "x" as x;\n +\^ .*imports go round: x -> y -> x/],
    [['broken.rhai'], 2, /lib\/b:2: {3}let = 1;\n +\^ Syntax error/],
    [['absolute.rhai'], 2, /1: import "\/etc\/x" as x;\n +\^ .*"\/etc\/x" is absolute/],
    [['good.rhai', '--file', '../a=good.rhai'], 64, /"\.\.\/a" is no name: it has a part `\.\.`/],
    [['good.rhai', '--file', 'a=good.rhai', '--file', 'a=x.rhai'], 64, /the name "a" stands twice/],
    [['good.rhai', '--file', 'a=nosuch'], 64, /the file .*nosuch cannot be read: no such file/],
    [['good.rhai', '--file', 'a='], 64, /no path is named/],
  ];
  const full = (arg: string): string =>
    arg.replace(
      /^(\w+=)?(\w+(\.rhai)?)$/,
      (_, name = '', path) => `${name}${join(home, String(path))}`,
    );
  const ran = await runMany(home, [
    ['init'],
    ...cases.map(([args]) => [
      'deploy',
      ...args.map((arg) =>
        arg.startsWith('-') || arg === 'a=' || arg.startsWith('../') ? arg : full(arg),
      ),
    ]),
  ]);
  for (const [i, [args, code, says]] of cases.entries()) {
    const { code: ended, stderr = '' } = ran[i + 1] ?? {};
    assert.equal(ended, code, `${args.join(' ')}: ${stderr}`);
    assert.match(stderr, says);
  }
  const checked = await runCli(home, ['--json', 'script', 'check', join(home, 'broken.rhai')]);
  assert.equal(checked.code, 1);
  const answer = JSON.parse(checked.stdout) as { module: string; error: string; pos: number[] };
  assert.deepEqual([answer.module, answer.error, answer.pos[0]], ['lib/b', 'ErrorParsing', 2]);
});
