/**
 * What each kind of principal may not do, tried one by one against a real server; and that what it may do
 * works. Method: every forbidden act runs on a raw connection with the credentials of its kind; a publish
 * is refused when the server says so, and nothing arrives where it was meant to.
 */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { connect as tcpConnect } from 'node:net';
import { after, before, describe, it } from 'node:test';
import type { NatsConnection } from '@nats-io/transport-node';
import { connect as natsConnect, credsAuthenticator } from '@nats-io/transport-node';
import { authenticator, connect, parseCreds, type Connection } from '../../bus/connect.ts';
import { callerOf, inboxPrefix } from '../../bus/credentials.ts';
import { newIdentity, type Identity } from '../../bus/identity.ts';
import { callApi, request } from '../../bus/jetstream.ts';
import type { NatsBus } from '../../bus/nats.ts';
import { bucketDefinition, ensureContext, ensureStream } from '../../bus/streams.ts';
import { controlBus, newFlow, nodeBus } from './fixtures.ts';
import { startRealBus, type RealBus } from './real-bus.ts';

let bus: RealBus;
let control: NatsBus;
const alice = newIdentity();
const bob = newIdentity();
const node = newIdentity();
const other = newIdentity();
let asAlice: Connection;
let asNode: Connection;

before(async () => {
  bus = await startRealBus({ contexts: ['acme', 'rival'] });
  control = await controlBus(bus);
  await control.admin.ensureUserBucket(alice.address);
  await control.admin.ensureUserBucket(bob.address);
  asAlice = await bus.asUser(alice, { executes: ['acme'], reads: [] });
  asNode = await bus.asNode(node, { contexts: ['acme'], classes: ['process'] });
  await makeQueue('JOBS_acme', `process_${node.address}`, `hb.jobs.acme.process.${node.address}`);
  await makeQueue('JOBS_rival', 'process_x', 'hb.jobs.rival.process.x');
});
after(() => bus.close());

function makeQueue(stream: string, consumer: string, filter: string) {
  return control.admin.queue({ stream, consumer, filter });
}

/** `refused` when the server calls it a permissions violation; what came back otherwise. */
async function tryRequest(nats: NatsConnection, subject: string, body: string): Promise<string> {
  try {
    const reply = await request(nats, subject, body, { timeoutMs: 700 });
    return `answered: ${reply.string().slice(0, 80)}`;
  } catch (error) {
    const { code, message } = error as { code?: string; message: string };
    return code === 'not_allowed' ? 'refused' : `failed: ${message}`;
  }
}

async function trySubscribe(nats: NatsConnection, subject: string): Promise<string> {
  return new Promise((resolve) => {
    const subscription = nats.subscribe(subject, {
      callback: (error) => resolve(error ? 'refused' : 'message'),
    });
    void nats.flush().then(() => {
      subscription.unsubscribe();
      setImmediate(() => resolve('allowed'));
    });
  });
}

