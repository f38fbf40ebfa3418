/**
 * `herobus doctor`: what works on this machine and what does not, why, and the command that mends it.
 *
 * It looks and changes nothing: no key is made, nothing is registered. What a node cannot do without fails
 * the command; the rest only says what the machine has no runners for.
 */
import { spawnSync } from 'node:child_process';
import { constants, existsSync } from 'node:fs';
import { access, readFile, stat, statfs } from 'node:fs/promises';
import { connect } from 'node:net';
import type { Command } from 'commander';
import { keyPath } from '../../actors/identity/key-file.ts';
import { CLOCK_TOLERANCE_MS } from '../../actors/flow/authorise.ts';
import { openJoinLink } from '../../actors/identity/register.ts';
import { NONCE_TTL_MS } from '../../actors/ledger/proofs.ts';
import { readIfThere } from '../../bus/atomic-file.ts';
import { readLosses } from '../../bus/watermark-losses.ts';
import { findServerBinary } from '../../bus/server-binary.ts';
import type { Answer } from '../../schemas/answers.ts';
import { ensureError, HeroError } from '../../schemas/errors.ts';
import { Challenge } from '../../schemas/ledger.ts';
import { EXIT } from './failure.ts';
import { homeDir, homeFile, openHome, readConfig } from './home.ts';
import { globals, print, printJson, table, withExample } from './output.ts';
import { findBus } from './session.ts';

type Check = Answer<'checks'>['checks'][number];
type Outcome = { ok: boolean; detail: string; fix?: string };
type Looking = { name: string; needed: boolean; look: () => Promise<Outcome> | Outcome };

const NODE_MIN = 24;
const DISK_FREE_MIN_BYTES = 2 ** 30;
const BUS_ANSWERS_WITHIN_MS = 3000;
/** The newest ones; all stand in the file. */
const LOSSES_SHOWN = 3;
/** A command that cannot say its version this fast is not well. */
const VERSION_WITHIN_MS = 5000;

export function registerDoctor(program: Command): void {
  const command = program
    .command('doctor')
    .summary('what works on this machine, and what mends the rest')
    .description(
      'Looks at this machine, the home and the bus: what works, what does not and why, and the command that mends it. Changes nothing. Exits with 1 where something is missing that every node needs.',
    )
    .action(async (_options: object, self: Command) => {
      const { checks, sick } = await examine(self);
      if (globals(self).json) printJson('checks', { checks });
      else print(report(checks));
      process.exitCode = sick ? EXIT.failed : EXIT.done;
    });
  withExample(command, 'herobus doctor', 'herobus doctor --json');
}

async function examine(self: Command): Promise<{ checks: Check[]; sick: boolean }> {
  const checks: Check[] = [];
  let sick = false;
  for (const { name, needed, look } of [
    ...ofMachine(homeDir(globals(self).home)),
    ...ofBus(self),
  ]) {
    const { ok, detail, fix } = await Promise.resolve()
      .then(look)
      .catch((error: unknown): Outcome => {
        const told = error instanceof HeroError ? error.fix : undefined;
        const failed = { ok: false, detail: ensureError(error).message };
        return told === undefined ? failed : { ...failed, fix: told };
      });
    checks.push({ name, ok, detail, fix: ok ? null : (fix ?? null) });
    if (needed && !ok) sick = true;
  }
  return { checks, sick };
}

