/**
 * Advice beside the messages of errors, for the complaints users of Rhai have: each script, and what its
 * author is told. The messages themselves are the original's and in cases/.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Engine, hintOf, RhaiError, type ScopeEntry, type Settings } from '../../rhai/engine.ts';

const MODULE = 'fn add(a, b) { a + b } private fn sub(a, b) { a - b } export const RATE = 1;';

function hint(script: string, settings: Partial<Settings> = {}, scope: ScopeEntry[] = []): string {
  const engine = new Engine({
    resolveModule: (path) => (path === 'm' ? MODULE : undefined),
    ...settings,
  });
  try {
    const outcome = engine.start(engine.compile(script, { scope }), scope).run();
    assert.equal(outcome.state, 'failed', script);
    return outcome.state === 'failed' ? (hintOf(outcome.error) ?? '') : '';
  } catch (error) {
    if (error instanceof RhaiError) return hintOf(error) ?? '';
    throw error;
  }
}

function check(cases: readonly (readonly [string, RegExp])[], settings?: Partial<Settings>): void {
  for (const [script, expected] of cases) assert.match(hint(script, settings), expected, script);
}

test('hints - a function that is not found: who has the name, and what it takes', () => {
  check([
    ['fn add(a, b) { a + b } add(1)', /there is `add\(a, b\)`; it was given 1 argument$/],
    ['fn f() {} fn f(a) {} f(1, 2)', /`f\(\)` or `f\(a\)`; it was given 2 arguments/],
    ['fn int.dbl(n) { this * n } let x = 1.5; x.dbl(2)', /`i64\.dbl\(n\)`/],
    ['let a = []; a.pusch(3)', /did you mean `push`\?/],
    ['fn total(a) { a } totla(1)', /did you mean `total`\?/],
    ['"a".toUpper()', /did you mean `to_upper`/],
    ['let a = [1]; a.join(",")', /arrays have none.*reduce/],
    ['"abc".length()', /len\(\)/],
    ['qqqqqq()', /no function has that name/],
    ['let s = "a"; s.sub_string("1")', /`sub_string\(string, i64\)`/],
    ['let x = blob(3); x.push("a")', /`push\(blob, i64\)`/],
    ['let f = |x| x; f(1)', /`f` is a variable.*`f\.call\(…\)`/],
    ['let f = |x| x; f.call(1, 2)', /closure on line 1 takes \(x\).*2 arguments/],
  ]);
});

test('hints - integers and floats are two types', () => {
  check([
    ['sqrt(2)', /`2\.0`.*to_float/],
    ['let x = 2; x.sin()', /to_float/],
    ['let x = 2.0; x.to_hex()', /to_int/],
    ['2 ** -1', /`2\.0 \*\* -1`/],
    ['let x = 9223372036854775807; x + 1', /2\^63/],
  ]);
});

test('hints - an operator without those types', () => {
  check([
    ['let a = [1]; a + 1', /`a \+ \[x\]`, or `a\.push\(x\)`/],
    ['"5" * 2', /parse_int/],
    ['let x = 1; x == 1 & 3', /parentheses/],
    ['!5', /`x == 0`/],
    ['let f = |x| x; f == f', /f\.name/],
  ]);
});

test('hints - functions do not see outer variables', () => {
  check([
    ['let x = 1; fn f() { x } f()', /do not see outer variables such as `x`: pass it/],
    ['const X = 1; fn f() { X } f()', /write `global::X`/],
    ['fn f() { let g = || y; g.call() } let y = 1; f()', /such as `y`/],
    ['fn f() { global::Y } f()', /const Y/],
  ]);
  const scope = [{ name: 'args', value: 1, constant: true }];
  const strict = { strictVariables: true };
  assert.match(hint('fn f() { args } f()', {}, scope), /`args`: pass it as an argument/);
  assert.match(hint('fn f() { args } f()', strict, scope), /`args`: pass it as an argument/);
  check([['let x = 1; fn f() { x } f()', /do not see outer/]], strict);
});

test('hints - what the hint says to do works', () => {
  const engine = new Engine({ strictVariables: true });
  const scope = [{ name: 'args', value: 7, constant: true }];
  const script = 'const ARGS = args; fn f() { global::ARGS } f()';
  const outcome = engine.start(engine.compile(script, { scope }), scope).run();
  assert.deepEqual(outcome, { state: 'done', value: 7 });
});

test('hints - a () from a property that is missing is named where it fails', () => {
  const map = 'let m = #{host: "a", port: 1};';
  const near = /because the map has no property "prot" \(read on line 1\): did you mean "port"\?/;
  check([
    [`${map} m.prot + 1`, near],
    [`${map} let p = m.prot; p + 1`, near],
    [`${map} let p = m.prot; p += 1;`, near],
    [`${map} 2 * m["prot"]`, near],
    [`fn f(p) { p * 2 } ${map} f(m.prot)`, near],
    [`${map} -m.prot`, near],
    [`${map} if m.prot { 1 }`, near],
    [`${map} if m.prot > 0 && m.prot - 1 > 0 { 1 } else { m.prot - 1 }`, near],
    [`${map} for x in m.prot {}`, near],
    [`${map} m.prot.len()`, near],
    [`${map} m.prot[0]`, near],
    [`${map} m.prot.x.y`, near],
    [`${map} m.prot.x = 1;`, near],
    ['let m = #{a: 1, b: 2}; m.zzz + 1', /it has "a", "b"; `x\.zzz \?\? 0`/],
    [
      'let m = #{}; let n = m.k; let f = || n + 1; f.call()',
      /perhaps because the map has no property "k"/,
    ],
  ]);
  const optional = 'let m = #{}; for i in 0..100 { m.x ?? 1; } ';
  check([[`${optional} [1] + 1`, /`a \+ \[x\]`/]]);
  const strict = { failOnInvalidMapProperty: true };
  assert.equal(hint('let m = #{}; m.x', strict), '');
});

test('hints - variables, properties and conditions', () => {
  check([
    ['let count = 1; coutn + 1', /did you mean `count`/],
    ['x = 5', /`let x = …`/],
    ['let x = undefined', /`\(\)`/],
    ['let f = || later; let later = 1; f.call()', /`later` is declared elsewhere.*closures too/],
    ['let a = [1]; a.length', /`len`/],
    ['let s = "a"; s.trim', /`trim` is a function/],
    ['let x = 1; x.y = 2', /only maps/],
    ['let s = "a"; if s.len { 1 }', /nothing else counts as one: `x != 0`/],
    ['let n = 5; for i in n {}', /`for i in 0\.\.n`/],
    ['let m = #{a: 1}; for k in m {}', /m\.keys\(\)/],
    ['const A = [1]; A.push(2)', /`let x = …`/],
    ['parse_json("[1]")', /objects only/],
    ['fn f() { this } f()', /`x\.f\(\)`/],
  ]);
});

test('hints - limits say what they allow', () => {
  assert.match(hint('fn r(n) { r(n + 1) } r(0)', { maxCallLevels: 20 }), /nest 20 deep/);
  assert.match(hint('loop {}', { maxOperations: 1000 }), /1000 operations/);
  assert.match(hint('let a = []; loop { a.push(1) }', { maxArraySize: 50 }), /50 elements/);
  assert.match(hint('let s = "x"; loop { s += s; }', { maxStringSize: 50 }), /50 bytes/);
  assert.match(hint('('.repeat(100) + '1' + ')'.repeat(100)), /at most 64 levels, 32 in functions/);
});

test('hints - modules', () => {
  check([
    ['import "m" as m; m::ad(1, 2)', /did you mean `add`/],
    ['import "m" as m; m::add(1)', /`add\(a, b\)`; it was given 1/],
    ['import "m" as m; m::sub(1, 2)', /private/],
    ['import "m" as m; m::RATES', /did you mean `RATE`/],
    ['import "m" as m; m::Y', /`export const Y = …`/],
    ['import "m" as m; add(1, 2)', /in the module "m"/],
    ['n::add(1, 2)', /`import "…" as n;`/],
  ]);
  check(
    [
      ['fn f() { m::add(1, 2) } import "m" as m; f()', /above the function, or in it/],
      ['import "m" as util; utli::add(1, 2)', /did you mean `util`/],
    ],
    { strictVariables: true },
  );
});

test('hints - what does not parse', () => {
  check([
    ['var x = 1', /`let`/],
    ['let x = null', /`\(\)`/],
    ['let x = await f()', /nothing to wait for/],
    ['let x = 1; x++', /`x \+= 1`/],
    ['let y = x ? 1 : 2', /`if c \{ a \} else \{ b \}`/],
    ["let s = 'abc'", /written "abc"/],
    ['let s = "abc\ndef"', /back-ticks/],
    ['let f = fn(x) { x }', /closure: `\|x\| …`/],
    ['fn f() { fn g() {} }', /top level/],
    ['fn f(a = 1) {}', /no default values/],
    ['if 1 { 2 }', /compare, `x != 0`/],
    ['for i in 5 {}', /`0\.\.n`/],
    ['const A = 1; A = 2', /`let`/],
  ]);
  check([['eval("1")', /switched off/]], { allowEval: false });
});

test('hints - none is made for errors a script catches, and messages stay as they are', () => {
  const engine = new Engine();
  const script = 'let m = #{}; let t = ""; try { m.a + 1 } catch (e) { t = e.message; } t';
  const outcome = engine.start(engine.compile(script)).run();
  assert.deepEqual(outcome, { state: 'done', value: 'Function not found: + ((), i64)' });
});
