/** Blobs on a real server: whose they are to read and write, and what became of damaged ones. */
import assert from 'node:assert/strict';
import { createHash, randomBytes } from 'node:crypto';
import { after, before, test } from 'node:test';
import { fetchValue, makeBlobs, storeValue } from '../../bus/blobs.ts';
import type { Blobs } from '../../bus/bus.ts';
import type { Connection } from '../../bus/connect.ts';
import { newIdentity } from '../../bus/identity.ts';
import { request } from '../../bus/jetstream.ts';
import { startRealBus, type RealBus } from './real-bus.ts';

let bus: RealBus;
let executor: Connection;
let user: Blobs;
let reader: Blobs;
let node: Blobs;
const PART = 512 * 1024;

before(async () => {
  bus = await startRealBus({ contexts: ['acme', 'rival'] });
  executor = await bus.asUser(newIdentity(), { executes: ['acme'], reads: [] });
  user = makeBlobs(executor.nats);
  reader = makeBlobs((await bus.asUser(newIdentity(), { executes: [], reads: ['acme'] })).nats);
  const rights = { contexts: ['acme'], classes: ['process'] as const };
  node = makeBlobs((await bus.asNode(newIdentity(), rights)).nats);
});
after(() => bus.close());

const sha256 = (bytes: Uint8Array): string => createHash('sha256').update(bytes).digest('hex');

test('blobs - of every size, by executors and nodes, to all who may read the context', async () => {
  for (const size of [0, 1, PART - 1, PART, PART + 1, 3 * PART + 7]) {
    const bytes = randomBytes(size);
    const digest = await (size % 2 === 0 ? user : node).put('acme', bytes);
    assert.equal(digest, sha256(bytes));
    for (const who of [user, reader, node]) {
      assert.ok(bytes.equals(await who.get('acme', digest, size)), `${size} bytes`);
    }
  }
});

test('blobs - readers do not write, and nobody reaches into another context', async () => {
  const bytes = randomBytes(100);
  const digest = await makeBlobs(bus.controlConnection.nats).put('rival', bytes);
  await assert.rejects(reader.put('acme', bytes), { code: 'not_allowed' });
  await assert.rejects(user.put('rival', randomBytes(10)), { code: 'not_allowed' });
  await assert.rejects(node.put('rival', randomBytes(10)), { code: 'not_allowed' });
  await assert.rejects(user.get('rival', digest), { code: 'not_allowed' });
  await assert.rejects(reader.get('rival', digest), { code: 'not_allowed' });
});

test('blobs - gone, altered, of another size: each by its code; who has the bytes mends them', async () => {
  const bytes = randomBytes(PART + 10);
  const digest = await user.put('acme', bytes);
  await assert.rejects(user.get('acme', digest, 10), { code: 'unverifiable' });
  const options = { timeoutMs: 5000 };
  await request(executor.nats, `hb.blobs.acme.${digest}.1`, Buffer.from('0123456789'), options);
  await assert.rejects(node.get('acme', digest), { code: 'unverifiable' });
  await user.put('acme', bytes);
  assert.ok(bytes.equals(await node.get('acme', digest)));
  await assert.rejects(node.get('acme', sha256(Buffer.from('never'))), { code: 'not_found' });
  await assert.rejects(node.get('acme', '../x'), { code: 'bad_request' });
});

test('values - small ones stay, large ones come back as they were, larger ones are refused', async () => {
  const text = JSON.stringify('ä'.repeat(500_000));
  assert.deepEqual(await storeValue(node, 'acme', '"small"'), { value: '"small"' });
  const stored = await storeValue(node, 'acme', text);
  assert.ok(stored.value === null);
  assert.equal(stored.value_ref.size, Buffer.byteLength(text));
  assert.equal(await fetchValue(reader, 'acme', stored.value_ref), text);
  const gone = { blob: 'a'.repeat(64), size: 70_000 };
  await assert.rejects(fetchValue(reader, 'acme', gone), {
    code: 'not_found',
    message: /^the value of 70000 bytes is gone/,
  });
  const huge = 'x'.repeat(16 * 1024 * 1024 + 1);
  await assert.rejects(storeValue(node, 'acme', huge), { code: 'too_large' });
});