describe('credentials - what a user may not do', () => {
  const flow = newFlow().flow;
  const forbidden = (): [string, string][] => [
    ['hb.deploy.rival', '{}'],
    [`hb.flow.acme.${flow}.main.${alice.address}.deploy`, '{}'],
    [`hb.flow.acme.${flow}.run.${alice.address}.p1`, '{}'],
    [`hb.flow.acme.${flow}.claim.p1.${alice.address}`, '{}'],
    [`hb.stored.acme.${flow}.main.${alice.address}.end`, '{}'],
    [`hb.assign.${node.address}`, '{}'],
    [`hb.jobs.acme.process.${node.address}`, '{}'],
    [`hb.logs.acme.${flow}.0`, '{}'],
    [`hb.beat.${alice.address}`, '{}'],
    [`hb.at.${node.address}.supervisor.drain`, '{}'],
    [`hb.refused.acme.${flow}`, '{}'],
    [`$KV.user_${bob.address}.k`, '1'],
    ['$KV.roster.x', '1'],
    ['$KV.ledger_contexts.acme', '{}'],
    ['$KV.open_flows.x', '1'],
    [`$JS.API.DIRECT.GET.KV_user_${bob.address}.$KV.user_${bob.address}.k`, ''],
    ['$JS.API.DIRECT.GET.KV_ledger_contexts.$KV.ledger_contexts.acme', ''],
    ['$JS.API.DIRECT.GET.HB_FLOW.hb.flow.rival.>', ''],
    ['$JS.API.DIRECT.GET.HB_FLOW', '{"seq":1}'],
    ['$JS.API.STREAM.INFO.HB_FLOW', ''],
    ['$JS.API.STREAM.MSG.GET.HB_FLOW', '{"seq":1}'],
    ['$JS.API.STREAM.PURGE.HB_FLOW', ''],
    ['$JS.API.STREAM.DELETE.HB_FLOW', ''],
    ['$JS.API.STREAM.UPDATE.HB_FLOW', '{}'],
    ['$JS.API.STREAM.CREATE.MINE', '{"name":"MINE","subjects":["mine"]}'],
    ['$JS.API.STREAM.NAMES', ''],
    [`$JS.API.STREAM.PURGE.KV_user_${alice.address}`, ''],
    ['$JS.API.CONSUMER.CREATE.HB_FLOW.x.hb.flow.acme.>', '{}'],
    ['$JS.API.CONSUMER.CREATE.HB_FLOW', '{}'],
    ['$JS.API.CONSUMER.DURABLE.CREATE.HB_FLOW.x', '{}'],
    [`$JS.API.CONSUMER.CREATE.KV_user_${alice.address}.x.>`, '{}'],
    ['$JS.API.CONSUMER.NAMES.HB_FLOW', ''],
    ['$JS.API.CONSUMER.DELETE.HB_DEPLOY.coord', ''],
    ['$JS.API.CONSUMER.MSG.NEXT.HB_DEPLOY.coord', '1'],
    [`$JS.API.CONSUMER.MSG.NEXT.JOBS_acme.process_${node.address}`, '1'],
    ['$JS.ACK.HB_DEPLOY.coord.1.1.1.1.0', '+TERM'],
    ['$SYS.REQ.SERVER.PING', ''],
    ['$SYS.REQ.CLAIMS.UPDATE', 'x'],
    [`_INBOX_${bob.principal}.x`, '{}'],
    ['_INBOX.x', '{}'],
    ['_R_.x.y', '{}'],
    ['anything', ''],
  ];

  it('publishes and asks nowhere but where it may', async () => {
    const acts = forbidden();
    const spy = control.nats.subscribe('>');
    const arrived = new Set<string>();
    const watching = (async () => {
      for await (const message of spy) arrived.add(message.subject);
    })();
    await control.nats.flush();
    for (const [subject, body] of acts) {
      assert.equal(await tryRequest(asAlice.nats, subject, body), 'refused', subject);
    }
    await control.nats.flush();
    for (const [subject] of acts) assert.ok(!arrived.has(subject), `${subject} arrived`);
    spy.unsubscribe();
    await watching;
    assert.ok(acts.length >= 40);
  });

  it('listens nowhere but where it may', async () => {
    const forbiddenSubjects = [
      '>',
      'hb.>',
      'hb.deploy.>',
      'hb.flow.acme.>',
      'hb.stored.>',
      'hb.stored.rival.>',
      'hb.logs.rival.>',
      'hb.refused.rival.>',
      'hb.ledger.>',
      'hb.beat.>',
      `$KV.user_${alice.address}.>`,
      '$KV.>',
      '$JS.>',
      '$SYS.>',
      `_INBOX_${bob.principal}.>`,
      `_INBOX_C.${control.principal}.>`,
      '_INBOX_C.>',
    ];
    for (const subject of forbiddenSubjects) {
      assert.equal(await trySubscribe(asAlice.nats, subject), 'refused', subject);
    }
    for (const subject of ['hb.stored.acme.>', 'hb.logs.acme.>', 'hb.refused.acme.*', '_INBOX.>']) {
      assert.equal(await trySubscribe(asAlice.nats, subject), 'allowed', subject);
    }
  });

  it('deploys to its context, also with a client that knows nothing of herobus', async () => {
    const jwt = await bus.issuer.user(alice.principal, { executes: ['acme'], reads: [] });
    const text = `-----BEGIN NATS USER JWT-----\n${jwt}\n------END NATS USER JWT------\n\n-----BEGIN USER NKEY SEED-----\n${alice.seedText()}\n------END USER NKEY SEED------\n`;
    assert.deepEqual(parseCreds(text), { jwt, seed: alice.seedText() });
    const plain = await natsConnect({
      servers: bus.server.url,
      authenticator: credsAuthenticator(Buffer.from(text)),
    });
    const ack = JSON.parse((await plain.request('hb.deploy.acme', 'x')).string()) as object;
    assert.equal((ack as { stream: string }).stream, 'HB_DEPLOY');
    await plain.close();
  });
});

