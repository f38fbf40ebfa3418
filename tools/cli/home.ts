/**
 * The home of a principal: its key, its configuration, its credentials (INTERFACES 4, Home).
 *
 * The key is made once and never overwritten: it is the identity (actors/identity/key-file.ts). Registering
 * it and connecting with it is session.ts.
 */
import { randomBytes } from 'node:crypto';
import { link, mkdir, readFile, rm, writeFile } from 'node:fs/promises';
import { homedir } from 'node:os';
import { join, resolve } from 'node:path';
import { loadOrMakeKey, readKey } from '../../actors/identity/key-file.ts';
import { readIfThere } from '../../bus/atomic-file.ts';
import { identityFromText, type Identity } from '../../bus/identity.ts';
import { HomeConfig } from '../../schemas/config.ts';
import { ensureError } from '../../schemas/errors.ts';
import { usage } from './failure.ts';

export type Home = { dir: string; identity: Identity; config: HomeConfig };

export const homeFile = {
  config: (dir: string) => join(dir, 'config.json'),
  creds: (dir: string) => join(dir, 'bus.creds'),
  joinCreds: (dir: string) => join(dir, 'join.creds'),
  ca: (dir: string) => join(dir, 'ca.pem'),
  data: (dir: string) => join(dir, 'data'),
} as const;

/** `--home`, else `$HEROBUS_HOME`, else `~/.herobus`. */
export function homeDir(given: string | undefined): string {
  const named = given ?? process.env['HEROBUS_HOME'];
  return named === undefined || named === '' ? join(homedir(), '.herobus') : resolve(named);
}

export async function openHome(given: string | undefined): Promise<Home> {
  const dir = homeDir(given);
  const identity = await readKey(dir);
  if (identity === undefined) {
    const where = given === undefined ? '' : ` --home ${given}`;
    throw usage(
      `there is no key in ${dir}`,
      `Make one with \`herobus init${where}\`, or name another home with --home.`,
    );
  }
  return { dir, identity, config: await readConfig(dir) };
}

/** Makes what is missing of a home; what is there stays as it is. */
export async function initHome(
  given: string | undefined,
  name: string | undefined,
): Promise<{ home: Home; made: { key: boolean; config: boolean } }> {
  const dir = homeDir(given);
  await mkdir(dir, { recursive: true, mode: 0o700 }).catch((cause: unknown) => {
    throw usage(`the home ${dir} cannot be made: ${ensureError(cause).message}`);
  });
  const { identity, made: key } = await loadOrMakeKey(dir);
  const fresh = HomeConfig.parse(name === undefined ? {} : { name });
  const config = await writeNew(homeFile.config(dir), `${JSON.stringify(fresh, null, 2)}\n`);
  return { home: { dir, identity, config: await readConfig(dir) }, made: { key, config } };
}

export async function readConfig(dir: string): Promise<HomeConfig> {
  const path = homeFile.config(dir);
  const text = await readIfThere(path);
  if (text === undefined) return HomeConfig.parse({});
  try {
    return HomeConfig.parse(JSON.parse(text));
  } catch (cause) {
    throw usage(
      `${path} is no configuration`,
      'It is a JSON object: {"server": "nats://…" or null, "context": "…" or null}.',
      cause,
    );
  }
}

/** The key in a file that the command line names. */
export async function readKeyFile(path: string): Promise<Identity> {
  let text: string;
  try {
    text = await readFile(path, 'utf8');
  } catch (cause) {
    throw usage(`the key file ${path} cannot be read: ${ensureError(cause).message}`);
  }
  try {
    return identityFromText(text);
  } catch {
    throw usage(
      `${path} holds no key of a user`,
      'A key file is one line that begins with SU, as `herobus init` writes it to key.nk.',
    );
  }
}

/** Writes a file that is not there yet, whole or not at all; false when there is one. */
async function writeNew(path: string, data: string): Promise<boolean> {
  const beside = `${path}.${randomBytes(6).toString('hex')}.tmp`;
  await writeFile(beside, data, { flag: 'wx', flush: true });
  try {
    await link(beside, path);
    return true;
  } catch (error) {
    if (error instanceof Error && 'code' in error && error.code === 'EEXIST') return false;
    throw error;
  } finally {
    await rm(beside, { force: true });
  }
}
