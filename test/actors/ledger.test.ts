/** The ledger against a bus in memory: who gets in, who may change what, and what no message can do. */
import assert from 'node:assert/strict';
import { createHash, randomBytes } from 'node:crypto';
import { test } from 'node:test';
import { seal } from '../../bus/envelope.ts';
import { newIdentity, type Identity } from '../../bus/identity.ts';
import { directoryOf, startTestLedger, type TestLedger } from './test-ledger.ts';
import { startLedger } from '../../actors/ledger/ledger.ts';
import { VERBS } from '../../actors/ledger/handlers.ts';
import { FOLLOWERS_MAX } from '../../actors/ledger/followers.ts';
import { NONCE_TTL_MS } from '../../actors/ledger/proofs.ts';
import { LEDGER_PAYLOAD_TYPE, REGISTER_PAYLOAD_TYPE } from '../../schemas/ledger.ts';
import { MemoryBus, MemoryNet } from './memory-bus.ts';

const json = (value: object) => Buffer.from(JSON.stringify(value));
const JOINING = undefined;

test('a key that signs its nonce is registered, and again at each asking', async () => {
  const ledger = await startTestLedger();
  const user = newIdentity();
  const first = await ledger.register(user, 'user');
  assert.deepEqual(first, {
    ok: {
      status: 'registered',
      jwt: `jwt.user.${user.principal}.1`,
      address: user.address,
    },
  });
  const again = await ledger.register(user, 'user');
  assert.equal(again.ok?.['jwt'], `jwt.user.${user.principal}.2`);
  const revision = ledger.directory.revision();
  await ledger.register(user, 'user');
  assert.equal(ledger.directory.revision(), revision, 'registering again writes nothing');
  const asNode = await ledger.register(user, 'node');
  assert.equal(asNode.ok?.['status'], 'registered');
  assert.equal(ledger.directory.nodeAt(user.address)?.principal, user.principal);
  assert.deepEqual(ledger.provisioned, ['default', user.address], 'each made once');
});

test('a nonce proves its own principal, once, for a minute', async () => {
  const ledger = await startTestLedger();
  const [user, other] = [newIdentity(), newIdentity()];
  const proof = await ledger.proof(user, 'user');
  assert.ok((await ledger.ask('register', proof, JOINING)).ok);
  assert.equal(await ledger.code('register', proof, JOINING), 'expired');

  const foreign = await ledger.nonce(other);
  assert.equal(
    await ledger.code('register', ledger.seal(user, 'user', foreign), JOINING),
    'not_allowed',
  );
  const made = randomBytes(40).toString('base64');
  assert.equal(
    await ledger.code('register', ledger.seal(user, 'user', made), JOINING),
    'not_allowed',
  );
  assert.equal(
    await ledger.code('register', ledger.seal(user, 'user', ''), JOINING),
    'not_allowed',
  );

  const late = await ledger.proof(user, 'user');
  ledger.monotonicMs += NONCE_TTL_MS;
  assert.equal(await ledger.code('register', late, JOINING), 'expired');
  ledger.net.nowMs += 10 * 365 * 24 * 3600 * 1000;
  assert.ok((await ledger.register(user, 'user')).ok, 'the wall clock has no part in it');
});

test('nobody registers with the signature of another, or under another type', async () => {
  const ledger = await startTestLedger();
  const [user, thief] = [newIdentity(), newIdentity()];
  const nonce = await ledger.nonce(user);
  const payload = json({
    v: 1,
    principal: user.principal,
    nonce,
    kind: 'user',
    name: 'x',
    token: null,
  });
  const stolen = seal(payload, REGISTER_PAYLOAD_TYPE, [thief]);
  assert.equal(await ledger.code('register', stolen, JOINING), 'bad_signature');
  const mistyped = seal(payload, LEDGER_PAYLOAD_TYPE, [user]);
  assert.equal(await ledger.code('register', mistyped, JOINING), 'bad_envelope');
  const bytes = seal(payload, REGISTER_PAYLOAD_TYPE, [user]);
  for (let i = 0; i < bytes.length; i += 7) {
    const changed = Buffer.from(bytes);
    changed[i] = (changed[i] ?? 0) ^ 1;
    assert.ok((await ledger.ask('register', changed, JOINING)).error, `byte ${i} changed`);
  }
  assert.ok((await ledger.ask('register', bytes, JOINING)).ok, 'none of these spent the nonce');
  assert.equal(ledger.directory.principal(thief.principal), undefined);
});