describe('credentials - what a node may not do', () => {
  it('writes only under its own address', async () => {
    const { flow } = newFlow();
    const forbidden: [string, string][] = [
      [`hb.flow.acme.${flow}.main.${other.address}.end`, '{}'],
      [`hb.flow.acme.${flow}.claim.p1.${other.address}`, '{}'],
      [`hb.flow.acme.${flow}.run.${other.address}.p1`, '{}'],
      [`hb.stored.acme.${flow}.main.${node.address}.end`, '{}'],
      ['hb.deploy.acme', '{}'],
      [`hb.refused.acme.${flow}`, '{}'],
      [`hb.assign.${node.address}`, '{}'],
      [`hb.beat.${other.address}`, '{}'],
      [`hb.at.${other.address}.runner.kill`, '{}'],
      ['hb.blobs.rival.x', '{}'],
      ['$KV.roster.x', '{}'],
      ['$KV.open_flows.x', '{}'],
      ['$KV.ledger_contexts.acme', '{}'],
      ['$KV.ledger_principals.x', '{}'],
      ['hb.kv.roster.x', '{}'],
      ['$JS.API.DIRECT.GET.KV_ledger_tokens.$KV.ledger_tokens.x', ''],
      ['$JS.API.DIRECT.GET.HB_FLOW', '{"seq":1}'],
      ['$JS.API.DIRECT.GET.HB_DEPLOY', '{"seq":1}'],
      ['$JS.API.STREAM.INFO.HB_FLOW', ''],
      ['$JS.API.STREAM.INFO.KV_ledger_principals', ''],
      ['$JS.API.STREAM.PURGE.HB_FLOW', ''],
      ['$JS.API.CONSUMER.CREATE.HB_FLOW.x.hb.flow.>', '{}'],
      ['$JS.API.CONSUMER.CREATE.JOBS_acme.x.hb.jobs.acme.>', '{}'],
      ['$JS.API.CONSUMER.MSG.NEXT.JOBS_rival.process_x', '1'],
      [`$JS.API.CONSUMER.MSG.NEXT.JOBS_acme.process_${other.address}`, '1'],
      [`$JS.API.CONSUMER.MSG.NEXT.JOBS_acme.*`, '1'],
      [`$JS.API.CONSUMER.MSG.NEXT.HB_ASSIGN.${other.address}`, '1'],
      ['$JS.API.CONSUMER.MSG.NEXT.HB_DEPLOY.coord', '1'],
      [`$JS.ACK.JOBS_acme.process_${other.address}.1.1.1.1.0`, '+TERM'],
      [`_INBOX_${bob.principal}.x`, '{}'],
      ['$SYS.REQ.SERVER.PING', ''],
    ];
    for (const [subject, body] of forbidden) {
      assert.equal(await tryRequest(asNode.nats, subject, body), 'refused', subject);
    }
    for (const subject of ['>', 'hb.flow.>', 'hb.deploy.>', 'hb.ledger.>', '_INBOX.>', '$KV.>']) {
      assert.equal(await trySubscribe(asNode.nats, subject), 'refused', subject);
    }
    assert.equal(await trySubscribe(asNode.nats, 'hb.stored.>'), 'allowed');
  });

  it('cannot be made to write elsewhere by the reply subject of a request', async () => {
    const target = await nodeBus(bus);
    const subject = `hb.at.${target.address}.supervisor.describe`;
    target.subscribe(subject, (message) => message.reply?.({ ok: true }));
    await target.nats.flush();
    const answered = await control.request(subject, {});
    assert.deepEqual(answered, { ok: true });
    const victim = '$KV.ledger_contexts.acme';
    const spy = control.nats.subscribe(victim, { max: 1 });
    control.nats.publish(subject, '{}', { reply: victim });
    await control.nats.flush();
    await target.nats.flush();
    await control.nats.flush();
    assert.equal(spy.getReceived(), 0);
    spy.unsubscribe();
  });
});

