/** Ledger, identity and roster on a real nats-server, with the credentials they issue. */
import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { startIdentity } from '../../actors/identity/identity.ts';
import { openJoinLink, register } from '../../actors/identity/register.ts';
import { VERBS } from '../../actors/ledger/handlers.ts';
import { startLedger, type Ledger } from '../../actors/ledger/ledger.ts';
import { startRoster, type Roster } from '../../actors/roster/roster.ts';
import { startRosterView } from '../../actors/roster/view.ts';
import { seal } from '../../bus/envelope.ts';
import { newIdentity, type Identity } from '../../bus/identity.ts';
import { askLedger, openNatsBus, type NatsBus } from '../../bus/nats.ts';
import { subjects } from '../../bus/subjects.ts';
import {
  LEDGER_PAYLOAD_TYPE,
  type LedgerChange,
  type PrincipalKind,
} from '../../schemas/ledger.ts';
import type { NodeBeat } from '../../schemas/node.ts';
import { controlBus, newIncarnation, until } from '../bus/fixtures.ts';
import { startRealBus, type RealBus } from '../bus/real-bus.ts';

const TOKEN_LIFETIME_S = 3;
const home = newIdentity();
const faults: string[] = [];
let bus: RealBus;
let control: NatsBus;
let ledger: Ledger;
let roster: Roster;

before(async () => {
  bus = await startRealBus({ durability: 'relaxed' });
  control = await controlBus(bus, home);
  await control.admin.ensureBus();
  ledger = await startLedger({
    bus: control,
    issue: ({ kind, principal }, contexts) => {
      const names = contexts.map(({ context }) => context);
      const expiresAt = Math.floor(Date.now() / 1000) + TOKEN_LIFETIME_S;
      return kind === 'node'
        ? bus.issuer.node(principal, { contexts: names, classes: ['process'] }, { expiresAt })
        : bus.issuer.user(principal, { executes: names, reads: names });
    },
    provision: {
      context: (context) => control.admin.ensureContext(context),
      user: (address) => control.admin.ensureUserBucket(address),
    },
    makeConsumer: control.admin,
    readLog: (request) => control.admin.readLog(request),
    onFault: (message) => faults.push(message),
  });
  await ledger.bootstrap(home.principal, 'home');
  roster = await startRoster({ bus: control, directory: ledger.directory, tickMs: 100 });
  ledger.serveNodes(roster.page);
});

after(async () => {
  await roster?.stop();
  ledger?.stop();
  await bus?.close();
});

const joinLink = async () =>
  openJoinLink({ server: bus.server.url, creds: await bus.issuer.joinCreds() });

async function joinBus(identity: Identity, kind: PrincipalKind): Promise<NatsBus> {
  const link = await joinLink();
  const reply = await register(link.ask, identity, { kind, name: 'test', token: null });
  await link.close();
  assert.equal(reply.status, 'registered');
  const jwt = reply.status === 'registered' ? reply.jwt : '';
  const opened = await openNatsBus({
    kind,
    server: bus.server.url,
    identity,
    incarnation: newIncarnation(),
    jwt: () => jwt,
  });
  bus.onClose(() => opened.close());
  return opened;
}

function sealChange(identity: Identity, change: LedgerChange): Uint8Array {
  const payload = {
    v: 1,
    change,
    reason: null,
    nonce: randomBytes(8).toString('hex'),
    issued_at: new Date().toISOString(),
  };
  return seal(Buffer.from(JSON.stringify(payload)), LEDGER_PAYLOAD_TYPE, [identity]);
}

test('a user registers with the join credentials and follows what it may read', async () => {
  const user = newIdentity();
  const client = await joinBus(user, 'user');
  await assert.rejects(askLedger(client.nats, 'follow', { context: 'default' }), {
    code: 'not_allowed',
  });
  const change: LedgerChange = {
    change: 'context_grant',
    context: 'default',
    principal: user.principal,
    role: 'executor',
  };
  await assert.rejects(askLedger(client.nats, 'change', sealChange(user, change)), {
    code: 'not_allowed',
  });
  await askLedger(client.nats, 'change', sealChange(home, change));
  const { consumer } = (await askLedger(client.nats, 'follow', { context: 'default' })) as {
    consumer: string;
  };
  const pulled = await client.nats.request(
    `$JS.API.CONSUMER.MSG.NEXT.HB_FLOW.${consumer}`,
    JSON.stringify({ batch: 1, no_wait: true }),
    { timeout: 3000 },
  );
  assert.equal(pulled.headers?.code, 404, 'the consumer is there, and the log is empty');
});

test('the holder of the join credentials gets no further than the join verbs', async () => {
  const link = await joinLink();
  for (const verb of Object.keys(VERBS)) {
    if (VERBS[verb]?.auth === 'join') continue;
    await assert.rejects(link.ask(verb, { context: 'default', kind: 'node' }), verb);
  }
  await link.close();
});

