/**
 * Finds the nats-server the product runs: HEROBUS_NATS_SERVER, PATH, then what `npm run setup` unpacked.
 *
 * The same order as tools/setup.mjs, which also fetches it; here nothing is fetched. Starting it is
 * bus/server.ts.
 */
import { execFile } from 'node:child_process';
import { access, constants } from 'node:fs/promises';
import { delimiter, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { HeroError } from '../schemas/errors.ts';

export type ServerBinary = { file: string; version: string };

const VERSION_TIMEOUT_MS = 10_000;
const FIX =
  'Run `npm run setup`, put a nats-server of at least 2.12 on PATH, or set HEROBUS_NATS_SERVER.';

export async function findServerBinary(): Promise<ServerBinary> {
  const named = process.env['HEROBUS_NATS_SERVER'];
  const unpacked = fileURLToPath(new URL('../.cache/nats-server/nats-server', import.meta.url));
  const onPath = (process.env['PATH'] ?? '')
    .split(delimiter)
    .filter((dir) => dir !== '')
    .map((dir) => join(dir, 'nats-server'));
  const candidates = named ? [named] : [...onPath, unpacked];
  const rejected: string[] = [];
  for (const file of candidates) {
    if (!(await isExecutable(file))) continue;
    const version = await versionOf(file);
    if (version !== undefined && isNewEnough(version)) return { file, version };
    rejected.push(`${file} ${version === undefined ? 'does not run' : `is ${version}`}`);
  }
  const why =
    named && rejected.length === 0 ? `${named} is no executable file` : rejected.join(', ');
  throw new HeroError(
    'missing_tool',
    `no nats-server of at least 2.12 was found${why === '' ? '' : ` (${why})`}`,
    { fix: FIX },
  );
}

async function isExecutable(file: string): Promise<boolean> {
  return access(file, constants.X_OK).then(
    () => true,
    () => false,
  );
}

async function versionOf(file: string): Promise<string | undefined> {
  try {
    const { stdout, stderr } = await promisify(execFile)(file, ['--version'], {
      timeout: VERSION_TIMEOUT_MS,
    });
    return /v(\d+\.\d+\.\d+)/.exec(stdout + stderr)?.[1];
  } catch {
    return undefined;
  }
}

function isNewEnough(version: string): boolean {
  const [major = 0, minor = 0] = version.split('.').map(Number);
  return major > 2 || (major === 2 && minor >= 12);
}
