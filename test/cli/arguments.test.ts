/** Arguments keep their exact values from the command line to the signed bytes, whatever they are. */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import fc from 'fast-check';
import { open } from '../../bus/envelope.ts';
import { newIdentity } from '../../bus/identity.ts';
import { type JsonValue, JsonFloat, parseStrictBytes, stringifyTyped } from '../../schemas/json.ts';
import { parseArgs, parseDuration, parseGrants } from '../../tools/cli/arguments.ts';
import { sealDeployment } from '../../tools/cli/seal.ts';

const key = fc.string({ unit: 'binary', minLength: 1 }).filter((text) => !/[=:]/.test(text));
const I64 = { min: -(2n ** 63n), max: 2n ** 63n - 1n };

/** As a signer's args arrive at a reader of the signed bytes. */
function throughTheEnvelope(args: { [key: string]: JsonValue }): JsonValue {
  const bytes = sealDeployment(
    { context: 'default', script: '1', args, grants: [], on: null, lifetimeMs: 1000 },
    [newIdentity()],
    Date.now(),
  );
  const payload = parseStrictBytes(open(bytes).payload) as { [key: string]: JsonValue };
  return payload['args'] ?? null;
}

describe('cli - arguments', () => {
  it('takes k=v as the text it is', () => {
    fc.assert(
      fc.property(key, fc.string({ unit: 'binary' }), (name, value) => {
        const args = parseArgs([`${name}=${value}`]);
        assert.deepEqual(Object.entries(args), [[name, value]]);
      }),
    );
  });

  it('carries every i64 exactly, and refuses what is none', () => {
    fc.assert(
      fc.property(fc.bigInt(I64), (n) => {
        const args = throughTheEnvelope(parseArgs([`n:=${n}`]));
        assert.equal(stringifyTyped(args), `{"n":${n}}`);
      }),
      { numRuns: 50 },
    );
    for (const n of [I64.max + 1n, I64.min - 1n, 10n ** 30n]) {
      assert.throws(() => parseArgs([`n:=${n}`]), /is not an i64/);
    }
  });

  it('keeps a float a float', () => {
    fc.assert(
      fc.property(fc.double({ noNaN: true, noDefaultInfinity: true }), (n) => {
        const text = stringifyTyped(new JsonFloat(n));
        const back = parseArgs([`n:=${text}`])['n'];
        const value = back instanceof JsonFloat ? back.value : back;
        assert.ok(Object.is(value, n), `${text} did not come back as it was`);
        assert.match(stringifyTyped(back as JsonValue), /[.e]/);
      }),
    );
    assert.equal(stringifyTyped(parseArgs(['n:=2.0'])), '{"n":2.0}');
    assert.equal(stringifyTyped(parseArgs(['n:=1e2'])), '{"n":100.0}');
  });

  it('carries any JSON, and its own text', () => {
    fc.assert(
      fc.property(fc.json({ maxDepth: 5 }), (json) => {
        // JavaScript writes large floats as integers, which no i64 holds.
        fc.pre(!/\d{19}/.test(json));
        const once = stringifyTyped(parseArgs([`v:=${json}`]));
        assert.equal(stringifyTyped(parseArgs([`v:=${once.slice(5, -1)}`])), once);
      }),
    );
  });

  it('knows null, names with colons, and values with equal signs', () => {
    assert.deepEqual(parseArgs(['a:=null', 'b:c=d', 'e==f', 'g=h:=1', 'i=']), {
      a: null,
      'b:c': 'd',
      e: '=f',
      g: 'h:=1',
      i: '',
    });
  });

  it('takes __proto__ for a name like any other', () => {
    const args = parseArgs(['__proto__=x']);
    assert.deepEqual(Object.entries(args), [['__proto__', 'x']]);
    assert.equal(stringifyTyped(throughTheEnvelope(args)), '{"__proto__":"x"}');
  });

  it('refuses a name twice, in any of the two forms', () => {
    fc.assert(
      fc.property(key, fc.boolean(), fc.boolean(), (name, first, second) => {
        const form = (typed: boolean) => (typed ? `${name}:=1` : `${name}=1`);
        assert.throws(() => parseArgs([form(first), form(second)]), /given twice/);
      }),
    );
  });
});

describe('cli - grants and durations', () => {
  it('grants the kinds of jobs unless told otherwise', () => {
    const kinds = ['process', 'container', 'vm', 'wasm', 'script'];
    assert.deepEqual(parseGrants([]), kinds);
    assert.deepEqual(parseGrants(['kv:write,net', 'process']), [...kinds, 'kv:write', 'net']);
    assert.deepEqual(parseGrants(['none']), []);
    assert.deepEqual(parseGrants(['none,kv:*']), ['kv:*']);
  });

  it('reads durations', () => {
    const read = ['500ms', '30s', '1.5m', '2h', '1d'].map((text) => parseDuration(text, '--x'));
    assert.deepEqual(read, [500, 30_000, 90_000, 7_200_000, 86_400_000]);
    for (const wrong of ['', '5', '-1s', '1w', 's', '1 s']) {
      assert.throws(() => parseDuration(wrong, '--x'), /is no duration/);
    }
  });
});
