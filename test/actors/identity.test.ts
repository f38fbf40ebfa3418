/** The identity on a bus in memory: its key file, joining through every obstacle, renewing in time. */
import assert from 'node:assert/strict';
import { chmod, mkdtemp, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { waitMs } from '../../actors/identity/identity.effects.ts';
import { startIdentity, type NodeIdentity } from '../../actors/identity/identity.ts';
import { keyPath, loadOrMakeKey } from '../../actors/identity/key-file.ts';
import { lifetimeMs } from '../../actors/identity/register.ts';
import { parseCreds } from '../../bus/connect.ts';
import { HeroError, type ErrorCode } from '../../schemas/errors.ts';
import { MemoryBus } from './memory-bus.ts';
import { startTestLedger, type Answer, type TestLedger } from './test-ledger.ts';

const folders: string[] = [];
const running: { stop: () => Promise<void> }[] = [];
after(async () => {
  for (const node of running) await node.stop();
  for (const folder of folders) await rm(folder, { recursive: true, force: true });
});

async function newHome(): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), 'herobus-identity-'));
  folders.push(folder);
  return folder;
}

async function until(holds: () => boolean, what: string): Promise<void> {
  for (let i = 0; i < 600; i++) {
    if (holds()) return;
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
  assert.fail(`not within 6 s: ${what}`);
}

type Obstacles = { away: boolean; connects: number; buses: MemoryBus[] };

function startOn(
  ledger: TestLedger,
  home: string,
  obstacles: Obstacles = { away: false, connects: 0, buses: [] },
): NodeIdentity<ReturnType<MemoryBus['asBus']>> {
  const throwIfAway = () => {
    if (obstacles.away) throw new HeroError('unreachable', 'the ledger is away');
  };
  const node = startIdentity({
    home,
    registrant: { kind: 'node', name: 'n1', token: null },
    random: () => 0,
    connectJoin: async () => {
      throwIfAway();
      return {
        ask: async (verb, body) => {
          const data = body instanceof Uint8Array ? body : Buffer.from(JSON.stringify(body));
          const { ok, error }: Answer = await ledger.ask(verb, data, undefined);
          if (error) throw new HeroError(error.code as ErrorCode, error.message);
          return ok;
        },
        close: async () => undefined,
      };
    },
    connect: async (identity) => {
      obstacles.connects++;
      const bus = new MemoryBus(ledger.net, identity, identity.principal);
      obstacles.buses.push(bus);
      return Object.assign(bus, { close: async () => undefined }).asBus();
    },
  });
  running.push(node);
  return node;
}

test('a key is made once, kept, and never replaced', async () => {
  const home = await newHome();
  const keys = await Promise.all(Array.from({ length: 8 }, () => loadOrMakeKey(join(home, 'new'))));
  assert.equal(new Set(keys.map(({ identity }) => identity.principal)).size, 1);
  assert.equal(keys.filter(({ made }) => made).length, 1);
  const path = keyPath(join(home, 'new'));
  assert.equal((await stat(path)).mode & 0o777, 0o600);
  const text = await readFile(path, 'utf8');
  assert.match(text, /^SU[A-Z2-7]{56}\n$/);
  await chmod(path, 0o644);
  await assert.rejects(loadOrMakeKey(join(home, 'new')), {
    code: 'not_allowed',
    fix: `chmod 600 ${path}`,
  });
  await chmod(path, 0o600);
  for (const broken of ['', 'SUAAAA', `${text.slice(0, -3)}AA\n`]) {
    await writeFile(path, broken);
    await assert.rejects(loadOrMakeKey(join(home, 'new')), { code: 'bad_request' });
    assert.equal(await readFile(path, 'utf8'), broken, 'left as it is');
  }
});

test('a node joins, and writes its credentials for others of its home', async () => {
  const ledger = await startTestLedger();
  const home = await newHome();
  const node = startOn(ledger, home);
  const seen = [node.state().state];
  node.onState(({ state }) => seen.push(state));
  const { identity, bus } = await node.joined();
  assert.equal(bus.principal, identity.principal);
  assert.equal(ledger.directory.nodeAt(identity.address)?.name, 'n1');
  const creds = parseCreds(await readFile(join(home, 'bus.creds'), 'utf8'));
  assert.equal(creds.jwt, `jwt.node.${identity.principal}.1`);
  assert.equal((await stat(join(home, 'bus.creds'))).mode & 0o777, 0o600);
  assert.deepEqual(node.state(), { state: 'joined', reason: 'joined' });
  assert.deepEqual(seen, ['networking', 'loadingKey', 'joining', 'joined']);
  node.rightsChanged();
  await until(() => node.state().state === 'joined', 'joined again');
  const renewed = parseCreds(await readFile(join(home, 'bus.creds'), 'utf8'));
  assert.equal(renewed.jwt, `jwt.node.${identity.principal}.2`);
  await node.stop();
});

test('a ledger that is away is waited for, with the reason to be seen', async () => {
  const ledger = await startTestLedger();
  const obstacles = { away: true, connects: 0, buses: [] as MemoryBus[] };
  const node = startOn(ledger, await newHome(), obstacles);
  await until(() => node.state().state === 'offline', 'offline');
  assert.equal(node.state().reason, 'the ledger is away');
  obstacles.away = false;
  await node.joined();
  assert.equal(obstacles.connects, 1);
  await node.stop();
});

test('a node waits for its approval, and is in when it comes', async () => {
  const ledger = await startTestLedger({ admission: { open: false } });
  const node = startOn(ledger, await newHome());
  await until(() => node.state().state === 'awaitingApproval', 'awaitingApproval');
  assert.match(node.state().reason, /^an admin can approve it: `herobus node approve U\w+`$/);
  const [waiting] = ledger.directory.principals().filter(({ status }) => status === 'pending');
  const approve = { change: 'principal_approve', principal: waiting?.principal, kind: 'node' };
  assert.ok((await ledger.change(ledger.home, approve)).ok);
  await node.joined();
  await node.stop();
});

test('a link that goes and comes back is the same connection; a revoked node says so', async () => {
  const ledger = await startTestLedger();
  const obstacles = { away: false, connects: 0, buses: [] as MemoryBus[] };
  const node = startOn(ledger, await newHome(), obstacles);
  const { identity } = await node.joined();
  obstacles.buses[0]?.setLink(false);
  assert.equal(node.state().state, 'offline');
  obstacles.buses[0]?.setLink(true);
  assert.equal(node.state().state, 'joined');
  const revoke = { change: 'principal_revoke', principal: identity.principal, kind: 'node' };
  assert.ok((await ledger.change(ledger.home, revoke)).ok);
  node.rightsChanged();
  await until(() => node.state().state === 'awaitingApproval', 'awaitingApproval');
  assert.match(node.state().reason, /revoked/);
  assert.ok((await ledger.change(ledger.home, { ...revoke, change: 'principal_approve' })).ok);
  await until(() => node.state().state === 'joined', 'joined again');
  assert.equal(obstacles.connects, 1);
  await node.stop();
});

test('a key that cannot be used is told, and used once it is mended', async () => {
  const ledger = await startTestLedger();
  const home = await newHome();
  await loadOrMakeKey(home);
  await chmod(keyPath(home), 0o640);
  const node = startOn(ledger, home);
  await until(() => node.state().reason.includes('chmod 600'), 'the fix');
  assert.equal(node.state().state, 'loadingKey');
  await chmod(keyPath(home), 0o600);
  await node.joined();
  await node.stop();
});

test('waits: renewal well before the end of the credentials, the rest capped for ever', () => {
  const facts = { failures: 0, lifetimeMs: 100_000, ageMs: 0 };
  assert.equal(
    waitMs('renew', facts, () => 0),
    60_000,
  );
  assert.equal(waitMs('renew', facts, () => 0.999) < 80_000, true);
  assert.equal(
    waitMs('renew', { ...facts, ageMs: 59_000 }, () => 0),
    1000,
  );
  assert.equal(
    waitMs('renew', { ...facts, ageMs: 500_000 }, () => 0),
    1000,
  );
  assert.equal(
    waitMs('renew', { ...facts, lifetimeMs: 1e15 }, () => 0),
    12 * 3600 * 1000,
  );
  for (const wait of ['retry', 'poll', 'rejoin'] as const) {
    for (const failures of [0, 1, 5, 50, 1e9]) {
      const waited = waitMs(wait, { ...facts, failures }, () => 1);
      assert.ok(waited >= 250 && waited <= 60_000, `${wait} ${failures} ${waited}`);
    }
  }
});

test('how long a token lasts is its own two times, not the clock of this machine', () => {
  const jwt = (claims: object) =>
    `x.${Buffer.from(JSON.stringify(claims)).toString('base64url')}.y`;
  assert.equal(lifetimeMs(jwt({ iat: 5, exp: 65 })), 60_000);
  assert.equal(lifetimeMs(jwt({ iat: 5 })), null);
  for (const odd of ['', 'a.b', 'jwt.node.U.1']) assert.equal(lifetimeMs(odd), null);
});
