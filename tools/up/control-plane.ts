/**
 * The control plane of `up`: the embedded bus with its keys, and ledger, roster and coord on it.
 *
 * Builds, in the order in which each needs the one before, and takes down in the reverse order. What they
 * do is in `actors/`; here they only get what they are made of.
 */
import { join } from 'node:path';
import { startCoord } from '../../actors/coord/coord.ts';
import { flowsPage, refusalsOf } from '../../actors/coord/overview.ts';
import { startRetention } from '../../actors/coord/retention.ts';
import type { Retention } from '../../actors/flow/retention.ts';
import type { Host } from '../../actors/host.ts';
import { startLedger } from '../../actors/ledger/ledger.ts';
import { startRoster } from '../../actors/roster/roster.ts';
import { SECRET_MODE, writeAtomic } from '../../bus/atomic-file.ts';
import { removeBusFile, writeBusFile } from '../../bus/connect.ts';
import { type Issuer, makeIssuer, makeTrust, openKeys } from '../../bus/credentials.ts';
import type { Identity } from '../../bus/identity.ts';
import { type NatsBus, openNatsBus } from '../../bus/nats.ts';
import { type EmbeddedServer, startServer } from '../../bus/server.ts';
import { openWatermarks } from '../../bus/watermark.ts';
import type { Durability, Role } from '../../schemas/config.ts';
import type { HeroError } from '../../schemas/errors.ts';
import type { Incarnation } from '../../schemas/ids.ts';
import { JobKind } from '../../schemas/job.ts';
import type { ContextRecord, PrincipalRecord } from '../../schemas/ledger.ts';

export type ControlPlaneOptions = {
  dataDir: string;
  identity: Identity;
  incarnation: Incarnation;
  name: string;
  roles: ReadonlySet<Role>;
  durability: Durability;
  /** Whether newcomers get in without a token or an admin; undefined: as it was before. */
  open: boolean | undefined;
  /** Which flows that have ended are kept. */
  retention: Retention;
  /** Start although a stream went back (bus/watermark.ts). */
  acceptLoss: boolean;
  host: Host;
  alarm: (message: string) => void;
  /** A stream went back while it ran: whatever is decided from now on is decided on a wrong log. */
  onRegressed: (error: HeroError) => void;
};

export type ControlPlane = { url: string; joinCreds: string; stop: () => Promise<void> };

/** Tokens are renewed long before (actors/identity); a lost renewal shuts nobody out for a day. */
const TOKEN_LIFETIME_S = 7 * 24 * 3600;

export async function startControlPlane(options: ControlPlaneOptions): Promise<ControlPlane> {
  const { dataDir, durability } = options;
  const undo: (() => Promise<void> | void)[] = [];
  const stop = async (): Promise<void> => {
    for (const step of undo.splice(0).reverse()) await step();
  };
  try {
    const keys = await openKeys(dataDir);
    const server = await startServer({
      dataDir,
      trust: await makeTrust(keys),
      durability,
      alarm: options.alarm,
    });
    undo.push(() => server.stop());
    const issuer = makeIssuer(keys);
    const joinCreds = join(dataDir, 'join.creds');
    await writeAtomic(joinCreds, await issuer.joinCreds(), SECRET_MODE);
    const bus = await openControlBus(options, server, issuer);
    undo.push(() => bus.close());
    // Before anything writes to the streams, and ended after everything that does.
    const marks = await openWatermarks({ ...options, tails: bus.admin.tails(), link: bus.link });
    undo.push(() => marks.stop());
    await bus.admin.ensureBus();
    const queues = bus.admin.watchQueues({ alarm: options.alarm });
    undo.push(() => queues.stop());
    await startActors(options, bus, issuer, undo);
    await announce(dataDir, server, joinCreds, issuer.account);
    undo.push(() => removeBusFile(dataDir));
    return { url: server.url, joinCreds, stop };
  } catch (error) {
    await stop();
    throw error;
  }
}

async function openControlBus(
  { identity, incarnation, durability }: ControlPlaneOptions,
  server: EmbeddedServer,
  issuer: Issuer,
): Promise<NatsBus> {
  const jwt = await issuer.control(identity.principal);
  const ledgerJwt = await issuer.ledgerService(identity.principal);
  return openNatsBus({
    kind: 'control',
    server: server.url,
    identity,
    incarnation,
    jwt: () => jwt,
    ledgerJwt: () => ledgerJwt,
    durability,
    name: 'control plane',
  });
}

async function startActors(
  options: ControlPlaneOptions,
  bus: NatsBus,
  issuer: Issuer,
  undo: (() => Promise<void> | void)[],
): Promise<void> {
  const { host, alarm, identity, name } = options;
  const ledger = await startLedger({
    bus,
    open: options.open,
    issue: (record, contexts) => issueToken(bus, issuer, record, contexts),
    provision: {
      context: (context) => bus.admin.ensureContext(context),
      user: (address) => bus.admin.ensureUserBucket(address),
    },
    makeConsumer: {
      follower: (spec) => bus.admin.follower(spec),
      queue: (spec) => bus.admin.queue(spec),
    },
    readLog: (request) => bus.admin.readLog(request),
    onFault: alarm,
  });
  undo.push(() => ledger.stop());
  await ledger.bootstrap(identity.principal, name);
  ledger.serveFlows({
    flows: (request) => flowsPage(bus, ledger.directory, request),
    refusals: (request) => refusalsOf(bus, request),
  });
  const roster = await startRoster({ bus, directory: ledger.directory, onFault: alarm });
  undo.push(() => roster.stop());
  ledger.serveNodes(roster.page);
  const coord = await startCoord({ bus, host, directory: ledger.directory, roster, alarm });
  undo.push(() => coord.stop());
  const { retention } = options;
  const keeper = startRetention({ bus, directory: ledger.directory, retention, alarm });
  undo.push(() => keeper.stop());
}

async function issueToken(
  bus: NatsBus,
  issuer: Issuer,
  { kind, principal }: PrincipalRecord,
  contexts: ContextRecord[],
): Promise<string> {
  const expiresAt = Math.floor(bus.now() / 1000) + TOKEN_LIFETIME_S;
  const names = (list: ContextRecord[]) => list.map(({ context }) => context);
  if (kind === 'node') {
    const rights = { contexts: names(contexts), classes: JobKind.options };
    return issuer.node(principal, rights, { expiresAt });
  }
  const acts = contexts.filter(
    ({ executors, admins }) => executors.includes(principal) || admins.includes(principal),
  );
  return issuer.user(principal, { executes: names(acts), reads: names(contexts) }, { expiresAt });
}

async function announce(
  dataDir: string,
  server: EmbeddedServer,
  joinCreds: string,
  account: string,
): Promise<void> {
  await writeBusFile(dataDir, {
    url: server.url,
    web: null,
    ca: null,
    join_creds: joinCreds,
    account,
    pid: process.pid,
    version: server.version,
  });
}
