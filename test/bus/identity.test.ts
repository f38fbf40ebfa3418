/**
 * Keys, texts and addresses against the vectors of INTERFACES 4 and reference/upstream.md 4.1, and strict
 * verification against the forgeries that lenient libraries let pass.
 */
import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { describe, it } from 'node:test';
import * as ed from '@noble/ed25519';
import fc from 'fast-check';
import {
  addressOf,
  addressOfX25519,
  base32,
  identityFromSeed,
  identityFromText,
  newIdentity,
  nkeyBytes,
  nkeyText,
  parseBase32,
  seedText,
  signingKey,
  signingKeyFromText,
  verifySignature,
  x25519Public,
} from '../../bus/identity.ts';
import { addressText, parseAddress } from '../../schemas/ids.ts';

ed.hashes.sha512 = (message) => Uint8Array.from(createHash('sha512').update(message).digest());

const SEED = Uint8Array.from({ length: 32 }, (_, i) => i);

describe('identity - derivation', () => {
  it('gives the vector of INTERFACES 4', () => {
    const identity = identityFromSeed(SEED);
    assert.equal(identity.principal, 'UAB2CB576PHBBPQ5ODORRZ2LYCMWPZGWGCN2KDK7DXOIMZASKUY3RLKK');
    assert.equal(identity.seedText(), 'SUAAAAICAMCAKBQHBAEQUCYMBUHA6EARCIJRIFIWC4MBSGQ3DQOR4H776Y');
    assert.equal(
      Buffer.from(x25519Public(identity)).toString('hex'),
      '4701d08488451f545a409fb58ae3e58581ca40ac3f7f114698cd71deac73ca01',
    );
    assert.equal(identity.address, '04a4459a71c13cb007175626f0c8d354');
    assert.equal(addressOf(identity.principal), identity.address);
    assert.equal(identityFromText(`${identity.seedText()}\n`).address, identity.address);
  });

  it('gives the addresses of the mycelium vectors', () => {
    const vectors = {
      '955bf6bea5e1150fd8e270c12e5b2fc08f08f7c5f3799d10550096cc137d671b':
        '514:74ce:dd13:296f:ada7:4d2e:9335:acac',
      abd16194646defe7ad2318a0f0a69eb2e3fe939c3b0b51cf0bb88bb8028ecd1d:
        '597:d890:a254:dd45:2bc6:9a47:40d5:ed83',
      a47c1d6f2a15b2c670d3a88fbe0aeb301ced12f7bcb4c8e3aa877b20f8559c02:
        '548:c783:d7ce:74a3:9ba1:a0cb:ae21:338d',
      bb39b4a3a4efd70f3e05e37887677e02efbda14681d0acd3882bc0f754792c32:
        '57f:ad8b:cfa2:e46a:adb7:fe0d:4878:1f71',
    };
    for (const [key, text] of Object.entries(vectors)) {
      assert.equal(addressText(addressOfX25519(Buffer.from(key, 'hex'))), text);
    }
  });

  it('clamps the X25519 secret to the scalar of the same key', () => {
    const identity = newIdentity();
    const scalar = BigInt(`0x${Buffer.from(identity.x25519Secret()).reverse().toString('hex')}`);
    const point = ed.Point.BASE.multiplyUnsafe(scalar % ed.Point.CURVE().n);
    assert.deepEqual(point.toBytes(), Uint8Array.from(identity.publicBytes));
  });
});

describe('identity - texts', () => {
  it('reads every nkey text it writes and no other', () => {
    for (const role of ['U', 'A', 'O'] as const) {
      const key = signingKey(role);
      assert.match(key.public, new RegExp(`^${role}[A-Z2-7]{55}$`));
      assert.deepEqual(nkeyBytes(role, key.public), Uint8Array.from(key.publicBytes));
      assert.equal(signingKeyFromText(role, key.seedText()).public, key.public);
    }
    const { principal } = newIdentity();
    assert.equal(nkeyBytes('A', principal), undefined);
    for (let i = 0; i < principal.length; i++) {
      const other = principal[i] === 'Q' ? 'R' : 'Q';
      const text = principal.slice(0, i) + other + principal.slice(i + 1);
      assert.equal(nkeyBytes('U', text), undefined, text);
    }
    assert.throws(() => identityFromText(seedText('A', SEED)), { code: 'bad_request' });
    assert.throws(() => identityFromText('SUA'), { code: 'bad_request' });
  });

  it('writes and reads base32 of any bytes', () => {
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 40 }), (bytes) => {
        assert.deepEqual(parseBase32(base32(bytes)), bytes);
      }),
    );
    assert.equal(parseBase32('AB'), undefined);
    assert.equal(parseBase32('a0'), undefined);
  });

  it('writes addresses by RFC 5952 and reads both forms', () => {
    const known = {
      '00000000000000000000000000000000': '::',
      '00000000000000000000000000000001': '::1',
      '20010db8000000000001000000000001': '2001:db8::1:0:0:1',
      '04a4000000000000000000000000d354': '4a4::d354',
      '20010db8000100010001000100010000': '2001:db8:1:1:1:1:1:0',
      '04000000000000000000000000000000': '400::',
    };
    for (const [hex, text] of Object.entries(known)) {
      assert.equal(addressText(hex), text);
      assert.equal(parseAddress(text), hex);
    }
    fc.assert(
      fc.property(fc.uint8Array({ minLength: 16, maxLength: 16 }), (bytes) => {
        const hex = Buffer.from(bytes).toString('hex');
        assert.equal(parseAddress(addressText(hex)), hex);
        assert.equal(parseAddress(hex.toUpperCase()), hex);
      }),
    );
    for (const bad of ['', 'x', '1::2::3', '1:2:3:4:5:6:7', '1:2:3:4:5:6:7:8:9', '12345::']) {
      assert.equal(parseAddress(bad), undefined, bad);
    }
  });
});

