/**
 * A first root file system for Debian's kernel: busybox with all its names, modules, programs, a script to run.
 *
 * The modules lie flat in `/modules`, and `/modules/order` names them one a line in the order to load them, so
 * that the script needs no modprobe. Programs bring the libraries they are linked with, found by ldd.
 */
import { readFile } from 'node:fs/promises';
import { basename } from 'node:path';
import { HeroError } from '../schemas/errors.ts';
import { findCommand } from '../sal/command.ts';
import { exec } from '../sal/exec.ts';
import { cpio, type CpioEntry } from './cpio.ts';
import { type Kernel, moduleFiles } from './kernel.ts';

export type InitramfsSpec = {
  kernel: Kernel;
  /** Modules to bring along, by name; what they depend on comes with them. */
  modules: readonly string[];
  /** Programs of this machine: `/bin/<name>` -> file. */
  programs: Readonly<Record<string, string>>;
  /** Other files: path -> content. */
  files: Readonly<Record<string, string | Uint8Array>>;
  /** What the kernel starts: a script for busybox's shell. */
  init: string;
};

const PATH = '/usr/sbin:/usr/bin:/sbin:/bin';
const ANSWER_MS = 10_000;

export async function initramfs(spec: InitramfsSpec): Promise<Buffer> {
  const busybox = findCommand('busybox', PATH, '/');
  const entries: CpioEntry[] = [
    ...['dev', 'proc', 'sys', 'run', 'tmp', 'root'].map(
      (path): CpioEntry => ({ path, kind: 'folder' }),
    ),
    { path: 'init', kind: 'file', data: Buffer.from(spec.init), executable: true },
    ...(await appletLinks(busybox)),
    ...(await moduleEntries(spec)),
    ...(await programEntries({ ...spec.programs, busybox })),
  ];
  for (const [path, content] of Object.entries(spec.files)) {
    entries.push({ path, kind: 'file', data: Buffer.from(content) });
  }
  return cpio(entries);
}

async function moduleEntries({ kernel, modules }: InitramfsSpec): Promise<CpioEntry[]> {
  const files = await moduleFiles(kernel, modules);
  const entries = files.map(async (file): Promise<CpioEntry> => {
    return { path: `modules/${basename(file)}`, kind: 'file', data: await readFile(file) };
  });
  const order = files.map((file) => `/modules/${basename(file)}\n`).join('');
  return [
    ...(await Promise.all(entries)),
    { path: 'modules/order', kind: 'file', data: Buffer.from(order) },
  ];
}

async function programEntries(programs: Readonly<Record<string, string>>): Promise<CpioEntry[]> {
  const entries: CpioEntry[] = [];
  for (const [name, file] of Object.entries(programs)) {
    const data = await readFile(file);
    entries.push({ path: `bin/${name}`, kind: 'file', data, executable: true });
    for (const library of await librariesOf(file)) {
      const body = await readFile(library);
      entries.push({ path: library, kind: 'file', data: body, executable: true });
    }
  }
  return entries;
}

/** Under the paths by which the program asks for them; none of a program that is linked statically. */
async function librariesOf(file: string): Promise<string[]> {
  const { stdout } = await ask('ldd', [file]);
  return stdout.split('\n').flatMap((line) => {
    const path = /=> (\/\S+)/.exec(line)?.[1] ?? /^\s+(\/\S+) \(0x/.exec(line)?.[1];
    return path === undefined ? [] : [path];
  });
}

async function appletLinks(busybox: string): Promise<CpioEntry[]> {
  const { code, stdout } = await ask(busybox, ['--list']);
  if (code !== 0) throw new HeroError('missing_tool', `${busybox} does not run`);
  const names = stdout.split('\n').filter((name) => name !== '' && name !== 'busybox');
  return names.map((name) => ({ path: `bin/${name}`, kind: 'link', target: 'busybox' }));
}

async function ask(cmd: string, args: string[]): Promise<{ code: number | null; stdout: string }> {
  const signal = AbortSignal.timeout(ANSWER_MS);
  return exec({ cmd, args, env: { PATH, LC_ALL: 'C' }, cwd: '/', stdin: null, signal });
}
