/**
 * The node part of `up`: joins the bus, runs the supervisor, keeps the runner children.
 *
 * The home's key is the node's identity; its credentials stand in the data folder, where the runner
 * children read the newest. Each role may be missing: then another process of this node has it.
 */
import { randomBytes } from 'node:crypto';
import { mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import type { Host } from '../../actors/host.ts';
import { startIdentity } from '../../actors/identity/identity.ts';
import { keyPath } from '../../actors/identity/key-file.ts';
import { openJoinLink } from '../../actors/identity/register.ts';
import { type RosterView, startRosterView } from '../../actors/roster/view.ts';
import { Supervision } from '../../actors/supervise.ts';
import { readIfThere, SECRET_MODE, writeAtomic } from '../../bus/atomic-file.ts';
import { type NatsBus, openNatsBus } from '../../bus/nats.ts';
import type { Role, RunnerConfig } from '../../schemas/config.ts';
import type { Address, Incarnation } from '../../schemas/ids.ts';
import type { JobKind } from '../../schemas/job.ts';
import { type RunningSupervisor, startSupervisor } from '../../supervisors/supervisor.ts';
import { serveKv } from '../../supervisors/kv-socket.ts';
import { identityNews } from './identity-news.ts';
import { runnerChild } from './runner-child.ts';

export type NodeOptions = {
  home: string;
  dataDir: string;
  incarnation: Incarnation;
  server: string;
  /** Path of the join credentials; without such a file it joins as a guest. */
  joinCreds: string;
  token: string | null;
  name: string;
  groups: string[];
  runners: RunnerConfig[];
  roles: ReadonlySet<Role>;
  version: string;
  host: Host;
  alarm: (message: string) => void;
};

export type RunningNode = {
  bus: NatsBus;
  drain: (reason: string) => Promise<void>;
  stop: () => Promise<void>;
};

/** What a node offers by running a class. */
const OFFERS: Record<JobKind, string[]> = {
  process: ['process'],
  sal: ['kv:*', 'file:*', 'noop'],
  script: ['script'],
  container: ['container'],
  vm: ['vm'],
  wasm: ['wasm'],
};
/** What runs may finish within this when a node is told to stop. */
const DRAIN_GRACE_MS = 10_000;
/** How long `ready` waits for the node's own runners to be seen. */
const OFFERED_WITHIN_MS = 10_000;
const RUNNER_RESTARTS = {
  intensity: 60,
  periodMs: 60_000,
  backoff: { firstMs: 100, maxMs: 5_000 },
};

type Supervised = { supervisor: RunningSupervisor; roster: RosterView };

export async function startNode(options: NodeOptions): Promise<RunningNode> {
  const { dataDir, roles, host, alarm } = options;
  await mkdir(join(dataDir, 'work'), { recursive: true });
  const creds = join(dataDir, 'node.creds');
  const identity = startIdentity<NatsBus>({
    home: options.home,
    credsFile: creds,
    registrant: { kind: 'node', name: options.name, token: options.token },
    connectJoin: async () =>
      openJoinLink({ server: options.server, creds: await readIfThere(options.joinCreds) }),
    connect: (key, jwt) =>
      openNatsBus({
        kind: 'node',
        server: options.server,
        identity: key,
        incarnation: options.incarnation,
        jwt,
        name: `node ${options.name}`,
      }),
    reconnect: (bus) => bus.reconnect(),
  });
  identity.onState(identityNews(alarm));
  const { bus } = await identity.joined();
  host.describeOn(bus);
  const undo: (() => Promise<void> | void)[] = [() => identity.stop()];
  let supervised: Supervised | undefined;
  if (roles.has('supervisor')) {
    supervised = await startNodeSupervisor(options, bus, () => identity.rightsChanged(), undo);
  }
  if (roles.has('runner')) undo.push(await startRunnerChildren(options, creds));
  if (roles.has('runner') && supervised !== undefined) {
    await untilOffered(supervised.roster, bus.address, options.runners.length);
  }
  return {
    bus,
    drain: async (reason) => {
      await supervised?.supervisor.drain(reason, DRAIN_GRACE_MS);
    },
    stop: async () => {
      for (const step of undo.splice(0).reverse()) await step();
    },
  };
}

/**
 * A deployment that comes right after a node said it is ready counts on its runners, so they have to be seen
 * by then. Not for ever: a node whose runners are late is of use already, and they are seen when they come.
 */
async function untilOffered(roster: RosterView, address: Address, runners: number): Promise<void> {
  const offered = Promise.withResolvers<void>();
  const look = (): void => {
    const own = roster.nodes().find((node) => node.address === address);
    if ((own?.runners.length ?? 0) >= runners) offered.resolve();
  };
  const subscription = roster.onChange(look);
  const late = setTimeout(() => offered.resolve(), OFFERED_WITHIN_MS);
  look();
  await offered.promise;
  clearTimeout(late);
  subscription.stop();
}

async function startNodeSupervisor(
  options: NodeOptions,
  bus: NatsBus,
  contextsChanged: () => void,
  undo: (() => Promise<void> | void)[],
): Promise<Supervised> {
  const { dataDir, host, name, groups, runners, version, alarm } = options;
  const kv = await serveKv(bus, kvSocketPath(dataDir), await kvToken(dataDir));
  undo.push(() => kv.close());
  const roster = startRosterView({ bus, onFault: alarm });
  undo.push(() => roster.stop());
  await roster.ready;
  const offers = [...new Set(runners.flatMap((runner) => OFFERS[runner.class]))];
  const supervisor = await startSupervisor({
    bus,
    host,
    roster,
    name,
    groups,
    offers,
    version,
    contextsChanged,
    alarm,
  });
  undo.push(() => supervisor.stop());
  return { supervisor, roster };
}

const kvSocketPath = (dataDir: string): string => join(dataDir, 'kv.sock');

/** The word by which the node's own runners are known at its kv socket; kept, so that either may restart. */
export async function kvToken(dataDir: string): Promise<string> {
  const path = join(dataDir, 'keys', 'kv.token');
  const known = await readIfThere(path);
  if (known !== undefined) return known.trim();
  const token = randomBytes(32).toString('hex');
  await mkdir(join(dataDir, 'keys'), { recursive: true, mode: 0o700 });
  await writeAtomic(path, `${token}\n`, SECRET_MODE);
  return token;
}

/** Starts a child for each runner; resolves with what stops them. */
async function startRunnerChildren(
  options: NodeOptions,
  creds: string,
): Promise<() => Promise<void>> {
  const { dataDir, server, home, alarm } = options;
  const kvTokenText = await kvToken(dataDir);
  const children = options.runners.map((runner, i) =>
    runnerChild(
      {
        v: 1,
        name: `${runner.class}-${i}`,
        class: runner.class,
        slots: runner.slots,
        contexts: runner.contexts,
        server,
        key: keyPath(home),
        creds,
        work: join(dataDir, 'work'),
        folders: join(dataDir, 'jobs', `${runner.class}-${i}`),
        undo: join(dataDir, 'undo'),
        kv_socket: kvSocketPath(dataDir),
        kv_token: kvTokenText,
      },
      alarm,
    ),
  );
  const supervision = new Supervision(children, {
    strategy: 'one_for_one',
    ...RUNNER_RESTARTS,
    // Each may be killed by what it runs, and by that alone no node ends.
    intensity: RUNNER_RESTARTS.intensity * children.length,
    onRestart: (id, reason, waitMs) =>
      alarm(`runner ${id} ended (${reason}); started again in ${waitMs} ms`),
    onEscalate: (id, reason) => {
      alarm(`runner ${id} ends again and again (${reason}); this node stops`);
      process.kill(process.pid, 'SIGTERM');
    },
  });
  await supervision.start();
  return () => supervision.stop();
}
