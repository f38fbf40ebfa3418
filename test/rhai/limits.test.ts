/** Limits: each has its own error, and none depends on the host's stack. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { runCase } from '../../rhai/conformance.ts';
import { Engine, RhaiError, type Settings } from '../../rhai/engine.ts';
import { typeName } from '../../rhai/values.ts';

const TERMINATED = { error: 'ErrorTerminated', message: '', pos: [1, 6] };

function run(script: string, settings: Partial<Settings> = {}): string {
  try {
    const engine = new Engine(settings);
    const outcome = engine.start(engine.compile(script)).run();
    if (outcome.state === 'done') return `ok ${typeName(outcome.value)}`;
    if (outcome.state !== 'failed') return outcome.state;
    let { error } = outcome;
    while (error.inner) error = error.inner;
    return error.kind;
  } catch (error) {
    if (error instanceof RhaiError) return `${error.kind} ${error.parse ?? ''}`.trim();
    throw error;
  }
}

test('limits - operations end every kind of endless script', () => {
  const limited = { maxOperations: 100_000 };
  for (const script of [
    'loop {}',
    'while true {}',
    'do {} while true',
    'for i in 0..9223372036854775807 {}',
    'let a = [1]; loop { a.map(|x| x) }',
    'loop { try { throw 1 } catch {} }',
    'fn f() { loop { try { g() } catch {} } } fn g() { loop {} } f()',
    'loop { eval("1") }',
    'let a = []; loop { a.pad(a.len + 1000, 0) }',
  ]) {
    assert.equal(run(script, limited), 'ErrorTooManyOperations', script);
  }
});

test('limits - the host can end a script while it runs', () => {
  let asked = 0;
  const settings = { onProgress: () => ++asked > 3 };
  assert.equal(run('loop {}', settings), 'ErrorTerminated');
  assert.equal(asked, 4);
});

test('limits - a case of the protocol ends when the patience with it does', () => {
  let asked = 0;
  const isOver = (): boolean => ++asked > 3;
  const answer = runCase({ id: 7, mode: 'eval', script: 'loop {}' }, isOver);
  assert.deepEqual({ ...answer, message: '' }, { ...TERMINATED, id: 7 });
  const caught = runCase({ mode: 'eval', script: 'loop { try { loop {} } catch {} }' }, () => true);
  assert.equal((caught as Record<string, unknown>)['error'], 'ErrorTerminated');
});

test('limits - calls', () => {
  const r = 'fn r(n) { if n == 0 { 0 } else { r(n - 1) } }';
  assert.equal(run(`${r} r(63)`), 'ok i64');
  assert.equal(run(`${r} r(64)`), 'ErrorStackOverflow');
  assert.equal(run(`${r} r(50000)`, { maxCallLevels: 100_000 }), 'ok i64');
  assert.equal(run('let f = |f| f.call(f); f.call(f)'), 'ErrorStackOverflow');
  assert.equal(run('fn m() { [1].map(|x| m()) } m()'), 'ErrorStackOverflow');
  assert.equal(run('fn m() { eval("m()") } m()'), 'ErrorStackOverflow');
});

test('limits - sizes', () => {
  const size = { maxArraySize: 1000, maxStringSize: 1000, maxMapSize: 1000, maxOperations: 1e6 };
  for (const script of [
    'let a = []; loop { a.push(1) }',
    'let a = [1]; loop { a += a }',
    'let a = [1]; loop { a = a + a }',
    'let a = [1]; loop { a = [a, a] }',
    'let a = []; a.pad(10000000, 0)',
    'let a = []; a.pad(1001, [])',
    'blob(10000000)',
    'let s = "x"; loop { s += s }',
    'let s = "x"; loop { s = `${s}${s}` }',
    'let s = ""; s.pad(100000000, "x")',
    'let m = #{}; let i = 0; loop { m[i.to_string()] = i; i += 1 }',
    'let m = #{}; loop { m = #{a: m, b: m} }',
    'let a = []; loop { a.push("x") }',
    'let s = []; loop { s.push("0123456789".repeat) }',
  ]) {
    const result = run(script, size);
    assert.ok(['ErrorDataTooLarge', 'ErrorDotExpr'].includes(result), `${script}: ${result}`);
  }
});

test('limits - many values just below a limit cannot pass together', () => {
  const settings = { maxTotalSize: 1_000_000, maxOperations: 1e7 };
  assert.equal(run('let a = []; loop { a.push("x" + a.len) }', settings), 'ErrorDataTooLarge');
  const many = Array.from(
    { length: 50 },
    (_, i) => `let v${i} = "".to_string(); v${i}.pad(50000, "x");`,
  );
  assert.equal(run(many.join('\n'), settings), 'ErrorDataTooLarge');
  assert.equal(run('let s = "x"; for i in 0..1000 { s = "y" + i } s', settings), 'ok string');
});

test('limits - ten million elements without a limit', () => {
  const script = 'let a = []; for i in 0..10000000 { a.push(i) } a.len()';
  assert.equal(run(script), 'ok i64');
});

test('limits - variables, functions, modules', () => {
  assert.equal(run('let a = 1; let b = 2;', { maxVariables: 1 }), 'ErrorTooManyVariables');
  assert.equal(run('fn a() {} fn b() {}', { maxFunctions: 1 }), 'ErrorParsing TooManyFunctions');
  const modules = { maxModules: 2, resolveModule: () => 'export const X = 1;' };
  assert.equal(
    run('import "a" as a; import "b" as b; import "c" as c;', modules),
    'ErrorTooManyModules',
  );
  const circular = { resolveModule: (path: string) => `import "${path}x" as m;` };
  assert.equal(run('import "a" as a;', circular), 'ErrorStackOverflow');
});

test('limits - no clock, no timestamp', () => {
  assert.equal(run('timestamp()'), 'ErrorRuntime');
  assert.equal(run('timestamp()', { clock: () => 5 }), 'ok timestamp');
});

test('limits - eval can be switched off', () => {
  assert.equal(run('eval("1")', { allowEval: false }), 'ErrorParsing BadInput');
});

test('limits - a callback that lengthens its array by name does not run for ever', () => {
  const grow = (name: string): string =>
    `let a = [1, 2]; a.${name}(|v| { a.push(v); () }); a.len()`;
  for (const name of ['map', 'filter', 'find', 'find_map', 'some']) {
    assert.equal(run(grow(name)), 'ok i64', name);
  }
});
