/**
 * Depth: of source it is limited, of values it is not, and neither depends on the stack of the host. The
 * whole file runs twice, the second time in a process with a fifth of the usual stack.
 */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { test } from 'node:test';
import { Engine, RhaiError, type Settings } from '../../rhai/engine.ts';
import { debugText } from '../../rhai/text.ts';

const SMALL_STACK = 'RHAI_DEPTH_SMALL_STACK';

function run(script: string, settings: Partial<Settings> = {}): string {
  try {
    const engine = new Engine(settings);
    const outcome = engine.start(engine.compile(script)).run();
    if (outcome.state === 'done') return debugText(outcome.value);
    if (outcome.state !== 'failed') return outcome.state;
    let { error } = outcome;
    assert.ok(error.message.length > 0);
    while (error.inner) error = error.inner;
    return error.kind;
  } catch (error) {
    if (error instanceof RhaiError) return `${error.kind} ${error.parse ?? ''}`.trim();
    throw error;
  }
}

const UNLIMITED = { maxExprDepth: 0, maxFunctionExprDepth: 0 };

const NESTINGS = [
  ['(', ')'],
  ['[', ']'],
  ['#{a:', '}'],
  ['{', '}'],
  ['if true {', '}'],
  ['if a {} else {', '}'],
  ['!', ''],
  ['- ', ''],
  ['|| ', ''],
  ['f(', ')'],
  ['x.f(', ')'],
  ['f.call(|| ', ')'],
  ['`${', '}`'],
  ['"" + `${', '}`'],
  ['switch 1 { 1 => ', '}'],
  ['switch x { 1 if ', '=> 1}'],
  ['1 + (', ')'],
  ['1 + 1 * (', ')'],
  ['a + b * c ** d.e(', ')'],
  ['a == -(', ')'],
  ['loop { break ', '}'],
  ['while x {', '}'],
  ['try {', '} catch {}'],
  ['let x = |a| {', '}'],
  ['a ?? ', ''],
  ['a[', ']'],
] as const;

test('depth - nesting of source is refused, whatever the stack of the host', () => {
  for (const depths of [{}, UNLIMITED]) {
    for (const [open, close] of NESTINGS) {
      for (const n of [300, 1000, 10_000]) {
        const body = `${open.repeat(n)}1${close.repeat(n)}`;
        // After `break` an expression that cannot be read counts as none.
        const expected = open.includes('break') ? 'MissingToken' : 'ExprTooDeep';
        assert.equal(run(body, depths), `ErrorParsing ${expected}`, `${open} ${n}`);
        assert.equal(run(`fn f() { ${body} }`, depths), `ErrorParsing ${expected}`, open);
      }
    }
    for (const link of ['1+', 'a ?? ', 'a && ', '2 ** ', '"a" + ', '1 == ']) {
      const result = run(`${link.repeat(10_000)}1`, depths);
      assert.equal(result, 'ErrorParsing ExprTooDeep', link);
    }
    assert.equal(run(`a${'.b'.repeat(10_000)}`, depths), 'ErrorParsing ExprTooDeep');
    assert.equal(run(`a${'[0]'.repeat(10_000)}`, depths), 'ErrorParsing ExprTooDeep');
  }
  assert.equal(run(`${'if true {} else '.repeat(10_000)}{}`), 'ErrorParsing ExprTooDeep');
});

test('depth - what is just below the ceiling of nesting runs', () => {
  assert.equal(run(`${'('.repeat(120)}1${')'.repeat(120)}`, UNLIMITED), '1');
  assert.equal(run(`${'['.repeat(80)}${']'.repeat(80)}.len()`, UNLIMITED), '1');
  assert.equal(run(`fn f() { ${'{'.repeat(80)}1${'}'.repeat(80)} } f()`, UNLIMITED), '1');
});

test('depth - values nested a hundred thousand deep are compared, printed and measured', () => {
  const array =
    'let a = []; for i in 0..100000 { a = [a]; } let b = []; for i in 0..100000 { b = [b]; }';
  const map = 'let a = #{}; for i in 0..100000 { a = #{x: a}; } let b = a; b.y = 1;';
  const cases: readonly (readonly [nest: string, use: string, expected: string])[] = [
    [array, 'a == b', 'true'],
    [array, 'a != b', 'false'],
    [array, '[1, a] == [2, b]', 'false'],
    [array, '[a].contains(b)', 'true'],
    [array, '[a].index_of(b)', '0'],
    [array, 'b in [a]', 'true'],
    [array, 'let c = [a, b]; c.dedup(); c.len()', '1'],
    [array, 'a.to_string().len()', '200002'],
    [array, 'print(a); debug(a); `${a}`.len()', '200002'],
    [array, '#{x: a}.to_json().len()', '200008'],
    [array, 'let c = a; c.push(1); c == a', 'false'],
    [array, 'let f = || a; f.call() == b', 'true'],
    [array, 'switch a { 1 => 2, _ => 3 }', '3'],
    [array, 'throw a', 'ErrorRuntime'],
    [array, 'a = (); b = (); 1', '1'],
    [map, 'a == b', 'false'],
    [map, '#{y: a} == #{y: a}', 'true'],
    [map, 'a.to_string().len()', '800003'],
    [map, 'a.to_json().len()', '600002'],
    [map, 'throw a', 'ErrorRuntime'],
  ];
  for (const [nest, use, expected] of cases) assert.equal(run(`${nest} ${use}`), expected, use);
  const limits = { maxArraySize: 1_000_000, maxMapSize: 1_000_000, maxStringSize: 1_000_000 };
  for (const settings of [limits, { maxTotalSize: 100_000_000 }]) {
    assert.equal(run(`${array} a == b`, settings), 'true');
    assert.equal(run(`${map} a.to_string().len()`, settings), '800003');
  }
});

test('depth - values that share their parts without end, or go round, end by a limit', () => {
  const shared = 'let a = [1]; let b = [1]; for i in 0..60 { a = [a, a]; b = [b, b]; }';
  assert.equal(run(`${shared} a == b`), 'ErrorDataTooLarge');
  assert.equal(run(`${shared} a.to_string()`), 'ErrorDataTooLarge');
  assert.equal(run(`${shared} throw a`), 'ErrorRuntime');
  assert.equal(run('let x = #{}; x.a = || x; x.to_json()'), 'ErrorDataTooLarge');
});

test('depth - an error below many thousand calls has a message', () => {
  const script = 'fn r(n) { if n == 0 { throw 1 } r(n - 1) } r(20000)';
  assert.equal(run(script, { maxCallLevels: 100_000 }), 'ErrorRuntime');
});

test('depth - all of this with a small stack', { skip: process.env[SMALL_STACK] === '1' }, () => {
  const { NODE_TEST_CONTEXT: _, ...env } = process.env;
  const args = ['--stack-size=200', import.meta.filename];
  const child = spawnSync(process.execPath, args, {
    env: { ...env, [SMALL_STACK]: '1' },
    encoding: 'utf8',
  });
  assert.equal(child.status, 0, child.stdout + child.stderr);
  assert.match(child.stdout, /pass 5\n/);
});
