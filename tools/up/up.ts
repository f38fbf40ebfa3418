/**
 * `up`: one node of herobus, with or without the control plane in it.
 *
 * The composition root: reads nothing of its own, builds what the options name, and takes it down in order.
 */
import { mkdir } from 'node:fs/promises';
import { join, resolve } from 'node:path';
import { Host } from '../../actors/host.ts';
import { loadOrMakeKey } from '../../actors/identity/key-file.ts';
import type { Retention } from '../../actors/flow/retention.ts';
import { newIncarnation } from '../../actors/incarnation.ts';
import { readIfThere, writeAtomic } from '../../bus/atomic-file.ts';
import { readBusFile } from '../../bus/connect.ts';
import { type Durability, HomeConfig, type Role, type RunnerConfig } from '../../schemas/config.ts';
import { HeroError } from '../../schemas/errors.ts';
import { type ControlPlane, startControlPlane } from './control-plane.ts';
import { type RunningNode, startNode } from './node.ts';

export type UpOptions = {
  home: string;
  dataDir: string;
  /** The bus to join; null: bring one along. */
  join: string | null;
  token: string | null;
  /** Whether newcomers get in without a token or an admin; undefined: as it was before. */
  open: boolean | undefined;
  name: string;
  groups: string[];
  runners: RunnerConfig[];
  roles: ReadonlySet<Role>;
  durability: Durability;
  /** Which flows that have ended the control plane keeps. */
  retention: Retention;
  /** Start although a stream of the embedded bus went back. */
  acceptLoss: boolean;
  version: string;
  /** What an operator should know, a line each. */
  alarm: (message: string) => void;
};

export type Up = {
  ready: { principal: string; address: string; server: string; web: string | null };
  /** Settles when it must not go on, with the reason; what is left to do is to stop. */
  failed: Promise<HeroError>;
  /** Drains and stops everything, in order; after a failure without draining, which would write. */
  stop: (reason: string) => Promise<void>;
};

const CONTROL_ROLES: readonly Role[] = ['ledger', 'roster', 'coord'];

export async function up(options: UpOptions): Promise<Up> {
  const { home, dataDir, roles, alarm } = options;
  await mkdir(dataDir, { recursive: true, mode: 0o700 });
  const { identity } = await loadOrMakeKey(home);
  const incarnation = newIncarnation();
  const host = new Host({
    onFault: (name, error) => {
      // A machine that fails of itself is a fault of ours: nothing of its state can be trusted any more.
      alarm(`actor ${name} failed: ${error.stack ?? error.message}`);
      process.kill(process.pid, 'SIGTERM');
    },
  });
  const asNode = roles.has('supervisor') || roles.has('runner');
  const failed = Promise.withResolvers<HeroError>();
  let failure: HeroError | undefined;
  const onRegressed = (error: HeroError): void => {
    failure = error;
    failed.resolve(error);
  };
  let plane: ControlPlane | undefined;
  let node: RunningNode | undefined;
  const stop = async (reason: string): Promise<void> => {
    if (failure === undefined) await node?.drain(reason);
    await node?.stop();
    host.stopAll();
    await plane?.stop();
  };
  try {
    if (CONTROL_ROLES.some((role) => roles.has(role)) && options.join === null) {
      plane = await startControlPlane({ ...options, identity, incarnation, host, onRegressed });
      await rememberData(home, resolve(dataDir));
    }
    if (options.acceptLoss && plane === undefined) {
      throw new HeroError('usage', '--accept-loss is for the node that brings the bus along');
    }
    if (options.open !== undefined && plane === undefined) {
      throw new HeroError('usage', '--open and --closed are for the node that brings the ledger');
    }
    const { server, joinCreds } = await whereToJoin(options, plane);
    if (asNode) node = await startNode({ ...options, server, joinCreds, incarnation, host });
    const { principal, address } = identity;
    return { ready: { principal, address, server, web: null }, failed: failed.promise, stop };
  } catch (error) {
    await stop('it could not start');
    throw error;
  }
}

/** The home's commands find the bus by this, wherever its data folder is. */
async function rememberData(home: string, dataDir: string): Promise<void> {
  const path = join(home, 'config.json');
  const text = await readIfThere(path);
  const config = HomeConfig.parse(text === undefined ? {} : JSON.parse(text));
  if (config.data === dataDir) return;
  await writeAtomic(path, `${JSON.stringify({ ...config, data: dataDir }, null, 2)}\n`, 0o644);
}

/** The bus this node joins: its own, the one named, or the one another process of this data folder runs. */
async function whereToJoin(
  { join: url, dataDir, home }: UpOptions,
  plane: ControlPlane | undefined,
): Promise<{ server: string; joinCreds: string }> {
  if (plane !== undefined) return { server: plane.url, joinCreds: plane.joinCreds };
  const local = await readBusFile(dataDir);
  const server = url ?? local?.url;
  if (server === undefined) {
    throw new HeroError('usage', 'there is no bus to join', {
      fix: 'Name one with --join nats://host:port, or let this node bring its own (no --roles).',
    });
  }
  return { server, joinCreds: local?.join_creds ?? join(home, 'join.creds') };
}