describe('credentials - answers as a weapon', () => {
  it('cannot have an answer or an acknowledgement stored among the ledger records', async () => {
    await control.admin.ensureBus();
    const contexts = control.kv('ledger_contexts');
    const revision = await contexts.put('acme', { good: true });
    const serving = control.subscribe('hb.ledger.*', (message) => message.reply?.({ ok: {} }));
    await control.request('hb.ledger.ready', {});
    for (const subject of ['hb.ledger.x', 'hb.deploy.acme', `$KV.user_${alice.address}.k`]) {
      asAlice.nats.publish(subject, '{}', { reply: '$KV.ledger_contexts.acme' });
    }
    await request(asAlice.nats, 'hb.ledger.x', '{}', { timeoutMs: 2_000 });
    await request(asAlice.nats, 'hb.deploy.acme', '{}', { timeoutMs: 2_000 });
    const entry = await contexts.get('acme');
    assert.deepEqual([entry?.value, entry?.revision], [{ good: true }, revision]);
    serving.stop();
    const plain = await nodeBus(bus);
    assert.throws(() => plain.kv('ledger_contexts'), { code: 'not_allowed' });
  });
});

describe('credentials - who asks the ledger', () => {
  it('is named by the server, whatever the caller claims', async () => {
    const asked: { caller: string | undefined; subject: string }[] = [];
    const serving = control.subscribe('hb.ledger.*', (message) => {
      asked.push({ caller: message.caller, subject: message.subject });
      message.reply?.({ ok: { caller: message.caller ?? null } });
    });
    await new Promise((resolve) => setImmediate(resolve));
    await waitForLedger();
    const honest = await request(asAlice.nats, 'hb.ledger.x', '{}', { timeoutMs: 2_000 });
    assert.deepEqual(JSON.parse(honest.string()), { ok: { caller: alice.principal } });
    const forged = await request(asAlice.nats, 'hb.ledger.x', '{}', {
      timeoutMs: 2_000,
      headers: { 'Nats-Request-Info': JSON.stringify({ user: bob.principal, jwt: 'a.b.c' }) },
    });
    assert.deepEqual(JSON.parse(forged.string()), { ok: { caller: alice.principal } });
    // In CONNECT a client may call itself what it likes: the server's `user` field believes it.
    await connectAs(alice, bob.principal);
    const last = asked.at(-1);
    assert.deepEqual(last, { caller: alice.principal, subject: 'hb.ledger.forged' });
    serving.stop();
  });

  async function waitForLedger(): Promise<void> {
    await control.request('hb.ledger.ready', {});
  }

  /** A raw client that admits itself with one key and names another in CONNECT. */
  async function connectAs(identity: Identity, claimed: string): Promise<void> {
    const jwt = await bus.issuer.user(identity.principal, { executes: [], reads: [] });
    const { hostname, port } = new URL(bus.server.url);
    const socket = tcpConnect(Number(port), hostname);
    bus.onClose(async () => socket.destroy());
    const [hello] = (await once(socket, 'data')) as [Buffer];
    const { nonce } = JSON.parse(hello.toString().slice(5).split('\r\n')[0] ?? '') as {
      nonce: string;
    };
    const sig = Buffer.from(identity.sign(Buffer.from(nonce))).toString('base64url');
    const options = { jwt, sig, nkey: claimed, user: claimed, name: claimed, verbose: false };
    socket.write(`CONNECT ${JSON.stringify({ ...options, headers: true, protocol: 1 })}\r\n`);
    socket.write('SUB _INBOX.forged 1\r\nPUB hb.ledger.forged _INBOX.forged 2\r\n{}\r\n');
    let text = '';
    for await (const data of socket) {
      text += String(data);
      if (text.includes('"ok"')) break;
    }
    socket.destroy();
  }

  it('reads the caller from the token the server admitted, and from nothing else', () => {
    const token = (sub: unknown) =>
      `h.${Buffer.from(JSON.stringify({ sub })).toString('base64url')}.s`;
    const info = (jwt: unknown) => JSON.stringify({ user: bob.principal, jwt });
    assert.equal(callerOf([info(token(alice.principal))]), alice.principal);
    assert.equal(callerOf([]), undefined);
    assert.equal(callerOf([info(token(alice.principal)), info(token(bob.principal))]), undefined);
    assert.equal(callerOf([info(token('x'))]), undefined);
    assert.equal(callerOf([info(7)]), undefined);
    assert.equal(callerOf(['{']), undefined);
  });

  it('may be anybody with the join credentials, who can do nothing else', async () => {
    const { jwt, seed } = parseCreds(await bus.issuer.joinCreds());
    assert.match(seed, /^SU/);
    // A bearer token needs no signature: the seed is in the file only because clients want one.
    const joining = await natsConnect({ servers: bus.server.url, authenticator: () => ({ jwt }) });
    // Without any credentials the server gives a client the same token.
    const guest = await natsConnect({ servers: bus.server.url, user: bob.principal });
    const serving = control.subscribe('hb.ledger.*', (message) =>
      message.reply?.({ ok: message.caller }),
    );
    await waitForLedger();
    for (const nats of [joining, guest]) {
      for (const verb of ['challenge', 'register']) {
        const reply = await nats.request(`hb.ledger.${verb}`, '{}');
        assert.deepEqual(JSON.parse(reply.string()), { ok: bus.keys.join.public });
      }
      for (const subject of ['hb.ledger.follow', 'hb.deploy.acme', '$JS.API.STREAM.INFO.HB_FLOW']) {
        assert.equal(await tryRequest(nats, subject, '{}'), 'refused', subject);
      }
      await nats.close();
    }
    serving.stop();
  });
});

