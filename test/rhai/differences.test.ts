/**
 * Where this engine differs from the original on purpose: it is stricter about sizes, its iteration
 * of blobs gives plain integers, and errors in modules say what went wrong.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { runCase } from '../../rhai/conformance.ts';

function value(script: string, extra: object = {}): unknown {
  const answer = runCase({ mode: 'eval', script, ...extra }) as Record<string, unknown>;
  return answer['ok'] ?? answer['error'];
}

test('differences - bytes of a blob are integers', () => {
  const sum = 'let t = 0; for x in blob(3, 2) { t += x } t';
  assert.deepEqual(value(sum), { type: 'i64', value: '6' });
});

test('differences - names may begin with underscores', () => {
  assert.deepEqual(value('let _a = 1; let __b = 2; _a + __b'), { type: 'i64', value: '3' });
  assert.equal(value('let _ = 1'), 'ErrorParsing');
});

test('differences - growth past a limit is caught at once, through sharing too', () => {
  const arrays = { engine: [['set_max_array_size', 10]] };
  assert.equal(value('let x = [1,2,3,4,5,6]; x += x; x', arrays), 'ErrorDataTooLarge');
  assert.equal(value('let x = [1,2,3,4]; x[0] = x; x[1] = x; x', arrays), 'ErrorDataTooLarge');
  const maps = { engine: [['set_max_map_size', 10]] };
  const grow = 'let m = #{}; for i in 0..20 { m[i.to_string()] = i } m';
  assert.equal(value(grow, maps), 'ErrorDataTooLarge');
});

test('differences - errors in modules are told apart from missing ones', () => {
  const modules = { bad: 'let x = ;', err: 'throw 5' };
  assert.equal(value('import "bad" as b; 1', { modules }), 'ErrorInModule');
  assert.equal(value('import "err" as b; 1', { modules }), 'ErrorInModule');
  assert.equal(value('import "none" as b; 1', { modules }), 'ErrorModuleNotFound');
});

test('differences - closures outlive the script that made them', () => {
  const prelude = [{ op: 'eval', mode: 'eval', script: 'let n = 1; let inc = || n += 1;' }];
  assert.deepEqual(value('inc.call(); n', { prelude }), { type: 'i64', value: '2' });
});