test('where the ledger is not open, a token or an admin decides', async () => {
  const ledger = await startTestLedger({
    admission: { open: false, redeem: (token) => token === 'good' },
  });
  const [node, other, invited] = [newIdentity(), newIdentity(), newIdentity()];
  assert.deepEqual(await ledger.register(node, 'node'), { ok: { status: 'pending' } });
  assert.deepEqual(await ledger.register(node, 'node'), { ok: { status: 'pending' } });
  assert.equal(ledger.directory.nodeAt(node.address), undefined);
  assert.equal(await ledger.code('contexts', json({}), node.principal), 'not_allowed');
  assert.equal((await ledger.register(invited, 'node', 'good')).ok?.['status'], 'registered');
  assert.equal((await ledger.register(other, 'node', 'bad')).ok?.['status'], 'pending');

  const approve = { change: 'principal_approve', principal: node.principal, kind: 'node' };
  assert.equal(await ledger.changeCode(invited, approve), 'not_allowed');
  assert.equal((await ledger.change(ledger.home, approve)).ok?.['status'], 'registered');
  assert.equal((await ledger.register(node, 'node')).ok?.['status'], 'registered');
  assert.equal((await ledger.register(other, 'node')).ok?.['status'], 'pending');
});

test('a closed ledger stays closed; a token lets in as many keys as it says, for as long as it says', async () => {
  const ledger = await startTestLedger({ open: false });
  const create = (word: string, uses: number, ttl_ms: number) => ({
    change: 'token_create',
    hash: createHash('sha256').update(word).digest('hex'),
    uses,
    ttl_ms,
  });
  assert.ok((await ledger.change(ledger.home, create('three', 3, 60_000))).ok);
  const stored = [...ledger.net.buckets.values()].flatMap(({ entries }) => [...entries.values()]);
  assert.doesNotMatch(JSON.stringify(stored), /three/, 'only the hash is kept');
  const many = Array.from({ length: 8 }, () => newIdentity());
  const answers = await Promise.all(many.map((key) => ledger.register(key, 'node', 'three')));
  const statuses = answers.map(({ ok }) => ok?.['status']);
  assert.equal(statuses.filter((status) => status === 'registered').length, 3);
  const [in_, out] = ['registered', 'pending'].map(
    (status) => many[statuses.indexOf(status)] ?? newIdentity(),
  ) as [Identity, Identity];
  assert.equal((await ledger.register(in_, 'node', 'three')).ok?.['status'], 'registered');
  assert.equal((await ledger.register(out, 'node', 'three')).ok?.['status'], 'pending');
  assert.equal(await ledger.changeCode(in_, create('mine', 1, 60_000)), 'not_allowed');
  assert.equal(await ledger.changeCode(ledger.home, create('three', 9, 1)), 'bad_request');

  assert.ok((await ledger.change(ledger.home, create('brief', 5, 60_000))).ok);
  ledger.stop();
  const again = await startTestLedger({}, ledger.net, ledger.home);
  assert.equal((await again.register(newIdentity(), 'user')).ok?.['status'], 'pending');
  assert.equal((await again.register(newIdentity(), 'user', 'brief')).ok?.['status'], 'registered');
  ledger.net.nowMs += 61_000;
  assert.equal((await again.register(newIdentity(), 'user', 'brief')).ok?.['status'], 'pending');
  again.stop();
  const opened = await startTestLedger({ open: true }, ledger.net, ledger.home);
  assert.equal((await opened.register(newIdentity(), 'user')).ok?.['status'], 'registered');
});

