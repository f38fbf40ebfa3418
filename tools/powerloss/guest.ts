/**
 * A virtual machine with a nats-server in it, whose power can be cut.
 *
 * Debian's kernel, busybox and the very server and configuration of this machine, under qemu without
 * acceleration. A killed qemu is a power cut: what the guest's kernel had not yet written to its disk is gone
 * with the guest's memory; what had been written is in the file that is the disk. The disk says that it caches
 * nothing (writethrough), so that what counts as written is one thing on all hosts.
 *
 * G1 No guest outlives `cutPower`, nor this process.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { writeFile } from 'node:fs/promises';
import { createServer, type AddressInfo } from 'node:net';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { makeTrust, type BusKeys } from '../../bus/credentials.ts';
import { findServerBinary } from '../../bus/server-binary.ts';
import { serverConfig } from '../../bus/server-config.ts';
import { initramfs } from '../../efi/initramfs.ts';
import type { Kernel } from '../../efi/kernel.ts';
import { boundToParent } from '../bench/workspace.ts';

/** `relaxed` leaves the server its own interval: two minutes. */
export const DURABILITIES = ['fsync', 'relaxed'] as const;
export type GuestDurability = (typeof DURABILITIES)[number];

export type Machine = { kernel: Kernel; initrd: string; disk: string };

export type Guest = {
  url: string;
  /** At once, in the middle of whatever it does. */
  cutPower(): Promise<void>;
};

const GUEST_PORT = 4222;
const DATA = '/data';
/** Sparse; the server takes three quarters of it, and the streams reserve more than a gigabyte. */
const DISK_SIZE = '4G';
const MEMORY_MIB = 384;
const MODULES = ['virtio_pci', 'virtio_blk', 'virtio_net', 'virtio_rng'];
const READY = 'SERVER-READY';
const READY_WITHIN_MS = 120_000;
const SAID_LINES = 30;

/** The kernel hands `durability=…` of its command line on as a variable. */
const INIT = `#!/bin/sh
export PATH=/bin
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mount -t tmpfs run /run
while read -r module; do insmod "$module"; done < /modules/order
ip link set lo up
ip addr add 10.0.2.15/24 dev eth0
ip link set eth0 up
mkdir -p ${DATA} /run/ports
mount -t ext4 /dev/vda ${DATA} || poweroff -f
mkdir -p ${DATA}/nats
nats-server -c "/etc/$durability.conf" --ports_file_dir /run/ports &
server=$!
until [ -s /run/ports/*.ports ] || [ ! -e /proc/$server/exe ]; do usleep 20000; done
[ -e /proc/$server/exe ] && echo ${READY}
wait
echo 'the server ended:'
tail -n 20 ${DATA}/nats/server.log
poweroff -f
`;

/** Makes what a guest is started from: its root file system, and an empty disk. */
export async function makeMachine(folder: string, kernel: Kernel, keys: BusKeys): Promise<Machine> {
  const trust = await makeTrust(keys);
  const options = { dataDir: DATA, trust, host: '0.0.0.0' };
  const files = DURABILITIES.map((durability) => [
    `etc/${durability}.conf`,
    serverConfig({ ...options, durability }, GUEST_PORT),
  ]);
  const { file } = await findServerBinary();
  const image = await initramfs({
    kernel,
    modules: MODULES,
    programs: { 'nats-server': file },
    files: Object.fromEntries(files) as Record<string, string>,
    init: INIT,
  });
  const machine = { kernel, initrd: join(folder, 'initrd'), disk: join(folder, 'disk') };
  await writeFile(machine.initrd, image);
  const format = spawn('mke2fs', ['-q', '-t', 'ext4', machine.disk, DISK_SIZE], {
    stdio: ['ignore', 'ignore', 'inherit'],
  });
  const [code] = (await once(format, 'exit')) as [number | null];
  if (code !== 0) throw new Error(`mke2fs ended with ${code}`);
  return machine;
}

/** Resolves when the server in it takes clients. */
export async function boot(machine: Machine, durability: GuestDurability): Promise<Guest> {
  const port = await freePort();
  const [command, args] = boundToParent(
    'qemu-system-x86_64',
    qemuArguments(machine, durability, port),
  );
  const child = spawn(command, args, { stdio: ['ignore', 'pipe', 'pipe'] });
  const gone = once(child, 'exit').catch(() => undefined);
  const cutPower = async (): Promise<void> => {
    child.kill('SIGKILL');
    await gone;
  };
  try {
    await ready(child);
    return { url: `nats://127.0.0.1:${port}`, cutPower };
  } catch (error) {
    await cutPower();
    throw error;
  }
}

function qemuArguments(machine: Machine, durability: GuestDurability, port: number): string[] {
  const { kernel, initrd, disk } = machine;
  const options = [
    ['-machine', 'q35'],
    ['-accel', 'tcg,thread=multi'],
    ['-smp', '2'],
    ['-m', String(MEMORY_MIB)],
    ['-nodefaults', '-no-user-config', '-no-reboot'],
    ['-display', 'none'],
    ['-serial', 'stdio'],
    ['-kernel', kernel.image],
    ['-initrd', initrd],
    ['-append', `console=ttyS0 quiet panic=-1 no_timer_check durability=${durability}`],
    ['-drive', `if=none,id=disk,format=raw,cache=writethrough,file=${disk}`],
    ['-device', 'virtio-blk-pci,drive=disk'],
    ['-device', 'virtio-rng-pci'],
    ['-netdev', `user,id=net,restrict=on,hostfwd=tcp:127.0.0.1:${port}-:${GUEST_PORT}`],
    ['-device', 'virtio-net-pci,netdev=net,romfile='],
  ];
  return options.flat();
}

/** What it said last is what tells why it did not come up. */
async function ready(child: ChildProcess): Promise<void> {
  const said: string[] = [];
  const isReady = Promise.withResolvers<void>();
  const failed = (how: string) => isReady.reject(new Error(`${how}: ${said.join('\n')}`));
  for (const stream of [child.stdout, child.stderr]) {
    if (stream === null) continue;
    createInterface({ input: stream }).on('line', (line) => {
      said.push(line);
      said.splice(0, said.length - SAID_LINES);
      if (line.includes(READY)) isReady.resolve();
    });
  }
  child.once('error', (error) => failed(error.message));
  child.once('exit', () => failed('the guest ended'));
  const late = setTimeout(() => failed('the guest did not come up'), READY_WITHIN_MS);
  await isReady.promise.finally(() => clearTimeout(late));
}

async function freePort(): Promise<number> {
  const probe = createServer().listen(0, '127.0.0.1');
  await once(probe, 'listening');
  const { port } = probe.address() as AddressInfo;
  probe.close();
  await once(probe, 'close');
  return port;
}