test('a node gets its own queues; a second start finds the buckets as they were', async () => {
  const node = newIdentity();
  const client = await joinBus(node, 'node');
  assert.deepEqual(await askLedger(client.nats, 'queue', { queue: 'assign' }), {
    stream: 'HB_ASSIGN',
    consumer: node.address,
  });
  const jobs = { queue: 'jobs', context: 'default', class: 'process' };
  for (let i = 0; i < 2; i++) {
    assert.deepEqual(await askLedger(client.nats, 'queue', jobs), {
      stream: 'JOBS_default',
      consumer: `process_${node.address}`,
    });
  }
  const { directory } = ledger;
  const again = await startLedger({
    bus: { ...control, subscribe: () => ({ stop: () => undefined }) },
    issue: () => '',
    makeConsumer: control.admin,
    readLog: (request) => control.admin.readLog(request),
  });
  assert.equal(again.directory.revision(), directory.revision());
  assert.equal(again.directory.principals().length, directory.principals().length);
  again.stop();
});

test('a node joins by itself and stays through the end of its credentials', async () => {
  const folder = join(bus.dataDir, 'home');
  await mkdir(folder);
  const incarnation = newIncarnation();
  const node = startIdentity<NatsBus>({
    home: folder,
    registrant: { kind: 'node', name: 'n1', token: null },
    connectJoin: joinLink,
    connect: (identity, jwt) =>
      openNatsBus({ kind: 'node', server: bus.server.url, identity, incarnation, jwt }),
  });
  bus.onClose(() => node.stop());
  const { bus: own, identity } = await node.joined();
  const beat = (seq: number): NodeBeat => ({
    v: 1,
    role: 'node',
    inc: incarnation,
    seq,
    principal: identity.principal,
    name: 'n1',
    groups: [],
    offers: ['process'],
    state: 'ready',
    runners: [],
    flows: 0,
    version: '0',
    cpus: 1,
    memory_mib: 1,
    load1: 0,
  });
  let ups = 0;
  own.link.onChange(({ up }) => (ups += Number(up)));
  const view = startRosterView({ bus: own });
  await view.ready;
  let seq = 0;
  const beating = setInterval(() => own.publish(subjects.beat(own.address), beat(++seq)), 100);
  const isLive = (nodes: readonly { address: string; liveness: string }[]) =>
    nodes.some(({ address, liveness }) => address === own.address && liveness === 'live');
  await until(() => isLive(view.nodes()), 'the node sees itself in the roster');
  await until(() => ups > 0, 'the first credentials have ended', 20_000);
  await until(() => node.state().state === 'joined', 'joined again');
  const heard = roster.node(own.address)?.beat_ms ?? 0;
  await until(() => (roster.node(own.address)?.beat_ms ?? 0) > heard, 'it is heard again');
  clearInterval(beating);
  view.stop();
  await node.stop();
});

test('a node that is told of a new context may pull from it after one reconnect', async () => {
  const folder = join(bus.dataDir, 'second');
  await mkdir(folder);
  const node = startIdentity<NatsBus>({
    home: folder,
    registrant: { kind: 'node', name: 'n2', token: null },
    connectJoin: joinLink,
    connect: (identity, jwt) =>
      openNatsBus({
        kind: 'node',
        server: bus.server.url,
        identity,
        incarnation: newIncarnation(),
        jwt,
      }),
    reconnect: (own) => own.reconnect(),
  });
  bus.onClose(() => node.stop());
  const { bus: own } = await node.joined();
  const create: LedgerChange = { change: 'context_create', context: 'later' };
  const user = await joinBus(newIdentity(), 'user');
  await askLedger(user.nats, 'change', sealChange(home, create));
  const queue = { queue: 'jobs', context: 'later', class: 'process' };
  const { stream, consumer } = (await askLedger(own.nats, 'queue', queue)) as {
    stream: string;
    consumer: string;
  };
  const pull = async () => {
    const subject = `$JS.API.CONSUMER.MSG.NEXT.${stream}.${consumer}`;
    const body = JSON.stringify({ batch: 1, no_wait: true });
    return (await own.nats.request(subject, body, { timeout: 1000 })).headers?.code;
  };
  await assert.rejects(pull());
  node.rightsChanged();
  let code: number | undefined;
  await until(() => {
    if (node.state().state === 'joined')
      void pull().then(
        (got) => (code = got),
        () => undefined,
      );
    return code === 404;
  }, 'the queue of the new context answers');
  await node.stop();
});

test('garbage on every verb, from all sides, and the ledger goes on', async () => {
  const client = await joinBus(newIdentity(), 'user');
  const link = await joinLink();
  for (const verb of Object.keys(VERBS)) {
    const shots = Array.from({ length: 200 }, async (_, i) => {
      const data = i % 2 === 0 ? randomBytes(i) : Buffer.from(`{"principal":${i},"context":[]`);
      if (i % 3 === 0) client.nats.publish(subjects.ledger(verb), data);
      else await assert.rejects(client.request(subjects.ledger(verb), data).then(refusalOf));
    });
    await Promise.all(shots);
  }
  await joinBus(newIdentity(), 'user');
  await link.close();
  assert.deepEqual(faults, []);
});

function refusalOf(reply: unknown): void {
  const { error } = reply as { error?: { code: string } };
  if (error !== undefined && error.code !== 'internal') throw new Error(error.code);
}