test('a revoked principal is cut off and stays out until an admin lets it in', async () => {
  const ledger = await startTestLedger();
  const user = newIdentity();
  await ledger.register(user, 'user');
  const revoke = { change: 'principal_revoke', principal: user.principal, kind: 'user' };
  assert.ok((await ledger.change(ledger.home, revoke)).ok);
  assert.deepEqual(ledger.cut, [user.principal]);
  assert.equal(await ledger.code('contexts', json({}), user.principal), 'not_allowed');
  assert.equal((await ledger.register(user, 'user')).error?.code, 'not_allowed');
  const approve = { change: 'principal_approve', principal: user.principal, kind: 'user' };
  assert.ok((await ledger.change(ledger.home, approve)).ok);
  assert.equal((await ledger.register(user, 'user')).ok?.['status'], 'registered');
});

test('an admin drains a node and takes it back; a node that waits or is revoked cannot be drained', async () => {
  const ledger = await startTestLedger();
  const node = newIdentity();
  const order = (change: string) => ({ change, principal: node.principal, kind: 'node' });
  assert.equal(await ledger.changeCode(ledger.home, order('node_drain')), 'not_found');
  await ledger.register(node, 'node');
  assert.equal(await ledger.changeCode(node, order('node_drain')), 'not_allowed');
  const bytes = ledger.sealChange(ledger.home, order('node_drain'));
  assert.ok((await ledger.ask('change', bytes, undefined)).ok);
  const drain = ledger.directory.nodeAt(node.address)?.drain;
  assert.deepEqual([drain?.by, drain?.reason], [ledger.home.principal, 'a test']);
  assert.equal((await ledger.register(node, 'node')).ok?.['status'], 'registered');
  assert.ok(ledger.directory.nodeAt(node.address)?.drain, 'registering again lifts no order');
  assert.ok((await ledger.change(ledger.home, order('node_undrain'))).ok);
  assert.equal(ledger.directory.nodeAt(node.address)?.drain, null);
  assert.equal((await ledger.ask('change', bytes, undefined)).error?.code, 'expired');
  assert.ok((await ledger.change(ledger.home, order('principal_revoke'))).ok);
  assert.equal(await ledger.changeCode(ledger.home, order('node_drain')), 'not_allowed');
});

test('old bytes of a change change nothing again', async () => {
  const ledger = await startTestLedger();
  const user = newIdentity();
  const grant = {
    change: 'context_grant',
    context: 'default',
    principal: user.principal,
    role: 'reader',
  };
  const old = ledger.sealChange(ledger.home, grant);
  assert.ok((await ledger.ask('change', old, JOINING)).ok);
  assert.ok((await ledger.ask('change', old, JOINING)).ok, 'the last bytes are answered again');
  assert.ok((await ledger.change(ledger.home, { ...grant, change: 'context_revoke' })).ok);
  assert.equal(await ledger.code('change', old, JOINING), 'expired');
  assert.deepEqual(ledger.directory.context('default')?.readers, []);
  const ahead = ledger.sealChange(ledger.home, grant, ledger.net.nowMs + 3_600_000);
  assert.equal(await ledger.code('change', ahead, JOINING), 'not_yet_valid');
  assert.equal(
    ledger.net.bucket('ledger_grants').entries.size,
    2,
    'each change once in the history',
  );
});

