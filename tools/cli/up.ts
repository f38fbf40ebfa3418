/** `herobus up`: runs a node until it is told to stop. */
import { readFileSync } from 'node:fs';
import os from 'node:os';
import { join } from 'node:path';
import { type Command, InvalidArgumentError, Option } from 'commander';
import { RETENTION } from '../../actors/flow/retention.ts';
import { Durability, Role, RunnerConfig } from '../../schemas/config.ts';
import { addressText } from '../../schemas/ids.ts';
import { type Up, up } from '../up/up.ts';
import { parseDuration } from './arguments.ts';
import { homeOf, isJson } from './options.ts';
import { print, printJson } from './output.ts';

const DEFAULT_RUNNERS = `process=${Math.max(4, os.availableParallelism() * 4)},sal=64`;

type UpFlags = {
  data?: string;
  join?: string;
  token?: string;
  open?: boolean;
  closed?: boolean;
  name?: string;
  groups: string[];
  runners: RunnerConfig[];
  durability: Durability;
  acceptLoss?: boolean;
  keepFor: number;
  keepFlows: number;
  roles: ReadonlySet<Role>;
};

export function registerUp(program: Command): void {
  program
    .command('up')
    .description('run a node; without --join with an embedded bus and the control plane in it')
    .option('--data <dir>', 'folder of the bus and the node (default: <home>/data)')
    .option('--join <url>', 'join this bus instead of bringing one')
    .option('--token <token>', 'join token, where the ledger asks for one')
    .option('--closed', 'from now on newcomers need a token or an approval; kept across restarts')
    .addOption(new Option('--open', 'from now on whoever proves a key gets in').conflicts('closed'))
    .option('--name <name>', 'name of the node (default: the host name)')
    .addOption(
      new Option('--groups <a,b>', 'groups the node belongs to')
        .argParser(parseList)
        .default([], 'none'),
    )
    .addOption(
      new Option('--runners <class=n[@ctx+ctx],…>', 'what it runs, n jobs at a time')
        .argParser(parseRunners)
        .default(parseRunners(DEFAULT_RUNNERS), DEFAULT_RUNNERS),
    )
    .option('--durability <class>', 'fsync, relaxed or replicated', parseDurability, 'fsync')
    .option(
      '--accept-loss',
      'start although the log went back (log_regressed), and tell what is lost',
    )
    .addOption(
      new Option('--keep-for <duration>', 'how long flows are kept after their end')
        .argParser((text) => parseDuration(text, '--keep-for'))
        .default(RETENTION.ageMs, '30d'),
    )
    .addOption(
      new Option('--keep-flows <n>', 'how many ended flows of a context are kept at most')
        .argParser(parseCount)
        .default(RETENTION.count),
    )
    .addOption(
      new Option('--roles <roles>', Role.options.join(', '))
        .argParser(parseRoles)
        .default(new Set(Role.options), 'all'),
    )
    .addHelpText(
      'after',
      `
Examples:
  $ herobus up --name first --groups eu,ssd --runners process=16,sal=64
  $ herobus --home ~/.herobus-second up --name second --join nats://127.0.0.1:4222`,
    )
    .action(async (flags: UpFlags, command: Command) =>
      run(flags, homeOf(command), isJson(command)),
    );
}

async function run(flags: UpFlags, home: string, json: boolean): Promise<void> {
  const alarm = (message: string): void => console.error(`${new Date().toISOString()} ${message}`);
  const running = await up({
    home,
    dataDir: flags.data ?? join(home, 'data'),
    join: flags.join ?? null,
    token: flags.token ?? null,
    open: flags.closed ? false : flags.open,
    name: flags.name ?? os.hostname(),
    groups: flags.groups,
    runners: flags.runners,
    roles: flags.roles,
    durability: flags.durability,
    acceptLoss: flags.acceptLoss ?? false,
    retention: { ageMs: flags.keepFor, count: flags.keepFlows },
    version: version(),
    alarm,
  });
  const stopping = new Promise<string>((resolve) => {
    for (const signal of ['SIGTERM', 'SIGINT'] as const)
      process.once(signal, () => resolve(signal));
  });
  const ready = { ...running.ready, address: addressText(running.ready.address) };
  if (json) printJson('up-event', { event: 'ready', ...ready });
  else for (const line of readyLines(ready, flags)) print(line);
  const signal = await Promise.race([stopping, running.failed]);
  if (typeof signal !== 'string') {
    await running.stop(signal.code);
    throw signal;
  }
  alarm(`${signal}: draining, then stopping`);
  await running.stop(signal);
  if (json) printJson('up-event', { event: 'stopped' });
}

/** Who it is and where, and how another one comes to it. */
function readyLines({ address, server }: Up['ready'], { name, join: joined }: UpFlags): string[] {
  const who = `${name ?? os.hostname()} (${address})`;
  const ready = `ready: ${who}, pid ${process.pid}, bus ${server}`;
  if (joined !== undefined) return [ready];
  return [ready, `another node: herobus --home DIR up --name NAME --join ${server}`];
}

function version(): string {
  const file = new URL('../package.json', import.meta.url);
  const source = new URL('../../package.json', import.meta.url);
  const text = readFileSync(import.meta.url.endsWith('.ts') ? source : file, 'utf8');
  return (JSON.parse(text) as { version: string }).version;
}

function parseCount(text: string): number {
  if (/^\d{1,9}$/.test(text)) return Number(text);
  throw new InvalidArgumentError(`"${text}" is no count, as in 100000`);
}

const parseList = (text: string): string[] => text.split(',').filter((each) => each !== '');

function parseRunners(text: string): RunnerConfig[] {
  return parseList(text).map((each) => {
    const match = /^([a-z]+)=(\d+)(?:@([a-z0-9+-]+))?$/.exec(each);
    const parsed = RunnerConfig.safeParse({
      class: match?.[1],
      slots: Number(match?.[2]),
      contexts: match?.[3]?.split('+') ?? [],
    });
    if (parsed.success) return parsed.data;
    throw new InvalidArgumentError(
      `"${each}" is not class=n or class=n@ctx+ctx, as in process=8@acme`,
    );
  });
}

function parseDurability(text: string): Durability {
  const parsed = Durability.safeParse(text);
  if (parsed.success) return parsed.data;
  throw new InvalidArgumentError(`"${text}" is none of ${Durability.options.join(', ')}`);
}

function parseRoles(text: string): ReadonlySet<Role> {
  const roles = parseList(text).map((each) => {
    const parsed = Role.safeParse(each);
    if (parsed.success) return parsed.data;
    throw new InvalidArgumentError(`"${each}" is none of ${Role.options.join(', ')}`);
  });
  if (roles.length === 0) throw new InvalidArgumentError('name at least one role');
  return new Set(roles);
}
