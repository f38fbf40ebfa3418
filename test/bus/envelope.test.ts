/**
 * Envelopes: what is sealed opens to the same bytes; every change has its own code; no change of a
 * signature, its order or its number moves the flow id.
 */
import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { describe, it } from 'node:test';
import fc from 'fast-check';
import { addSignature, flowIdOf, open, seal, verifySignatures } from '../../bus/envelope.ts';
import { newIdentity } from '../../bus/identity.ts';
import { HeroError } from '../../schemas/errors.ts';
import { JsonFloat, parseStrict, stringifyTyped, type JsonValue } from '../../schemas/json.ts';

const TYPE = 'application/vnd.herobus.deploy+json';
const alice = newIdentity();
const bob = newIdentity();
const payload = Buffer.from('{"v":1,"context":"acme","script":"1 + 1"}');

function code(act: () => unknown): string {
  try {
    act();
  } catch (error) {
    assert.ok(error instanceof HeroError, String(error));
    return error.code;
  }
  return 'ok';
}

function judge(bytes: Uint8Array): string {
  return code(() => verifySignatures(open(bytes)));
}

type Loose = { payload: string; payloadType: string; signatures: { keyid: string; sig: string }[] };

function changed(change: (envelope: Loose) => unknown): Uint8Array {
  const envelope = JSON.parse(Buffer.from(seal(payload, TYPE, [alice])).toString()) as Loose;
  change(envelope);
  return Buffer.from(JSON.stringify(envelope));
}

describe('envelope - form', () => {
  it('opens to the very bytes that were sealed', () => {
    fc.assert(
      fc.property(fc.uint8Array({ minLength: 1, maxLength: 300 }), (bytes) => {
        const opened = open(seal(bytes, TYPE, [alice, bob]));
        assert.deepEqual(Uint8Array.from(opened.payload), bytes);
        assert.deepEqual(verifySignatures(opened), [alice.principal, bob.principal]);
      }),
      { numRuns: 25 },
    );
  });

  it('takes the flow id from the payload only', () => {
    const one = open(seal(payload, TYPE, [alice]));
    const two = open(addSignature(seal(payload, TYPE, [alice]), bob));
    assert.equal(one.flow, two.flow);
    assert.equal(one.flow, flowIdOf(payload));
    assert.match(one.flow, /^[a-z2-7]{26}$/);
    assert.equal(one.digest, createHash('sha256').update(payload).digest('hex'));
    assert.notEqual(one.envelopeDigest, two.envelopeDigest);
    assert.deepEqual(verifySignatures(two), [alice.principal, bob.principal]);
  });

  it('signs DSSEv1 with lengths in bytes', () => {
    const text = Buffer.from('ü');
    const opened = open(seal(text, 't/ü', [alice]));
    const message = Buffer.concat([Buffer.from('DSSEv1 4 t/ü 2 '), text]);
    assert.deepEqual(
      Buffer.from(opened.signatures[0]?.sig ?? []),
      Buffer.from(alice.sign(message)),
    );
  });

  it('counts one key once, also when it signs again', () => {
    const twice = changed((e) => e.signatures.push({ ...e.signatures[0]! }));
    assert.deepEqual(verifySignatures(open(twice)), [alice.principal]);
    const again = open(addSignature(seal(payload, TYPE, [alice, bob]), alice));
    assert.equal(again.signatures.length, 2);
  });

  it('refuses what is not exactly an envelope', () => {
    assert.equal(judge(seal(payload, TYPE, [alice])), 'ok');
    const cases: [string, string, Uint8Array][] = [
      ['unknown field', 'bad_envelope', changed((e) => Object.assign(e, { extra: 1 }))],
      [
        'field in a signature',
        'bad_envelope',
        changed((e) => Object.assign(e.signatures[0]!, { x: 1 })),
      ],
      ['no payload', 'bad_envelope', changed((e) => Reflect.deleteProperty(e, 'payload'))],
      ['no type', 'bad_envelope', changed((e) => Reflect.deleteProperty(e, 'payloadType'))],
      ['no signatures', 'bad_envelope', changed((e) => Object.assign(e, { signatures: [] }))],
      [
        '33 signatures',
        'bad_envelope',
        changed((e) => (e.signatures = Array(33).fill(e.signatures[0]))),
      ],
      ['base64url', 'bad_envelope', changed((e) => (e.payload = '-_8='))],
      ['no padding', 'bad_envelope', changed((e) => (e.payload = 'QQ'))],
      ['blank in base64', 'bad_envelope', changed((e) => (e.payload = `${e.payload}\n`))],
      ['loose last bits', 'bad_envelope', changed((e) => (e.payload = 'QR=='))],
      ['no JSON', 'bad_envelope', Buffer.from('{')],
      ['empty', 'bad_envelope', Buffer.alloc(0)],
      ['not UTF-8', 'bad_envelope', Buffer.from([0x7b, 0xff, 0x7d])],
      [
        'byte order mark',
        'bad_envelope',
        Buffer.concat([Buffer.from([0xef, 0xbb, 0xbf]), seal(payload, TYPE, [alice])]),
      ],
      ['a list', 'bad_envelope', Buffer.from('[]')],
      [
        'text after',
        'bad_envelope',
        Buffer.concat([seal(payload, TYPE, [alice]), Buffer.from('x')]),
      ],
      ['too large', 'too_large', Buffer.alloc((1 << 20) + 1, 0x20)],
    ];
    for (const [name, expected, bytes] of cases) assert.equal(judge(bytes), expected, name);
    const text = Buffer.from(seal(payload, TYPE, [alice])).toString();
    const doubled = text.replace('"payloadType"', '"payload":"QQ==","payloadType"');
    assert.equal(judge(Buffer.from(doubled)), 'duplicate_key');
    const inner = text.replace('"sig":', '"sig":"QQ==","sig":');
    assert.equal(judge(Buffer.from(inner)), 'duplicate_key');
  });
});