test('a context belongs to its admins', async () => {
  const ledger = await startTestLedger();
  const [admin, user] = [newIdentity(), newIdentity()];
  for (const each of [admin, user]) await ledger.register(each, 'user');
  const create = { change: 'context_create', context: 'acme' };
  const grant = (principal: string, role: string) => ({
    change: 'context_grant',
    context: 'acme',
    principal,
    role,
  });
  assert.equal(await ledger.changeCode(user, create), 'not_allowed');
  assert.ok((await ledger.change(ledger.home, create)).ok);
  assert.equal(await ledger.changeCode(ledger.home, create), 'bad_request');
  assert.equal(await ledger.changeCode(user, grant(user.principal, 'admin')), 'not_allowed');
  assert.ok((await ledger.change(ledger.home, grant(admin.principal, 'admin'))).ok);
  const revokeHome = { ...grant(ledger.home.principal, 'admin'), change: 'context_revoke' };
  assert.ok((await ledger.change(admin, revokeHome)).ok);
  assert.equal(
    await ledger.changeCode(ledger.home, grant(user.principal, 'reader')),
    'not_allowed',
  );
  const revokeSelf = { ...grant(admin.principal, 'admin'), change: 'context_revoke' };
  assert.equal(await ledger.changeCode(admin, revokeSelf), 'bad_request');
  assert.ok((await ledger.change(admin, grant(user.principal, 'executor'))).ok);
  const policy = (m: number, required: string[] = []) => ({
    change: 'context_policy',
    context: 'acme',
    policy: { m, required },
  });
  assert.equal(await ledger.changeCode(admin, policy(3)), 'bad_request');
  assert.ok((await ledger.change(admin, policy(2, [user.principal]))).ok);
  const revokeSigner = { ...grant(user.principal, 'executor'), change: 'context_revoke' };
  assert.equal(await ledger.changeCode(admin, revokeSigner), 'bad_request');
  const typo = `${user.principal.slice(0, -1)}${user.principal.endsWith('A') ? 'B' : 'A'}`;
  assert.equal(await ledger.changeCode(admin, grant(typo, 'reader')), 'bad_request');
  assert.equal(
    await ledger.changeCode(admin, { ...grant(user.principal, 'reader'), context: 'none' }),
    'not_found',
  );
  const quota = { change: 'context_quota', context: 'acme', quotas: { open_flows: 7 } };
  assert.equal(await ledger.changeCode(user, quota), 'not_allowed', 'the tenant does not raise it');
  const limited = await ledger.change(ledger.home, quota);
  assert.match(JSON.stringify(limited.ok), /"open_flows":7/);
  const stranger = newIdentity();
  assert.equal(
    await ledger.changeCode(stranger, grant(stranger.principal, 'admin')),
    'unknown_signer',
  );
});

test('followers are for who may read, named so that nobody else can', async () => {
  const ledger = await startTestLedger();
  const [reader, stranger, node] = [newIdentity(), newIdentity(), newIdentity()];
  for (const each of [reader, stranger]) await ledger.register(each, 'user');
  await ledger.register(node, 'node');
  const grant = {
    change: 'context_grant',
    context: 'default',
    principal: reader.principal,
    role: 'reader',
  };
  await ledger.change(ledger.home, grant);
  const body = json({ context: 'default', flow: null, from: 7 });
  assert.equal(await ledger.code('follow', body, stranger.principal), 'not_allowed');
  assert.equal(await ledger.code('follow', body, JOINING), 'not_allowed');
  assert.equal(
    await ledger.code('follow', json({ context: 'none' }), node.principal),
    'not_allowed',
  );
  assert.equal(
    await ledger.code('context', json({ context: 'default' }), stranger.principal),
    'not_allowed',
  );
  const flow = 'a'.repeat(26);
  for (const [request, filter] of [
    [{ context: 'default', flow: null, from: 7 }, 'hb.flow.default.>'],
    [{ context: 'default', flow, from: 7 }, `hb.flow.default.${flow}.>`],
    [{ context: 'default', flow, from: 7, of: 'output' }, `hb.logs.default.${flow}.*`],
    [{ context: 'default', from: 7, of: 'refused' }, 'hb.refused.default.*'],
  ] as const) {
    const { ok } = await ledger.ask('follow', json(request), reader.principal);
    const made = ledger.followers.at(-1);
    assert.deepEqual([made?.filters, made?.from], [[filter], 7]);
    assert.deepEqual(ok, { stream: made?.stream, consumer: made?.consumer });
    assert.match(made?.consumer ?? '', /^f_[0-9a-f]{32}$/);
  }
  assert.ok((await ledger.ask('follow', body, node.principal)).ok);
  for (let i = 4; i < FOLLOWERS_MAX.user; i++) await ledger.ask('follow', body, reader.principal);
  assert.equal(await ledger.code('follow', body, reader.principal), 'quota');
  ledger.monotonicMs += 60_000;
  assert.ok((await ledger.ask('follow', body, reader.principal)).ok);
});

