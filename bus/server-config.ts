/**
 * The configuration of the embedded nats-server: what `up` tells its server, as a text and as nothing else.
 *
 * Pure. Who writes it down and starts a server with it is bus/server.ts; a test may hand the very same text to
 * a server that runs elsewhere.
 */
import { join, resolve } from 'node:path';
import type { Durability } from '../schemas/config.ts';

/** Whom the server trusts: public texts only, made by bus/credentials.ts. */
export type ServerTrust = {
  operatorJwt: string;
  systemAccount: string;
  /** Account public key -> account JWT. */
  accounts: ReadonlyMap<string, string>;
  /** The join credentials' token: what who connects without credentials is given. */
  guestJwt: string;
};

export type ClusterOptions = {
  /** Unique in the cluster. */
  serverName: string;
  clusterName: string;
  /** `host:port` for routes. */
  listen: string;
  routes: string[];
};

export type ServerOptions = {
  dataDir: string;
  trust: ServerTrust;
  durability: Durability;
  /** Default 127.0.0.1. */
  host?: string;
  cluster?: ClusterOptions;
  /** Told when the server ended and is started again, and why. */
  alarm?: (message: string) => void;
};

/** An envelope of 1 MiB and the log entry that carries it. */
const MAX_PAYLOAD_BYTES = 2 * 1024 * 1024;
/** A JWT with hundreds of permissions travels in one CONNECT line (reference/bus.md 1). */
const MAX_CONTROL_LINE_BYTES = 65_536;

/** Where a server keeps its things below its data folder. */
export type ServerPaths = { dir: string; config: string; log: string; port: string; ports: string };

export function serverPaths(dataDir: string): ServerPaths {
  const dir = resolve(dataDir, 'nats');
  return {
    dir,
    config: join(dir, 'server.conf'),
    log: join(dir, 'server.log'),
    port: join(dir, 'port'),
    ports: join(dir, 'ports'),
  };
}

/** Quotes and backslashes are the two characters a quoted value of this format cannot hold bare. */
function quoted(text: string): string {
  return `"${text.replace(/[\\"]/g, '\\$&')}"`;
}

/** `port`: -1 for one that the system picks. */
export function serverConfig(options: ServerOptions, port: number): string {
  const { trust, cluster, durability } = options;
  const paths = serverPaths(options.dataDir);
  const accounts = [...trust.accounts].map(([key, jwt]) => `  ${key}: ${jwt}`);
  const lines = [
    '# Written by herobus at each start; changes are lost.',
    `host: ${quoted(options.host ?? '127.0.0.1')}`,
    `port: ${port}`,
    `max_payload: ${MAX_PAYLOAD_BYTES}`,
    `max_control_line: ${MAX_CONTROL_LINE_BYTES}`,
    `log_file: ${quoted(paths.log)}`,
    'logfile_size_limit: 8MB',
    'logfile_max_num: 3',
    'logtime_utc: true',
    `operator: ${trust.operatorJwt}`,
    `default_sentinel: ${trust.guestJwt}`,
    `system_account: ${trust.systemAccount}`,
    `resolver: { type: full, dir: ${quoted(join(paths.dir, 'jwt'))}, allow_delete: false, interval: "2m" }`,
    'resolver_preload: {',
    ...accounts,
    '}',
    'jetstream {',
    `  store_dir: ${quoted(join(paths.dir, 'jetstream'))}`,
    // Otherwise the server's own interval: replicated streams are durable by their copies.
    ...(durability === 'fsync' ? ['  sync_interval: always'] : []),
    '}',
  ];
  if (cluster !== undefined) {
    lines.push(
      `server_name: ${quoted(cluster.serverName)}`,
      'cluster {',
      `  name: ${quoted(cluster.clusterName)}`,
      `  listen: ${quoted(cluster.listen)}`,
      `  routes: [${cluster.routes.map(quoted).join(', ')}]`,
      '}',
    );
  }
  return `${lines.join('\n')}\n`;
}
