/**
 * A folder of a job's own: made for one attempt, filled with the files it asked for, removed after it.
 *
 *   J1 nothing is written outside the folder: a path is judged before, and nothing on the way to a file is
 *      followed where it leads;
 *   J2 nothing that is there is written over;
 *   J3 what a killed runner left behind is removed when its successor starts (its root is removed).
 * Where the bytes come from, and that they are the right ones, is the caller's business.
 */
import { constants } from 'node:fs';
import { lstat, mkdir, mkdtemp, open, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { folderPathFault } from '../schemas/blob.ts';
import { ensureError, HeroError } from '../schemas/errors.ts';

export type FileToPlace = { path: string; bytes: Uint8Array };

/** The owner's alone; executable, since a script sent along is run like any other program. */
const FILE_MODE = 0o700;
const CREATE = constants.O_WRONLY | constants.O_CREAT | constants.O_EXCL | constants.O_NOFOLLOW;

/** Makes a fresh folder under `root` for one attempt; `name` is for people. */
export async function makeJobFolder(root: string, name: string): Promise<string> {
  await mkdir(root, { recursive: true, mode: 0o700 });
  return mkdtemp(join(root, `${name}-`));
}

/** Writes the files into the folder; throws bad_job where one cannot stand there. */
export async function placeFiles(folder: string, files: readonly FileToPlace[]): Promise<void> {
  for (const { path, bytes } of files) {
    const fault = folderPathFault(path);
    if (fault !== undefined) throw new HeroError('bad_job', `"${path}" cannot be placed: ${fault}`);
    const parts = path.split('/');
    const file = parts.pop() ?? '';
    let parent = folder;
    for (const part of parts) {
      parent = join(parent, part);
      await enter(parent, path);
    }
    await write(join(parent, file), path, bytes);
  }
}

/** A folder on the way: made, or there already and truly a folder. */
async function enter(place: string, path: string): Promise<void> {
  try {
    await mkdir(place, { mode: 0o700 });
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw unplaced(path, error);
    if (!(await lstat(place)).isDirectory()) {
      throw new HeroError('bad_job', `"${path}" cannot be placed: a part of it is no folder`);
    }
  }
}

async function write(place: string, path: string, bytes: Uint8Array): Promise<void> {
  try {
    const file = await open(place, CREATE, FILE_MODE);
    try {
      await file.writeFile(bytes);
    } finally {
      await file.close();
    }
  } catch (error) {
    throw unplaced(path, error);
  }
}

function unplaced(path: string, error: unknown): HeroError {
  const { code } = error as NodeJS.ErrnoException;
  const why = code === 'EEXIST' ? 'something stands there already' : ensureError(error).message;
  return new HeroError('bad_job', `"${path}" cannot be placed: ${why}`);
}

/** Removes a folder with all that is in it; what cannot be removed waits for the runner's next start. */
export async function removeJobFolder(folder: string): Promise<void> {
  await rm(folder, { recursive: true, force: true, maxRetries: 3 }).catch(() => undefined);
}