function ofMachine(home: string): Looking[] {
  const apt = (name: string): string => `apt-get install ${name}`;
  return [
    { name: 'node', needed: true, look: nodeVersion },
    { name: 'nats-server', needed: true, look: natsServer },
    { name: 'setpriv', needed: true, look: () => tool('setpriv', apt('util-linux')) },
    { name: 'unshare', needed: true, look: () => tool('unshare', apt('util-linux')) },
    { name: 'cgroup', needed: false, look: cgroup },
    { name: 'kvm', needed: false, look: kvm },
    { name: 'podman', needed: false, look: () => tool('podman', apt('podman')) },
    { name: 'qemu', needed: false, look: () => tool(qemuName(), apt('qemu-system')) },
    { name: 'btrfs', needed: false, look: () => tool('btrfs', apt('btrfs-progs')) },
    { name: 'bubblewrap', needed: false, look: () => tool('bwrap', apt('bubblewrap')) },
    {
      name: 'mycelium',
      needed: false,
      look: () => tool('mycelium', 'install a release of github.com/threefoldtech/mycelium'),
    },
    { name: 'disk', needed: true, look: () => disk(home) },
    { name: 'key', needed: true, look: () => key(home) },
    { name: 'losses', needed: false, look: () => losses(home) },
  ];
}

function ofBus(self: Command): Looking[] {
  return [
    { name: 'bus', needed: false, look: () => bus(self) },
    { name: 'clock', needed: false, look: () => clock(self) },
  ];
}

function nodeVersion(): Outcome {
  const { version, execPath } = process;
  const ok = Number.parseInt(version.slice(1), 10) >= NODE_MIN;
  return { ok, detail: `${version}, ${execPath}`, fix: 'npm run setup' };
}

async function natsServer(): Promise<Outcome> {
  const { file, version } = await findServerBinary();
  return { ok: true, detail: `${version}, ${file}` };
}

function tool(name: string, fix: string): Outcome {
  const ran = spawnSync(name, ['--version'], { encoding: 'utf8', timeout: VERSION_WITHIN_MS });
  if (ran.error !== undefined) {
    const missing = 'code' in ran.error && ran.error.code === 'ENOENT';
    return { ok: false, detail: missing ? `${name} is not on PATH` : ran.error.message, fix };
  }
  const said = `${ran.stdout}${ran.stderr}`.trim().split('\n')[0] ?? '';
  if (ran.status === 0) return { ok: true, detail: said };
  return { ok: false, detail: `${name} --version ended with ${ran.status}: ${said}`, fix };
}

const qemuName = (): string => `qemu-system-${process.arch === 'arm64' ? 'aarch64' : 'x86_64'}`;

async function cgroup(): Promise<Outcome> {
  const root = '/sys/fs/cgroup';
  const fix = 'boot with the kernel argument systemd.unified_cgroup_hierarchy=1';
  if (!existsSync(`${root}/cgroup.controllers`)) {
    return { ok: false, detail: 'no unified hierarchy (version 2): jobs have no limits', fix };
  }
  const controllers = (await readFile(`${root}/cgroup.controllers`, 'utf8')).trim();
  const writable = await allowed(root, constants.W_OK);
  const detail = `version 2: ${controllers || 'no controllers'}`;
  if (writable) return { ok: true, detail };
  return {
    ok: false,
    detail: `${detail}; not writable: jobs have no limits`,
    fix: 'systemd-run --user --scope -p Delegate=yes herobus up',
  };
}

async function kvm(): Promise<Outcome> {
  const device = '/dev/kvm';
  if (!existsSync(device)) {
    return { ok: false, detail: `${device} is not there: VMs are emulated`, fix: 'modprobe kvm' };
  }
  const ok = await allowed(device, constants.R_OK | constants.W_OK);
  const detail = ok ? `${device} can be used` : `${device} may not be opened`;
  return { ok, detail, fix: 'usermod -aG kvm "$USER"' };
}

async function disk(home: string): Promise<Outcome> {
  const folder = existsSync(home) ? home : '/';
  const { bavail, bsize } = await statfs(folder);
  const free = bavail * bsize;
  const detail = `${(free / 2 ** 30).toFixed(1)} GiB free for ${folder}`;
  const fix = `make room, or name another folder: herobus up --data DIR`;
  return { ok: free >= DISK_FREE_MIN_BYTES, detail, fix };
}

