/** No script reaches an object, prototype or global of JavaScript, by whatever name. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Engine, RhaiError } from '../../rhai/engine.ts';
import { fromJson, toJson } from '../../rhai/json.ts';
import { debugText } from '../../rhai/text.ts';

const NAMES = [
  '__proto__',
  'constructor',
  'prototype',
  'toString',
  'valueOf',
  'hasOwnProperty',
  '__defineGetter__',
  'isPrototypeOf',
  'length',
  'caller',
  'arguments',
  'globalThis',
  'process',
  'require',
];

function run(script: string): string {
  try {
    const engine = new Engine({ maxOperations: 100_000 });
    const outcome = engine.start(engine.compile(script)).run();
    if (outcome.state === 'done') return debugText(outcome.value);
    return outcome.state === 'failed' ? outcome.error.kind : outcome.state;
  } catch (error) {
    if (error instanceof RhaiError) return error.kind;
    throw error;
  }
}

test('safety - names of JavaScript are no variables, functions or properties', () => {
  for (const name of NAMES) {
    assert.equal(run(`let x = ${name}; x`), 'ErrorVariableNotFound', name);
    assert.equal(run(`${name}()`), 'ErrorFunctionNotFound', name);
    for (const value of ['1', '1.5', '"s"', '[1]', 'true', '()', "'c'", '1..2', '|x| x']) {
      assert.equal(
        run(`let v = ${value}; v.${name}()`),
        'ErrorFunctionNotFound',
        `${value} ${name}`,
      );
      assert.equal(run(`let v = ${value}; v.${name}`), 'ErrorDotExpr', `${value} ${name}`);
      assert.equal(run(`let v = ${value}; v.${name} = 1`), 'ErrorDotExpr', `${value} ${name}`);
    }
    assert.equal(run(`${name}::x`), 'ErrorModuleNotFound', name);
    assert.equal(run(`Fn("${name}").call(1)`), 'ErrorFunctionNotFound', name);
    assert.equal(run(`import "${name}" as m`), 'ErrorModuleNotFound', name);
  }
});

test('safety - as keys of maps they are plain data', () => {
  for (const name of NAMES) {
    assert.equal(run(`let m = #{}; m["${name}"]`), '()', name);
    assert.equal(run(`let m = #{}; m.${name}`), '()', name);
    assert.equal(run(`let m = #{}; "${name}" in m`), 'false', name);
    assert.equal(run(`let m = #{"${name}": 1}; m.len()`), '1', name);
    assert.equal(run(`let m = #{}; m["${name}"] = 5; m["${name}"] += 1; m.${name}`), '6', name);
    assert.equal(run(`let m = #{}; m["${name}"] = 1; m.keys()`), `["${name}"]`, name);
    assert.equal(run(`let m = #{}; m.${name}()`), 'ErrorFunctionNotFound', name);
    assert.equal(
      run(`let m = parse_json("{\\"${name}\\": {\\"a\\": 1}}"); m.${name}.a`),
      '1',
      name,
    );
    assert.equal(run(`switch "${name}" { "a" => 1, _ => 2 }`), '2', name);
    assert.equal(toJson(fromJson(`{"${name}":1}`)), `{"${name}":1}`, name);
  }
  assert.equal(Object.hasOwn(Object.prototype, 'a'), false);
});

test('safety - they may be names of variables and functions of the script', () => {
  for (const name of NAMES) {
    assert.equal(run(`let ${name} = 5; ${name} + 1`), '6', name);
    assert.equal(run(`fn ${name}(x) { x + 1 } ${name}(1)`), '2', name);
    assert.equal(run(`fn ${name}() { this + 1 } 4.${name}()`), '5', name);
    assert.equal(run(`let ${name} = 1; let f = || ${name} += 1; f.call(); ${name}`), '2', name);
    assert.equal(run(`const ${name} = 3; fn f() { global::${name} } f()`), '3', name);
  }
});
