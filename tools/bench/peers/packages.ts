/**
 * Packages of the peers, installed on demand into .cache/bench/peers: they are measured against, and no part
 * of the product. Exact versions, without their install scripts.
 */
import { execFile } from 'node:child_process';
import { mkdir, writeFile } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { promisify } from 'node:util';
import { readIfThere } from '../../../bus/atomic-file.ts';
import { CACHE } from '../workspace.ts';

const FOLDER = join(CACHE, 'peers');
const MANIFEST = JSON.stringify({
  name: 'herobus-bench-peers',
  private: true,
  dependencies: {
    bullmq: '6.7.0',
    ioredis: '5.11.1',
    '@restatedev/restate-sdk': '1.17.2',
    '@restatedev/restate-server': '1.7.12',
  },
});
const INSTALL_WITHIN_MS = 300_000;

let installing: Promise<void> | undefined;

/** Installs what is not there; throws why it cannot. */
export function installPackages(): Promise<void> {
  installing ??= install();
  return installing;
}

async function install(): Promise<void> {
  const stamp = join(FOLDER, 'node_modules', '.installed');
  if ((await readIfThere(stamp)) === MANIFEST) return;
  await mkdir(FOLDER, { recursive: true });
  await writeFile(join(FOLDER, 'package.json'), MANIFEST);
  console.error('bench: installing the peers (BullMQ, Restate) into .cache/bench/peers');
  const args = ['install', '--no-audit', '--no-fund', '--ignore-scripts', '--loglevel=error'];
  await promisify(execFile)('npm', args, { cwd: FOLDER, timeout: INSTALL_WITHIN_MS }).catch(
    (error: Error & { stderr?: string }) => {
      const said = (error.stderr ?? '').trim().split('\n').slice(0, 3).join(' ');
      throw new Error(`npm could not install the peers: ${said === '' ? error.message : said}`);
    },
  );
  await writeFile(stamp, MANIFEST);
}

const resolver = createRequire(join(FOLDER, 'package.json'));

/** Loads one of the packages; what of it is used, the caller says by `T`. */
export async function peerPackage<T>(name: string): Promise<T> {
  return (await import(pathToFileURL(resolver.resolve(name)).href)) as T;
}

/** The path of a file in one of the packages. */
export function peerFile(name: string, file: string): string {
  return join(FOLDER, 'node_modules', name, file);
}