describe('identity - strict verification', () => {
  const message = Buffer.from('DSSEv1 message');
  it('agrees with noble on good and on changed signatures', () => {
    for (let round = 0; round < 20; round++) {
      const identity = newIdentity();
      const signature = Uint8Array.from(identity.sign(message));
      assert.ok(verifySignature(identity.principal, message, signature));
      assert.ok(ed.verify(signature, message, Uint8Array.from(identity.publicBytes)));
      const changed = Uint8Array.from(signature);
      changed[(round * 7) % 64]! ^= 1 << (round % 8);
      assert.equal(verifySignature(identity.principal, message, changed), false);
      assert.equal(verifySignature(newIdentity().principal, message, signature), false);
    }
  });

  it('refuses S + L, which is the same signature in another form', () => {
    const identity = newIdentity();
    const signature = Buffer.from(identity.sign(message));
    const s = BigInt(`0x${Buffer.from(signature.subarray(32)).reverse().toString('hex')}`);
    const malleable = (s + ed.Point.CURVE().n).toString(16).padStart(64, '0');
    const forged = Buffer.concat([
      signature.subarray(0, 32),
      Buffer.from(malleable, 'hex').reverse(),
    ]);
    assert.equal(verifySignature(identity.principal, message, forged), false);
  });

  it('refuses keys of small order, with which anybody signs anything', () => {
    // R = S*B - h*A: for A of small order and S = 0, R is of small order as well; some message fits.
    const small = [
      '0100000000000000000000000000000000000000000000000000000000000000',
      'ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f',
      '0000000000000000000000000000000000000000000000000000000000000000',
      '0000000000000000000000000000000000000000000000000000000000000080',
      '26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05',
      'c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a',
    ];
    for (const hex of small) {
      const key = Buffer.from(hex, 'hex');
      const identityPoint = Buffer.concat([Buffer.from(small[0] ?? '', 'hex'), Buffer.alloc(32)]);
      assert.equal(verifySignature(nkeyText('U', key), message, identityPoint), false, hex);
    }
    const forged = Buffer.concat([Buffer.from(small[0] ?? '', 'hex'), Buffer.alloc(32)]);
    const key = Uint8Array.from(Buffer.from(small[0] ?? '', 'hex'));
    const passes = ed.verify(Uint8Array.from(forged), Uint8Array.from(message), key, {
      zip215: true,
    });
    assert.ok(passes, 'the forgery is a real one');
  });

  it('refuses a key that is not canonical and one of mixed order', () => {
    // y = 1 + p and y = p: the same points as 1 and 0, written past the field's end.
    for (const hex of [
      'eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f',
      'edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f',
      '0100000000000000000000000000000000000000000000000000000000000080',
    ]) {
      const signature = Buffer.concat([Buffer.from('01'.padEnd(64, '0'), 'hex'), Buffer.alloc(32)]);
      assert.equal(
        verifySignature(nkeyText('U', Buffer.from(hex, 'hex')), message, signature),
        false,
      );
    }
    const order8 = ed.Point.fromHex(
      '26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05',
    );
    const identity = newIdentity();
    const mixed = ed.Point.fromBytes(Uint8Array.from(identity.publicBytes)).add(order8).toBytes();
    assert.equal(verifySignature(nkeyText('U', mixed), message, identity.sign(message)), false);
  });

  it('answers false, not an error, for what is no key or no signature', () => {
    const identity = newIdentity();
    const { principal } = identity;
    assert.equal(verifySignature('U', message, identity.sign(message)), false);
    assert.equal(verifySignature(principal, message, new Uint8Array(0)), false);
    assert.equal(verifySignature(principal, message, new Uint8Array(63)), false);
  });
});