test('a node gets the queues of its own address and no others', async () => {
  const ledger = await startTestLedger();
  const [user, node] = [newIdentity(), newIdentity()];
  await ledger.register(user, 'user');
  await ledger.register(node, 'node');
  const jobs = json({ queue: 'jobs', context: 'default', class: 'process' });
  assert.equal(await ledger.code('queue', jobs, user.principal), 'not_allowed');
  assert.deepEqual(await ledger.ask('queue', jobs, node.principal), {
    ok: { stream: 'JOBS_default', consumer: `process_${node.address}` },
  });
  assert.deepEqual(await ledger.ask('queue', json({ queue: 'assign' }), node.principal), {
    ok: { stream: 'HB_ASSIGN', consumer: node.address },
  });
  assert.deepEqual(
    ledger.queues.map(({ filter, makeStream }) => [filter, makeStream]),
    [
      [`hb.jobs.default.process.${node.address}`, 'hb.jobs.default.*.*'],
      [`hb.assign.${node.address}`, null],
    ],
  );
  assert.equal(
    await ledger.code(
      'queue',
      json({ queue: 'jobs', context: 'none', class: 'process' }),
      node.principal,
    ),
    'not_found',
  );
});

test('lists: contexts by who asks, principals for admins in pages, nodes where a roster runs', async () => {
  const ledger = await startTestLedger();
  const [user, node] = [newIdentity(), newIdentity()];
  await ledger.register(user, 'user');
  await ledger.register(node, 'node');
  const names = async (caller: string) => {
    const { ok } = await ledger.ask('contexts', json({}), caller);
    const contexts = (ok?.['contexts'] ?? []) as { context: string }[];
    return contexts.map(({ context }) => context);
  };
  assert.deepEqual(await names(user.principal), []);
  assert.deepEqual(await names(node.principal), ['default']);
  const { ok } = await ledger.ask('contexts', json({}), node.principal);
  assert.deepEqual(ok?.['coords'], [ledger.home.address]);
  assert.equal(ok?.['revision'], ledger.directory.revision());
  assert.equal(await ledger.code('principals', json({}), user.principal), 'not_allowed');
  const seen = [];
  for (let after: string | null = null; ; ) {
    const page = (await ledger.ask('principals', json({ after, limit: 3 }), ledger.home.principal))
      .ok;
    seen.push(...(page?.['principals'] as { principal: string }[]));
    after = page?.['next'] as string | null;
    if (after === null) break;
  }
  assert.equal(seen.length, 4);
  assert.equal(await ledger.code('nodes', json({}), user.principal), 'unreachable');
  assert.equal(
    (await ledger.ask('renew', json({ kind: 'user' }), user.principal)).ok?.['status'],
    'registered',
  );
  assert.equal(
    await ledger.code('renew', json({ kind: 'node' }), user.principal),
    'unknown_signer',
  );
});

test('bootstrap is idempotent, and survives a restart of the ledger on the same buckets', async () => {
  const ledger = await startTestLedger();
  const before = ledger.directory.revision();
  await ledger.bootstrap();
  assert.equal(ledger.directory.revision(), before);
  const reopened = await directoryOf(ledger.net);
  assert.equal(reopened.revision(), before);
  assert.ok(reopened.hasRole(ledger.home.principal, 'admin'));
  assert.deepEqual(reopened.context('default')?.admins, [ledger.home.principal]);
  assert.deepEqual(reopened.coords(), [ledger.home.address]);
  assert.equal(reopened.principal(ledger.home.principal)?.kind, 'user');
});