async function key(home: string): Promise<Outcome> {
  const path = keyPath(home);
  if (!existsSync(path)) {
    return { ok: false, detail: `there is no key in ${home}`, fix: 'herobus init' };
  }
  const mode = (await stat(path)).mode & 0o777;
  const detail = `${path} has mode ${mode.toString(8).padStart(4, '0')}`;
  const ok = (mode & 0o077) === 0;
  return { ok, detail: ok ? detail : `${detail}: others may read it`, fix: `chmod 600 ${path}` };
}

/** What the bus of this home lost and somebody accepted: nothing mends it, but it has to stay known. */
async function losses(home: string): Promise<Outcome> {
  const { data } = await readConfig(home);
  const folder = data ?? homeFile.data(home);
  const accepted = await readLosses(folder);
  if (accepted.length === 0) return { ok: true, detail: 'no loss was accepted' };
  const told = accepted.map(({ stream, from, to, at, by }) => {
    const range = to === null ? '' : ` ${from ?? '?'} to ${to}`;
    return `${stream ?? 'unknown streams'}${range}, accepted ${at} by ${by}`;
  });
  const more = told.length > LOSSES_SHOWN ? [`${told.length - LOSSES_SHOWN} before them`] : [];
  return { ok: true, detail: [...told.slice(-LOSSES_SHOWN).toReversed(), ...more].join('; ') };
}

/** A NATS server speaks first: its greeting is the sign that a bus is there, for whoever has no rights yet. */
async function bus(self: Command): Promise<Outcome> {
  const home = await openHome(globals(self).home);
  const { url } = await findBus(globals(self), home);
  const { hostname, port } = new URL(url);
  const greeting = await greetingOf(hostname.replace(/^\[|\]$/g, ''), Number(port || 4222));
  const version = /"version":"([^"]+)"/.exec(greeting)?.[1];
  if (version !== undefined) return { ok: true, detail: `nats-server ${version} at ${url}` };
  return { ok: false, detail: `what answers at ${url} is no NATS server`, fix: 'herobus up' };
}

function greetingOf(host: string, port: number): Promise<string> {
  return new Promise((resolve, reject) => {
    const socket = connect({ host, port });
    const end = (error?: Error): void => {
      socket.destroy();
      if (error === undefined) return;
      const fix = 'Start the bus with `herobus up`, or name another with --server.';
      reject(new HeroError('unreachable', `${host}:${port}: ${error.message}`, { fix }));
    };
    socket.setTimeout(BUS_ANSWERS_WITHIN_MS, () => end(new Error('it does not answer')));
    socket.once('error', end);
    socket.once('data', (data) => {
      resolve(data.toString('utf8'));
      end();
    });
  });
}

/** By the ledger's nonce, which anybody may ask for: it says when it ends, by the clock of the bus. */
async function clock(self: Command): Promise<Outcome> {
  const home = await openHome(globals(self).home);
  const { url, joinCreds, ca } = await findBus(globals(self), home);
  const creds = await readIfThere(joinCreds);
  const link = await openJoinLink({ server: url, creds, ...(ca === undefined ? {} : { ca }) });
  try {
    const askedMs = Date.now();
    const reply = Challenge.parse(
      await link.ask('challenge', { principal: home.identity.principal }),
    );
    const busMs = Date.parse(reply.expires_at) - NONCE_TTL_MS;
    const aheadMs = (askedMs + Date.now()) / 2 - busMs;
    const seconds = (Math.abs(aheadMs) / 1000).toFixed(1);
    return {
      ok: Math.abs(aheadMs) < CLOCK_TOLERANCE_MS,
      detail: `${seconds} s ${aheadMs < 0 ? 'behind' : 'ahead of'} the bus`,
      fix: 'timedatectl set-ntp true',
    };
  } finally {
    await link.close();
  }
}

async function allowed(path: string, mode: number): Promise<boolean> {
  return access(path, mode).then(
    () => true,
    () => false,
  );
}

function report(checks: readonly Check[]): string {
  return table(
    ['CHECK', '', 'WHAT', 'FIX'],
    checks.map(({ name, ok, detail, fix }) => [name, ok ? 'ok' : 'no', detail, fix ?? '']),
  );
}
