/** Typed JSON: exact integers, typed floats, nothing guessed. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { RhaiError } from '../../rhai/errors.ts';
import { fromJson, toJson } from '../../rhai/json.ts';
import { debugText } from '../../rhai/text.ts';
import {
  Char,
  Float,
  FnPtr,
  HostObject,
  RArray,
  Range,
  RBlob,
  RMap,
  type Value,
} from '../../rhai/values.ts';

test('json - round trips keep type and value', () => {
  for (const text of [
    'null',
    'true',
    '0',
    '-1',
    '9007199254740991',
    '9007199254740993',
    '9223372036854775807',
    '-9223372036854775808',
    '1.0',
    '2.5',
    '-0.0',
    '0.1',
    '1e300',
    '"text \\" \\\\ \\n é 😀 \\u0001"',
    '[]',
    '{}',
    '[1,2.0,"x",null,[true]]',
    '{"":1,"__proto__":{"a":2},"b c":[]}',
  ]) {
    assert.equal(toJson(fromJson(text)), text, text);
  }
  assert.ok(fromJson('1e2') instanceof Float);
  assert.equal(fromJson('1'), 1);
  assert.equal(fromJson('9223372036854775807'), 9223372036854775807n);
  assert.equal(debugText(fromJson('{"b":1,"a":[1.0]}')), '#{"a": [1.0], "b": 1}');
});

test('json - no normalisation of text', () => {
  const decomposed = 'e\u0301';
  assert.equal(fromJson(toJson(decomposed)), decomposed);
});

test('json - malformed text is an error', () => {
  for (const text of [
    '',
    ' ',
    '01',
    '+1',
    '.5',
    '1.',
    '1e',
    'nul',
    '[1,]',
    '[1 2]',
    '{"a"}',
    '{"a":1,}',
    '{a:1}',
    "'x'",
    '"x',
    '"\\q"',
    '"\\ud800"',
    '1 2',
    'NaN',
    'Infinity',
    '1e999',
    '{"a":1,"a":2}',
    '9223372036854775808',
    '-9223372036854775809',
    '['.repeat(10_000),
  ]) {
    assert.throws(() => fromJson(text), RhaiError, text.slice(0, 20));
  }
});

test('json - errors name the path', () => {
  const messages = (value: Value): string => {
    try {
      return toJson(value);
    } catch (error) {
      return error instanceof RhaiError ? error.message : 'no RhaiError';
    }
  };
  const inside = (value: Value): Value => new RMap(new Map([['a', new RArray([0, value])]]));
  for (const value of [
    new FnPtr('f'),
    new Range(0, 1, false),
    new HostObject('handle', 1),
    new Float(Number.NaN),
    new Float(Number.POSITIVE_INFINITY),
  ]) {
    assert.match(messages(inside(value)), /\$\.a\[1\]: /);
  }
  assert.equal(messages(new Char('x')), '"x"');
  assert.equal(messages(new RBlob([1, 255])), '[1,255]');
  assert.throws(() => fromJson('{"a":{"b":[1,x]}}'), /\$\.a\.b\[1\]/);
});