test('two ledgers at once lose no change to each other', async () => {
  const ledger = await startTestLedger();
  const second = await startTestLedger({}, ledger.net, ledger.home);
  const users = Array.from({ length: 20 }, () => newIdentity());
  const sealed = users.map(({ principal }) =>
    ledger.sealChange(ledger.home, {
      change: 'context_grant',
      context: 'default',
      principal,
      role: 'reader',
    }),
  );
  for (const [i, bytes] of sealed.entries()) {
    const at: TestLedger = i % 2 === 0 ? ledger : second;
    assert.ok((await at.ask('change', bytes, JOINING)).ok);
  }
  assert.equal(ledger.directory.context('default')?.readers.length, 20);
  assert.equal(second.directory.context('default')?.readers.length, 20);
});

test('every verb of the table states who may ask it', () => {
  const classes = ['join', 'signed', 'principal', 'node', 'reader', 'admin'];
  for (const [name, verb] of Object.entries(VERBS)) {
    assert.ok(classes.includes(verb.auth), `${name} has no auth class`);
  }
  assert.deepEqual(
    Object.keys(VERBS).filter((name) => VERBS[name]?.auth === 'join'),
    ['challenge', 'register'],
  );
});

test('two hundred messages of garbage for each verb: refused one by one, and the ledger goes on', async () => {
  const ledger = await startTestLedger();
  const good = JSON.stringify({ context: 'default', flow: null, from: null });
  const garbage = (i: number): Uint8Array => {
    if (i % 5 === 0) return randomBytes(i * 3);
    if (i % 5 === 1) return Buffer.from(good.slice(0, i % good.length));
    if (i % 5 === 2) return Buffer.from('['.repeat(i * 50));
    if (i % 5 === 3) return json({ payload: 'AAAA', payloadType: 'x', signatures: [i] });
    return Buffer.from(`{"principal":${'9'.repeat(i)},"__proto__":{"a":1},"context":"../${i}"}`);
  };
  const verbs = [...Object.keys(VERBS), '__proto__', 'constructor', 'nothing'];
  const fuzzer = newIdentity();
  for (const verb of verbs) {
    for (let i = 0; i < 200; i++) {
      const caller = i % 2 === 0 ? ledger.home.principal : fuzzer.principal;
      const answer = await ledger.ask(verb, garbage(i), caller);
      // A list asks for nothing: unknown fields of an object are ignored, as everywhere.
      if (answer.ok && i % 5 >= 3 && ['contexts', 'principals'].includes(verb)) continue;
      assert.ok(answer.error, `${verb} ${i} ${JSON.stringify(answer)}`);
      assert.match(answer.error.code, /^[a-z_]+$/);
      assert.notEqual(answer.error.code, 'internal');
    }
  }
  assert.ok((await ledger.register(newIdentity(), 'user')).ok);
  assert.deepEqual(ledger.faults, []);
});

test('a request nobody can be answered on does nothing; a bus that is away is an error, not the end', async () => {
  const ledger = await startTestLedger();
  const user = newIdentity();
  const proof = await ledger.proof(user, 'user');
  ledger.net.deliver('hb.ledger.register', proof);
  await new Promise((resolve) => setTimeout(resolve, 5));
  assert.equal(ledger.directory.principal(user.principal), undefined);
  ledger.net.kvFails = 1;
  assert.equal(await ledger.code('register', proof, JOINING), 'unreachable');
  assert.ok((await ledger.register(user, 'user')).ok);
});

test('a failing issuer is a fault of ours: the caller learns no more than that', async () => {
  const net = new MemoryNet();
  const bus = new MemoryBus(net);
  const faults: string[] = [];
  const ledger = await startLedger({
    bus: bus.asBus(),
    issue: () => {
      throw new Error('seed SUAAA');
    },
    makeConsumer: { follower: async () => undefined, queue: async () => undefined },
    readLog: async () => ({ entries: [], more: false }),
    onFault: (message) => faults.push(message),
  });
  const test = await startTestLedger({}, net, bus.identity);
  test.stop();
  const user: Identity = newIdentity();
  const answer = await test.register(user, 'user');
  assert.equal(answer.error?.code, 'internal');
  assert.doesNotMatch(JSON.stringify(answer), /SUAAA/);
  assert.match(faults.join(), /SUAAA/);
  ledger.stop();
});
