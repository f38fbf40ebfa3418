/**
 * Paths below one root directory, entered step by step so that no symlink leads out of it.
 *
 * A path is resolved first (links inside the root are followed), then its directories are opened one
 * within the other without following anything: what was swapped for a link in between is refused, not
 * entered. Callers work on `/proc/self/fd/<directory>/<name>`, which nobody can move from under them.
 */
import { constants } from 'node:fs';
import { type FileHandle, lstat, open, realpath } from 'node:fs/promises';
import { basename, dirname, isAbsolute, join, relative, resolve, sep } from 'node:path';
import { HeroError } from '../schemas/errors.ts';

const DIRECTORY = constants.O_RDONLY | constants.O_DIRECTORY | constants.O_NOFOLLOW;

/** A name in an open directory. */
export type Place = {
  /** The path below the root, for people. */
  shown: string;
  /** How to reach it through the open directory. */
  path: string;
  directory: FileHandle;
  name: string;
};

export const errorCode = (error: unknown): string | undefined =>
  (error as NodeJS.ErrnoException).code;

/** Works at a place while its directory is held open. The root itself has the name `.`. */
export async function atPlace<T>(
  root: string,
  given: string,
  work: (place: Place) => Promise<T>,
): Promise<T> {
  const realRoot = await realpath(root);
  const real = await realPlace(realRoot, given);
  const directory = await enter(realRoot, real === realRoot ? real : dirname(real));
  try {
    const name = real === realRoot ? '.' : basename(real);
    const shown = relative(realRoot, real) || '.';
    return await work({ shown, path: inside(directory, name), directory, name });
  } finally {
    await directory.close();
  }
}

/** Not by `join`, which would take a final `.` away and leave the link to the directory. */
export const inside = (directory: FileHandle, name: string): string =>
  `/proc/self/fd/${directory.fd}/${name}`;

/** Where a path really leads; what does not exist yet counts below the deepest part that does. */
async function realPlace(realRoot: string, given: string): Promise<string> {
  if (given.includes('\0')) throw refused(given);
  const wanted = isAbsolute(given) ? resolve(given) : resolve(realRoot, given);
  if (!isBelow(realRoot, wanted)) throw refused(given);
  const missing: string[] = [];
  for (let existing = wanted; ; existing = dirname(existing)) {
    let real: string;
    try {
      real = await realpath(existing);
    } catch (error) {
      // A link whose target is missing must not be written through.
      const dangling = errorCode(error) !== 'ENOENT' || (await exists(existing));
      if (dangling) throw refused(given);
      missing.unshift(basename(existing));
      continue;
    }
    const place = join(real, ...missing);
    if (!isBelow(realRoot, place)) throw refused(given);
    return place;
  }
}

async function exists(path: string): Promise<boolean> {
  return lstat(path).then(
    () => true,
    () => false,
  );
}

const isBelow = (root: string, path: string): boolean =>
  path === root || path.startsWith(root.endsWith(sep) ? root : root + sep);

function refused(given: string): HeroError {
  return new HeroError('not_allowed', `${given} is outside of the directory files may be in`);
}

async function enter(realRoot: string, real: string): Promise<FileHandle> {
  let directory = await open(realRoot, DIRECTORY);
  const steps = relative(realRoot, real)
    .split(sep)
    .filter((step) => step !== '');
  for (const step of steps) {
    const next = await open(inside(directory, step), DIRECTORY).catch((error: unknown) => {
      const why = errorCode(error) === 'ENOENT' ? 'does not exist' : 'is not a directory';
      return new HeroError('job_failed', `${step} in ${relative(realRoot, real)} ${why}`);
    });
    await directory.close();
    if (next instanceof HeroError) throw next;
    directory = next;
  }
  return directory;
}
