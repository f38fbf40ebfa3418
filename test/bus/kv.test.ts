/**
 * Buckets, queues and blobs against a real server. Keys are escaped by one function, tested by property;
 * everything that may be lost on the way is lost once, by killing the server or cutting the connection.
 */
import assert from 'node:assert/strict';
import { createHash, randomBytes } from 'node:crypto';
import { after, before, describe, it } from 'node:test';
import fc from 'fast-check';
import { RevisionLost, type KvEntry, type QueueMessage } from '../../bus/bus.ts';
import { publishAcked } from '../../bus/jetstream.ts';
import { escapeKey, unescapeKey } from '../../bus/kv.ts';
import type { NatsBus } from '../../bus/nats.ts';
import { subjects } from '../../bus/subjects.ts';
import { controlBus, CONTEXT, nodeBus, serveConsumers, until } from './fixtures.ts';
import { startProxy } from './proxy.ts';
import { startRealBus, type RealBus } from './real-bus.ts';

let bus: RealBus;
let control: NatsBus;
let node: NatsBus;

before(async () => {
  bus = await startRealBus({ contexts: [CONTEXT] });
  control = await controlBus(bus);
  await control.admin.ensureBus();
  serveConsumers(control);
  node = await nodeBus(bus);
  await control.admin.ensureUserBucket(node.address);
});
after(() => bus.close());

describe('kv - keys', () => {
  it('are one token, another for every key, and read back', () => {
    fc.assert(
      fc.property(fc.string({ unit: 'binary' }), (text) => {
        const key = text.toWellFormed();
        const token = escapeKey(key);
        assert.match(token, /^(?:[A-Za-z0-9_-]|=[0-9a-f]{2})+$|^=$/);
        assert.equal(unescapeKey(token), key);
      }),
    );
    assert.equal(escapeKey(''), '=');
    assert.equal(escapeKey('a.b*c>d e'), 'a=2eb=2ac=3ed=20e');
    assert.equal(escapeKey('ü/€'), '=c3=bc=2f=e2=82=ac');
    for (const token of ['a=', '=2', '=2E', '=41', 'a.b', '=ff', '==']) {
      assert.equal(unescapeKey(token), undefined, token);
    }
  });
});

describe('kv - values', () => {
  it('are put, read, replaced by revision, deleted and listed', async () => {
    for (const [name, kv] of [
      ['control', control.kv('ledger_contexts')],
      ['node', node.kv(`user_${node.address}`)],
    ] as const) {
      assert.equal(await kv.get('none'), undefined, name);
      const first = await kv.put('a key', { v: 1 });
      const entry = await kv.get('a key');
      assert.deepEqual([entry?.key, entry?.value, entry?.revision], ['a key', { v: 1 }, first]);
      const second = await kv.update('a key', { v: 2 }, first);
      await assert.rejects(kv.update('a key', { v: 3 }, first), RevisionLost);
      await assert.rejects(kv.create('a key', {}), RevisionLost);
      await kv.put('', 'empty');
      await kv.put('a.b', null);
      assert.deepEqual(await kv.list(), ['', 'a key', 'a.b']);
      assert.deepEqual(await kv.list('a.'), ['a.b']);
      assert.equal((await kv.get('a.b'))?.value, null);
      await assert.rejects(kv.delete('a key', first), RevisionLost);
      await kv.delete('a key', second);
      assert.equal(await kv.get('a key'), undefined);
      assert.deepEqual(await kv.list(), ['', 'a.b']);
      await kv.create('a key', 'again');
      assert.equal((await kv.get('a key'))?.value, 'again');
    }
  });

  it('lists more keys than the server gives at once', async () => {
    const kv = control.kv('open_flows');
    await Promise.all(Array.from({ length: 1_200 }, (_, i) => kv.put(`k${i}`, i)));
    assert.equal((await kv.list()).length, 1_200);
    assert.equal((await kv.list('k11')).length, 111);
  });

  it('keeps the order of the writes of each key, however many travel together', async () => {
    const kv = control.kv('open_flows');
    const keys = Array.from({ length: 100 }, (_, i) => `turn${i}`);
    const writes = keys.flatMap((key) => [kv.put(key, 1), kv.delete(key), kv.put(key, 2)]);
    writes.push(...keys.slice(50).map((key) => kv.delete(key)));
    await Promise.all(writes);
    const left = await kv.list('turn');
    assert.deepEqual(left, keys.slice(0, 50).toSorted());
    for (const key of left) assert.equal((await kv.get(key))?.value, 2);
  });

  it('lets exactly one of twelve writers update a revision', async () => {
    const kv = control.kv('roster');
    const revision = await kv.put('race', 0);
    const results = await Promise.allSettled(
      Array.from({ length: 12 }, (_, i) => kv.update('race', i, revision)),
    );
    assert.equal(results.filter(({ status }) => status === 'fulfilled').length, 1);
  });

  it('knows its own write when the acknowledgement was lost', async () => {
    const proxy = await startProxy(bus.server.url);
    bus.onClose(() => proxy.close());
    const opened = await nodeBus(bus, undefined, proxy.url);
    await control.admin.ensureUserBucket(opened.address);
    const kv = opened.kv(`user_${opened.address}`);
    const revision = await kv.put('k', 1);
    proxy.muteServer();
    const updating = kv.update('k', 2, revision);
    const own = `$JS.API.DIRECT.GET.KV_user_${opened.address}.$KV.user_${opened.address}.k`;
    for (let seen = revision; seen === revision; ) {
      const reply = await control.nats.request(own, '');
      seen = Number(reply.headers?.get('Nats-Sequence'));
    }
    proxy.cut();
    assert.equal((await kv.get('k'))?.revision, await updating);
    assert.equal((await kv.get('k'))?.value, 2);
    await opened.close();
  });

  it('watches everything there is, then every change, also across a server kill', async () => {
    const kv = control.kv('roster');
    await kv.put('before', 1);
    const told = new Map<string, KvEntry | undefined>();
    let count = 0;
    const watch = await node.kv('roster').watch((key, entry) => {
      told.set(key, entry);
      count++;
    });
    assert.deepEqual(told.get('before')?.value, 1);
    const asked = count;
    await kv.put('live', 2);
    await until(() => told.get('live')?.value === 2, 'a change is told');
    await kv.delete('before');
    await until(() => told.has('before') && told.get('before') === undefined, 'a deletion is told');
    assert.equal(count, asked + 2);
    const pid = bus.server.pid();
    if (pid !== undefined) process.kill(pid, 'SIGKILL');
    await kv.put('live', 3);
    await until(() => told.get('live')?.value === 3, 'what was missed is told');
    assert.ok(!told.has('never'));
    watch.stop();
  });
});

