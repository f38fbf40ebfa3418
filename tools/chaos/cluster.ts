/**
 * The cluster that things are done to: a control plane with its nats-server, and two nodes whose supervisor,
 * runners' parent and runners are processes of their own.
 */
import { mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import { findServerBinary } from '../../bus/server-binary.ts';
import type { Random } from '../../bus/simulated/random.ts';
import { productCopy } from '../bench/herobus.ts';
import { Daemon } from './daemon.ts';

export const ROLES = [
  'nats-server',
  'control plane',
  'supervisor',
  'runners’ parent',
  'runner',
] as const;
export type Role = (typeof ROLES)[number];

export type Victim = { name: string; pid: number; kill: () => void };

export type Cluster = {
  server: string;
  /** Of the control plane; its key also is the user's. */
  home: string;
  data: string;
  daemons: readonly Daemon[];
  /** Processes of a role that run now. */
  victims: (role: Role) => Victim[];
  stopNodes: () => Promise<void>;
  stop: () => Promise<void>;
};

const NODES = ['first', 'second'];
const RUNNERS = 'process=6,sal=8';
const READY_WITHIN_MS = 60_000;
const RESTART_AFTER_MAX_MS = 700;
/** Now and then a part of a node stays away for longer than the dead are waited for, so that its work moves. */
const AWAY = 0.1;
const AWAY_MS = [9_000, 13_000] as const;

export type ClusterOptions = {
  folder: string;
  random: Random;
  /** Learns of each process before it runs, so that it can be ended however the start goes. */
  onDaemon: (daemon: Daemon) => void;
  say: (line: string) => void;
};

export async function startCluster(options: ClusterOptions): Promise<Cluster> {
  const { folder, random, onDaemon, say } = options;
  const sub = async (name: string): Promise<string> => {
    const path = join(folder, name);
    await mkdir(path, { recursive: true, mode: 0o700 });
    return path;
  };
  const program = await productCopy(await sub('product'));
  const logs = await sub('logs');
  const env = { HEROBUS_NATS_SERVER: (await findServerBinary()).file };
  const daemon = (name: string, home: string, data: string, args: string[]): Daemon => {
    const made = new Daemon({
      name,
      args: [program, '--home', home, '--json', 'up', '--data', data, ...args],
      env,
      log: join(logs, `${name.replaceAll(' ', '-')}.log`),
      restartAfterMs: () => {
        const away = args.includes('--join') && random.chance(AWAY);
        return away ? random.between(...AWAY_MS) : random.between(0, RESTART_AFTER_MAX_MS);
      },
      onOwnEnd: (who, how) => say(`ended by itself: ${who}, ${how}`),
    });
    onDaemon(made);
    return made;
  };

  const home = await sub('control-home');
  const data = await sub('control-data');
  const controlRoles = ['--name', 'control', '--roles', 'ledger,roster,coord'];
  const control = daemon('control plane', home, data, controlRoles);
  const { server } = await control.start(READY_WITHIN_MS);
  const nodes = await Promise.all(
    NODES.map(async (name) => {
      const part = async (what: Role, role: string): Promise<Daemon> =>
        daemon(`${what} of ${name}`, await sub(`${name}-home`), await sub(`${name}-data`), [
          '--name',
          name,
          '--join',
          server,
          '--runners',
          RUNNERS,
          '--roles',
          role,
        ]);
      const supervisor = await part('supervisor', 'supervisor');
      const parent = await part('runners’ parent', 'runner');
      // One after the other: the first to start makes the key they share.
      await supervisor.start(READY_WITHIN_MS);
      await parent.start(READY_WITHIN_MS);
      return { supervisor, parent };
    }),
  );
  const supervisors = nodes.map(({ supervisor }) => supervisor);
  const parents = nodes.map(({ parent }) => parent);
  const stopNodes = async (): Promise<void> => {
    await Promise.all([...parents, ...supervisors].map((each) => each.stop()));
  };
  return {
    server,
    home,
    data,
    daemons: [control, ...supervisors, ...parents],
    victims: (role) => {
      switch (role) {
        case 'nats-server':
          return childrenOf([control], 'nats-server', 'server.conf');
        case 'control plane':
          return themselves([control]);
        case 'supervisor':
          return themselves(supervisors);
        case 'runners’ parent':
          return themselves(parents);
        case 'runner':
          return childrenOf(parents, 'runner', 'runner');
      }
    },
    stopNodes,
    stop: async () => {
      await stopNodes();
      await control.stop();
    },
  };
}

function themselves(daemons: readonly Daemon[]): Victim[] {
  return daemons.flatMap((daemon) => {
    const { name, pid } = daemon;
    return pid === undefined ? [] : [{ name, pid, kill: () => daemon.kill() }];
  });
}

/** Known by what their command line says; their parent starts them again. */
function childrenOf(daemons: readonly Daemon[], role: Role, saying: string): Victim[] {
  return daemons.flatMap((daemon) =>
    daemon.children(saying).map((pid) => ({
      name: `${role} ${pid} of ${daemon.name}`,
      pid,
      kill: () => signal(pid, 'SIGKILL'),
    })),
  );
}

export function signal(pid: number, name: NodeJS.Signals): void {
  try {
    process.kill(pid, name);
  } catch {
    // It ended in between.
  }
}
