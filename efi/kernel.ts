/**
 * Debian's kernel as files: the package is downloaded and unpacked into a folder, never installed.
 *
 * The cloud kernel: it has ext4, NVMe and the console built in, and what a virtual machine needs as modules.
 * Debian's package carries no list of dependencies (depmod makes it at the installation), so they are read
 * from the modules themselves.
 *
 * K1 A folder that is there is complete: it is unpacked beside its place and renamed.
 */
import { mkdir, mkdtemp, readdir, readFile, rename, rm } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';
import { HeroError } from '../schemas/errors.ts';
import { exec, exitError } from '../sal/exec.ts';

export const KERNEL_PACKAGE = 'linux-image-cloud-amd64';
/** Where this tree keeps it, below its root. */
export const KERNEL_FOLDER = '.cache/kernel';

export type Kernel = {
  version: string;
  /** The bootable image. */
  image: string;
  /** `lib/modules/<version>`. */
  modules: string;
};

/** The kernel unpacked in this folder; undefined when there is none. */
export async function findKernel(folder: string): Promise<Kernel | undefined> {
  const images = await readdir(join(folder, 'boot')).catch(() => []);
  const name = images.find((each) => each.startsWith('vmlinuz-'));
  if (name === undefined) return undefined;
  const version = name.slice('vmlinuz-'.length);
  return {
    version,
    image: join(folder, 'boot', name),
    modules: join(folder, 'lib/modules', version),
  };
}

/** The same, downloaded from the archive this machine's apt knows where it is not there yet. */
export async function ensureKernel(folder: string): Promise<Kernel> {
  const there = await findKernel(folder);
  if (there !== undefined) return there;
  await mkdir(dirname(folder), { recursive: true });
  const work = await mkdtemp(`${folder}.`);
  try {
    const named = await run('apt-cache', ['depends', '--important', KERNEL_PACKAGE], work);
    const real = /Depends: (linux-image-\S+)/.exec(named)?.[1];
    if (real === undefined) throw notThere(`apt knows no ${KERNEL_PACKAGE}`);
    await run('apt-get', ['-o', 'APT::Sandbox::User=root', 'download', '-q', real], work);
    const file = (await readdir(work)).find((each) => each.endsWith('.deb'));
    if (file === undefined) throw notThere(`apt downloaded no ${real}`);
    await run('dpkg-deb', ['-x', file, 'root'], work);
    // Whoever was faster has unpacked the same.
    await rename(join(work, 'root'), folder).catch(() => undefined);
  } finally {
    await rm(work, { recursive: true, force: true });
  }
  const kernel = await findKernel(folder);
  if (kernel === undefined) throw notThere(`${KERNEL_PACKAGE} holds no kernel`);
  return kernel;
}

function notThere(what: string): HeroError {
  return new HeroError('missing_tool', what, {
    fix: `apt-get update, and see whether \`apt-get download ${KERNEL_PACKAGE}\` works`,
  });
}

async function run(cmd: string, args: string[], cwd: string): Promise<string> {
  const env = { PATH: process.env['PATH'] ?? '', LC_ALL: 'C' };
  const signal = new AbortController().signal;
  const result = await exec({ cmd, args, env, cwd, stdin: null, signal });
  if (result.code !== 0) throw exitError(cmd, result);
  return result.stdout;
}

/**
 * The files of these modules and of all they depend on, each after what it needs: the order to load them in.
 * What is built into the kernel has no file and needs none.
 */
export async function moduleFiles(kernel: Kernel, names: readonly string[]): Promise<string[]> {
  const found = await readdir(join(kernel.modules, 'kernel'), { recursive: true });
  const files = new Map(found.map((file) => [moduleName(file), file]));
  const builtin = await readFile(join(kernel.modules, 'modules.builtin'), 'utf8');
  const inside = new Set(builtin.split('\n').map(moduleName));
  const ordered = new Set<string>();
  const visit = async (name: string): Promise<void> => {
    const file = files.get(name);
    if (file === undefined || !file.includes('.ko')) {
      if (inside.has(name)) return;
      throw new HeroError('missing_tool', `kernel ${kernel.version} has no module ${name}`);
    }
    const path = join(kernel.modules, 'kernel', file);
    if (ordered.has(path)) return;
    for (const needed of dependenciesOf(await readFile(path))) await visit(needed);
    ordered.add(path);
  };
  for (const name of names) await visit(moduleName(name));
  return [...ordered];
}

/** A dash in a file's name is an underscore in the module's. */
const moduleName = (file: string): string =>
  basename(file)
    .replace(/\.ko(\.\w+)?$/, '')
    .replaceAll('-', '_');

/** The section `.modinfo` is a list of `key=value`, each ended by a NUL. */
export function dependenciesOf(module: Buffer): string[] {
  const at = module.indexOf('\0depends=');
  if (at < 0) return [];
  const start = at + '\0depends='.length;
  const text = module.toString('latin1', start, module.indexOf(0, start));
  return text
    .split(',')
    .filter((name) => name !== '')
    .map(moduleName);
}
