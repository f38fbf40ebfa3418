/**
 * A real bus for tests: an embedded nats-server in a temporary folder, with keys, accounts and streams.
 *
 * Everything is taken down by `close`, which tests call in an `after` hook, so also when they fail.
 */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { connect, type Connection } from '../../bus/connect.ts';
import {
  inboxPrefix,
  makeIssuer,
  makeTrust,
  openKeys,
  type BusKeys,
  type Issuer,
  type NodeRights,
  type UserRights,
} from '../../bus/credentials.ts';
import { newIdentity, type Identity } from '../../bus/identity.ts';
import { startServer, type EmbeddedServer } from '../../bus/server.ts';
import { ensureBus, ensureContext } from '../../bus/streams.ts';
import type { Durability } from '../../schemas/config.ts';

export type RealBus = {
  dataDir: string;
  keys: BusKeys;
  issuer: Issuer;
  server: EmbeddedServer;
  control: Identity;
  controlConnection: Connection;
  asControl(identity?: Identity): Promise<Connection>;
  asUser(identity: Identity, rights: UserRights): Promise<Connection>;
  asNode(identity: Identity, rights: NodeRights): Promise<Connection>;
  /** Connections and servers opened on the way are closed with the bus. */
  onClose(act: () => Promise<unknown>): void;
  close(): Promise<void>;
};

export async function startRealBus(
  options: { durability?: Durability; contexts?: string[] } = {},
): Promise<RealBus> {
  const durability = options.durability ?? 'fsync';
  const dataDir = await mkdtemp(join(tmpdir(), 'herobus-test-'));
  const closers: (() => Promise<unknown>)[] = [];
  const close = async () => {
    for (const act of closers.reverse()) await act().catch(() => undefined);
    await rm(dataDir, { recursive: true, force: true });
  };
  try {
    const keys = await openKeys(dataDir);
    const issuer = makeIssuer(keys);
    const server = await startServer({ dataDir, trust: await makeTrust(keys), durability });
    closers.push(() => server.stop());
    const open = async (identity: Identity, kind: 'control' | 'node' | 'user', jwt: string) => {
      const connection = await connect({
        server: server.url,
        as: { key: identity, jwt: () => jwt },
        inboxPrefix: inboxPrefix(kind, identity.principal),
      });
      closers.push(() => connection.close());
      return connection;
    };
    const control = newIdentity();
    const asControl = async (identity = control) =>
      open(identity, 'control', await issuer.control(identity.principal));
    const controlConnection = await asControl();
    const { nats } = controlConnection;
    await ensureBus(nats, durability);
    for (const context of options.contexts ?? []) await ensureContext(nats, context, durability);
    return {
      dataDir,
      keys,
      issuer,
      server,
      control,
      controlConnection,
      asControl,
      asUser: async (identity, rights) =>
        open(identity, 'user', await issuer.user(identity.principal, rights)),
      asNode: async (identity, rights) =>
        open(identity, 'node', await issuer.node(identity.principal, rights)),
      onClose: (act) => void closers.push(act),
      close,
    };
  } catch (error) {
    await close();
    throw error;
  }
}