describe('queues', () => {
  it('never hand out more than is free, and hand out everything once it is settled', async () => {
    const held: QueueMessage[] = [];
    let most = 0;
    const seen = new Set<number>();
    const consumption = await node.queues.consume(
      { queue: 'jobs', context: CONTEXT, class: 'process' },
      { inFlight: 3 },
      async (message) => {
        held.push(message);
        seen.add(message.seq);
        most = Math.max(most, held.length);
        await new Promise((resolve) => setTimeout(resolve, 2));
        held.splice(held.indexOf(message), 1);
        message.ack();
      },
    );
    const subject = subjects.jobs(CONTEXT, 'process', node.address);
    await Promise.all(Array.from({ length: 40 }, (_, i) => control.queues.publish(subject, { i })));
    await until(() => seen.size === 40 && held.length === 0, 'all are handled');
    assert.ok(most <= 3, `${most} at a time`);
    await consumption.stop();
  });

  it('nak when the handler throws, and deliver again until it does not', async () => {
    const deliveries: number[] = [];
    const consumption = await node.queues.consume(
      { queue: 'assign' },
      { inFlight: 1 },
      async (message) => {
        deliveries.push(message.deliveries);
        if (message.deliveries < 3) throw new Error('not yet');
        message.ack();
      },
    );
    await control.queues.publish(subjects.assign(node.address), { v: 1 });
    await until(() => deliveries.length === 3, 'the third delivery');
    assert.deepEqual(deliveries, [1, 2, 3]);
    await consumption.stop();
  });

  it('go on when the server was killed in between', async () => {
    const seen: string[] = [];
    const consumption = await control.queues.consume(
      { queue: 'deploy' },
      { inFlight: 2 },
      async (message) => {
        seen.push(Buffer.from(message.data).toString());
        message.ack();
      },
    );
    await control.queues.publishBytes(subjects.deploy(CONTEXT), Buffer.from('one'));
    await until(() => seen.includes('one'), 'the first');
    const pid = bus.server.pid();
    if (pid !== undefined) process.kill(pid, 'SIGKILL');
    await control.queues.publishBytes(subjects.deploy(CONTEXT), Buffer.from('two'));
    await until(() => seen.includes('two'), 'the second');
    await consumption.stop();
  });

  it('are refused to who is not the control plane', async () => {
    const consuming = node.queues.consume({ queue: 'deploy' }, { inFlight: 1 }, async () => {});
    await assert.rejects(consuming, { code: 'not_allowed' });
    await assert.rejects(node.queues.publishBytes('hb.deploy.acme', Buffer.from('x')), {
      code: 'not_allowed',
    });
  });
});

describe('blobs', () => {
  it('come back as they were put, by their digest, for both kinds', async () => {
    for (const size of [0, 1, 700_000, 3_000_000]) {
      const bytes = randomBytes(size);
      const digest = await node.blobs.put(CONTEXT, bytes);
      assert.equal(digest, createHash('sha256').update(bytes).digest('hex'));
      assert.equal(await control.blobs.put(CONTEXT, bytes), digest);
      assert.ok(bytes.equals(Buffer.from(await control.blobs.get(CONTEXT, digest))));
      assert.ok(bytes.equals(Buffer.from(await node.blobs.get(CONTEXT, digest))));
    }
  });

  it('are refused when a part is missing, changed or never was', async () => {
    const digest = await control.blobs.put(CONTEXT, randomBytes(600_000));
    const part = `hb.blobs.${CONTEXT}.${digest}.1`;
    await publishAcked(control.nats, part, Buffer.from('other'), { timeoutMs: 5_000 });
    await assert.rejects(node.blobs.get(CONTEXT, digest), { code: 'unverifiable' });
    await assert.rejects(node.blobs.get(CONTEXT, 'f'.repeat(64)), { code: 'not_found' });
    await assert.rejects(node.blobs.get(CONTEXT, '../x'), { code: 'bad_request' });
  });
});

describe('bus time', () => {
  it('is the server’s, never goes back, and is the same for all', async () => {
    const readings = Array.from({ length: 1_000 }, () => node.now());
    assert.deepEqual(
      readings,
      readings.toSorted((a, b) => a - b),
    );
    assert.ok(Math.abs(node.now() - control.now()) < 500);
  });
});