describe('envelope - one byte changed', () => {
  it('says bad_signature for every byte of a signature and of the payload', () => {
    for (let i = 0; i < 64; i++) {
      const bytes = changed((e) => {
        const sig = Buffer.from(e.signatures[0]!.sig, 'base64');
        sig[i]! ^= 1;
        e.signatures[0]!.sig = sig.toString('base64');
      });
      assert.equal(judge(bytes), 'bad_signature', `signature byte ${i}`);
    }
    for (let i = 0; i < payload.length; i++) {
      const bytes = changed((e) => {
        const other = Buffer.from(payload);
        other[i]! ^= 1;
        e.payload = other.toString('base64');
      });
      assert.equal(judge(bytes), 'bad_signature', `payload byte ${i}`);
    }
    assert.equal(judge(changed((e) => (e.payloadType += 'x'))), 'bad_signature');
    assert.equal(judge(changed((e) => (e.signatures[0]!.keyid = bob.principal))), 'bad_signature');
    assert.equal(judge(changed((e) => (e.signatures[0]!.sig = 'QQ=='))), 'bad_signature');
    assert.equal(judge(changed((e) => (e.signatures[0]!.sig = '*'))), 'bad_signature');
    assert.equal(judge(changed((e) => (e.signatures[0]!.keyid = 'U'))), 'bad_signature');
    // A second signature that is not valid is not passed over in silence.
    const second = changed((e) =>
      e.signatures.push({ keyid: bob.principal, sig: e.signatures[0]!.sig }),
    );
    assert.equal(judge(second), 'bad_signature');
  });

  it('never accepts any single changed byte of the message', () => {
    const bytes = seal(payload, TYPE, [alice]);
    for (let i = 0; i < bytes.length; i++) {
      const other = Uint8Array.from(bytes);
      other[i]! ^= 1 << (i % 7);
      assert.notEqual(judge(other), 'ok', `byte ${i}`);
    }
  });
});

describe('json - typed and strict', () => {
  const json: fc.Arbitrary<JsonValue> = fc.letrec<{ value: JsonValue }>((tie) => ({
    value: fc.oneof(
      { maxDepth: 4 },
      fc.constant(null),
      fc.boolean(),
      fc.maxSafeInteger(),
      fc.bigInt({ min: -(2n ** 63n), max: 2n ** 63n - 1n }).map((n) => {
        const small = Number(n);
        return Number.isSafeInteger(small) ? small : n;
      }),
      fc
        .double({ noNaN: true, noDefaultInfinity: true })
        .map((n) => (Number.isInteger(n) ? new JsonFloat(n) : n)),
      fc.string({ unit: 'binary' }),
      fc.array(tie('value'), { maxLength: 4 }),
      fc.dictionary(fc.string(), tie('value'), { maxKeys: 4, noNullPrototype: true }),
    ),
  })).value;

  it('reads back what it writes, and agrees with JSON.parse on what both can say', () => {
    fc.assert(
      fc.property(json, (value) => {
        const text = stringifyTyped(value);
        assert.deepEqual(parseStrict(text), value);
        assert.doesNotThrow(() => JSON.parse(text));
      }),
    );
    fc.assert(
      fc.property(fc.json(), fc.nat(), (text, at) => {
        const cut = text.slice(0, at % (text.length + 1));
        const valid = (parse: (t: string) => unknown) => code(() => parse(cut)) === 'ok';
        const native = (t: string) => {
          try {
            JSON.parse(t);
          } catch (cause) {
            throw new HeroError('bad_request', 'native', { cause });
          }
        };
        assert.equal(valid(parseStrict), valid(native), cut);
      }),
    );
  });

  it('keeps the kinds of numbers apart', () => {
    assert.equal(parseStrict('9007199254740993'), 9007199254740993n);
    assert.equal(parseStrict('9223372036854775807'), 2n ** 63n - 1n);
    assert.equal(parseStrict('-9223372036854775808'), -(2n ** 63n));
    assert.equal(
      code(() => parseStrict('9223372036854775808')),
      'bad_request',
    );
    assert.equal(
      code(() => parseStrict('1'.repeat(5000))),
      'bad_request',
    );
    assert.equal(
      code(() => parseStrict('1e400')),
      'bad_request',
    );
    assert.deepEqual(parseStrict('[1,1.0,1e0,1.5,-0,-0.0]'), [
      1,
      new JsonFloat(1),
      new JsonFloat(1),
      1.5,
      0,
      new JsonFloat(-0),
    ]);
    assert.equal(
      stringifyTyped([0, '', null, new JsonFloat(-0), 9007199254740993n, 1e300]),
      '[0,"",null,-0.0,9007199254740993,1e+300]',
    );
    assert.deepEqual(parseStrict('[0,"",null]'), [0, '', null]);
  });

  it('names a duplicate key at any depth, however it is written', () => {
    assert.throws(() => parseStrict('{"a":[{"b":1,"\\u0062":2}]}'), /a\.0\.b stands twice/);
    assert.throws(() => parseStrict('{"__proto__":1,"__proto__":2}'), { code: 'duplicate_key' });
    const odd = parseStrict('{"__proto__":{"x":1}}') as object;
    assert.equal(Object.getPrototypeOf(odd), Object.prototype);
    assert.ok(Object.hasOwn(odd, '__proto__'));
    assert.equal(
      code(() => parseStrict('['.repeat(10_000))),
      'bad_request',
    );
  });
});