describe('credentials - tokens', () => {
  it('refuses a token with another seed, of another signer, or past its time', async () => {
    const foreign = await startRealBus();
    bus.onClose(() => foreign.close());
    const rights = { executes: ['acme'], reads: [] };
    const good = await bus.issuer.user(alice.principal, rights);
    const bad: [string, string, Identity][] = [
      ['another seed', good, bob],
      ['another signer', await foreign.issuer.user(alice.principal, rights), alice],
      [
        'expired',
        await bus.issuer.user(alice.principal, rights, {
          expiresAt: Math.floor(Date.now() / 1000) - 5,
        }),
        alice,
      ],
    ];
    for (const [name, jwt, key] of bad) {
      const connecting = connect({
        server: bus.server.url,
        as: { key, jwt: () => jwt },
        inboxPrefix: inboxPrefix('user', key.principal),
      });
      await assert.rejects(connecting, { code: 'not_allowed' }, name);
    }
  });

  it('goes on with a renewed token when the old one expires', async () => {
    const rights = { executes: ['acme'], reads: [] };
    const expiresAt = Math.floor(Date.now() / 1000) + 2;
    let jwt = await bus.issuer.user(alice.principal, rights, { expiresAt });
    const connection = await connect({
      server: bus.server.url,
      as: { key: alice, jwt: () => jwt },
      inboxPrefix: inboxPrefix('user', alice.principal),
    });
    bus.onClose(() => connection.close());
    const states: boolean[] = [];
    const back = new Promise<void>((resolve) => {
      connection.link.onChange(({ up }) => {
        states.push(up);
        if (up) resolve();
      });
    });
    jwt = await bus.issuer.user(alice.principal, rights);
    await back;
    assert.deepEqual(states, [false, true]);
    const ack = await request(connection.nats, 'hb.deploy.acme', 'x', { timeoutMs: 2_000 });
    assert.match(ack.string(), /HB_DEPLOY/);
  });

  it('signs a nonce, and nothing that could be something else', () => {
    const sign = authenticator(alice, () => 'jwt');
    const { sig } = sign('abcdefghijklmno') as { sig: string };
    const expected = alice.sign(Buffer.from('abcdefghijklmno'));
    assert.equal(sig, Buffer.from(expected).toString('base64url'));
    for (const nonce of ['DSSEv1 1 a 1 b', 'short', '', 'x'.repeat(65), 'abcdefghijklmno\n']) {
      assert.throws(() => sign(nonce), { code: 'not_allowed' }, nonce);
    }
  });

  it('carries hundreds of rights in one token', async () => {
    const contexts = Array.from({ length: 40 }, (_, i) => `context-${i}`);
    const wide = newIdentity();
    const connection = await bus.asUser(wide, { executes: contexts, reads: [] });
    const reply = await tryRequest(connection.nats, 'hb.deploy.context-39', 'x');
    assert.match(reply, /HB_DEPLOY/);
  });
});

describe('streams - made once', () => {
  it('changes nothing when asked again, and what this page changed when it did', async () => {
    await ensureContext(control.nats, 'acme', 'fsync');
    await control.admin.ensureBus();
    const wanted = bucketDefinition('user_00', 'fsync');
    await ensureStream(control.nats, wanted);
    await ensureStream(control.nats, { ...wanted, max_bytes: 1_000_000 });
    const info = await callApi(control.nats, 'STREAM.INFO.KV_user_00', {}, 2_000);
    const { max_bytes, allow_direct } = info['config'] as Record<string, unknown>;
    assert.deepEqual({ max_bytes, allow_direct }, { max_bytes: 1_000_000, allow_direct: true });
    await assert.rejects(ensureStream(control.nats, { ...wanted, storage: 'memory' }), /storage/);
  });
});
