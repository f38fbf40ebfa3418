/**
 * The home's key, `key.nk`: one line, mode 0600, made once and never overwritten (INTERFACES 4).
 *
 * A key that cannot be read is an error with its fix, never a reason to make another: the key is who this
 * node is. What follows from a key is bus/identity.ts.
 */
import { randomBytes } from 'node:crypto';
import { link, mkdir, open, rm, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { readIfThere, SECRET_MODE } from '../../bus/atomic-file.ts';
import { identityFromText, newIdentity, type Identity } from '../../bus/identity.ts';
import { HeroError, ensureError } from '../../schemas/errors.ts';

export const keyPath = (home: string) => join(home, 'key.nk');

/** Reads the home's key; makes it when there is none. Two that make it at once end up with the same. */
export async function loadOrMakeKey(home: string): Promise<{ identity: Identity; made: boolean }> {
  const known = await readKey(home);
  if (known !== undefined) return { identity: known, made: false };
  const made = await makeKey(home);
  const identity = await readKey(home);
  if (identity === undefined) throw unreadable(home, 'it was removed while it was made');
  return { identity, made };
}

/** The home's key; undefined when it has none yet. */
export async function readKey(home: string): Promise<Identity | undefined> {
  const path = keyPath(home);
  const text = await readIfThere(path).catch((error: unknown) => {
    throw unreadable(home, ensureError(error).message);
  });
  if (text === undefined) return undefined;
  const { mode } = await stat(path);
  if ((mode & 0o077) !== 0) {
    throw new HeroError('not_allowed', `${path} can be read by others (mode ${octal(mode)})`, {
      fix: `chmod 600 ${path}`,
    });
  }
  try {
    return identityFromText(text);
  } catch (error) {
    throw unreadable(home, ensureError(error).message);
  }
}

/** Written beside and linked: the name appears with the whole key in it, or not at all. */
async function makeKey(home: string): Promise<boolean> {
  await mkdir(home, { recursive: true, mode: 0o700 });
  const beside = `${keyPath(home)}.${randomBytes(6).toString('hex')}.tmp`;
  const file = await open(beside, 'wx', SECRET_MODE);
  try {
    await file.writeFile(`${newIdentity().seedText()}\n`);
    await file.sync();
  } finally {
    await file.close();
  }
  try {
    await link(beside, keyPath(home));
    return true;
  } catch (error) {
    if (error instanceof Error && 'code' in error && error.code === 'EEXIST') return false;
    throw error;
  } finally {
    await rm(beside, { force: true });
  }
}

function unreadable(home: string, why: string): HeroError {
  return new HeroError('bad_request', `the key ${keyPath(home)} cannot be used: ${why}`, {
    fix: 'Restore the file from a copy. To become another principal, move it away by hand.',
  });
}

const octal = (mode: number) => (mode & 0o777).toString(8).padStart(4, '0');
