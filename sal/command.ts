/**
 * Finds the program a command names, as the system would, before anything is started.
 *
 * A program that is missing, not executable, or a working directory that is not there, each has its own
 * clear error here; behind the start gate of `exec.ts` they would all be an exit code of a shell.
 */
import { accessSync, constants, statSync } from 'node:fs';
import { delimiter, isAbsolute, join, resolve } from 'node:path';
import { ensureError, HeroError } from '../schemas/errors.ts';

/** Debian packages of the tools the SALs call, where the name does not say it. */
const DEBIAN_PACKAGES: Record<string, string> = {
  btrfs: 'btrfs-progs',
  'mkfs.btrfs': 'btrfs-progs',
  bwrap: 'bubblewrap',
  curl: 'curl',
  git: 'git',
  ip: 'iproute2',
  jq: 'jq',
  nft: 'nftables',
  node: 'nodejs',
  podman: 'podman',
  psql: 'postgresql-client',
  python3: 'python3',
  'qemu-img': 'qemu-utils',
  'qemu-system-x86_64': 'qemu-system-x86',
  rsync: 'rsync',
  setpriv: 'util-linux',
  tar: 'tar',
};

function missingTool(cmd: string, cause?: unknown): HeroError {
  const debian = Object.hasOwn(DEBIAN_PACKAGES, cmd) ? DEBIAN_PACKAGES[cmd] : undefined;
  const where = debian === undefined ? '' : ` (Debian package ${debian})`;
  return new HeroError('missing_tool', `${cmd} is not installed on this node${where}`, {
    ...(debian === undefined ? {} : { fix: `apt-get install ${debian}` }),
    ...(cause === undefined ? {} : { cause }),
  });
}

type Finding = 'found' | 'missing' | 'not executable';

function look(file: string): Finding {
  try {
    if (!statSync(file).isFile()) return 'not executable';
    accessSync(file, constants.X_OK);
    return 'found';
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === 'EACCES' ? 'not executable' : 'missing';
  }
}

/** Throws when the directory cannot be worked in. */
function checkDirectory(cwd: string): void {
  let directory: boolean;
  try {
    directory = statSync(cwd).isDirectory();
  } catch (error) {
    const missing = (error as NodeJS.ErrnoException).code === 'ENOENT';
    const what = missing ? 'does not exist' : ensureError(error).message;
    throw new HeroError('job_failed', `the working directory ${cwd} ${what}`);
  }
  if (!directory) throw new HeroError('job_failed', `the working directory ${cwd} is none`);
}

/** The absolute path of the program, looked for in the `PATH` the program itself will see. */
export function findCommand(cmd: string, path: string | undefined, cwd: string): string {
  checkDirectory(cwd);
  const candidates = cmd.includes('/')
    ? [isAbsolute(cmd) ? cmd : resolve(cwd, cmd)]
    : (path ?? '')
        .split(delimiter)
        .filter((directory) => directory !== '')
        .map((directory) => join(resolve(cwd, directory), cmd));
  let refused: string | undefined;
  for (const file of candidates) {
    const finding = look(file);
    if (finding === 'found') return file;
    if (finding === 'not executable') refused ??= file;
  }
  if (refused !== undefined) {
    throw new HeroError('job_failed', `${refused} is not an executable file (EACCES)`);
  }
  throw missingTool(cmd);
}
