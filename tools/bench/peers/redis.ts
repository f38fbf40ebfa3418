/**
 * redis-server: the one on PATH, else Debian's, unpacked into .cache/bench/redis without installing it.
 *
 * Fetched with the libraries this machine lacks, by the machine's own package sources; where apt's lists are
 * empty or stale, newer ones are read into a folder of their own.
 */
import { execFile } from 'node:child_process';
import { access, constants, mkdir, readdir, rename, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { connect } from 'node:net';
import { CACHE, type Child, freePort, onPath, type Workspace } from '../workspace.ts';

export type AppendFsync = 'always' | 'everysec';
export type Redis = { child: Child; port: number };

const FOLDER = join(CACHE, 'redis');
const APT_WITHIN_MS = 180_000;
const READY_WITHIN_MS = 15_000;
const POLL_MS = 20;

type Binary = { file: string; libraries: string | undefined };

export async function startRedis(workspace: Workspace, fsync: AppendFsync): Promise<Redis> {
  const { file, libraries } = await redisBinary();
  const name = `redis-${fsync}`;
  const port = await freePort();
  const folder = await workspace.subfolder(name);
  const config = join(folder, 'redis.conf');
  const settings = [
    `port ${port}`,
    'bind 127.0.0.1',
    `dir ${JSON.stringify(folder)}`,
    'appendonly yes',
    `appendfsync ${fsync}`,
    'save ""',
  ];
  await writeFile(config, `${settings.join('\n')}\n`);
  const env = libraries === undefined ? {} : { LD_LIBRARY_PATH: libraries };
  const child = workspace.spawn(name, file, [config], { env });
  await child.until(answers(port), READY_WITHIN_MS);
  return { child, port };
}

async function answers(port: number): Promise<void> {
  for (;;) {
    const open = await new Promise<boolean>((resolve) => {
      const socket = connect(port, '127.0.0.1', () => resolve(true));
      socket.once('error', () => resolve(false)).once('connect', () => socket.destroy());
    });
    if (open) return;
    await new Promise((resolve) => setTimeout(resolve, POLL_MS));
  }
}

async function redisBinary(): Promise<Binary> {
  const installed = onPath('redis-server');
  if (installed !== null) return { file: installed, libraries: undefined };
  const file = join(FOLDER, 'usr', 'bin', 'redis-server');
  if (!(await isExecutable(file))) await unpack();
  const lib = join(FOLDER, 'usr', 'lib');
  const folders = (await readdir(lib)).filter((name) => name.endsWith('-linux-gnu'));
  return { file, libraries: folders.map((name) => join(lib, name)).join(':') };
}

async function unpack(): Promise<void> {
  for (const tool of ['apt-get', 'dpkg-deb']) {
    if (onPath(tool) === null) {
      throw new Error(`there is no redis-server on PATH, and no ${tool} to get Debian's with`);
    }
  }
  console.error('bench: unpacking redis-server from Debian into .cache/bench/redis');
  const made = `${FOLDER}.part`;
  await rm(made, { recursive: true, force: true });
  const cache = join(made, 'apt');
  const lists = join(made, 'lists');
  await mkdir(join(cache, 'archives', 'partial'), { recursive: true });
  await mkdir(join(lists, 'partial'), { recursive: true });
  const own = ['-o', `Dir::Cache=${cache}`, '-o', 'Debug::NoLocking=true'];
  // A frozen mirror's release files may be past their date; their signatures are still checked.
  const undated = ['-o', 'Acquire::Check-Valid-Until=false'];
  const newer = ['-o', `Dir::State::Lists=${lists}`, '-o', 'APT::Sandbox::User=root', ...undated];
  const download = [
    'install',
    '--download-only',
    '-y',
    '-q',
    '--no-install-recommends',
    'redis-server',
  ];
  try {
    await run('apt-get', [...own, ...download]).catch(async () => {
      await run('apt-get', [...own, ...newer, 'update', '-q']);
      await run('apt-get', [...own, ...newer, ...download]);
    });
    const archives = join(cache, 'archives');
    for (const name of await readdir(archives)) {
      if (name.endsWith('.deb')) await run('dpkg-deb', ['-x', join(archives, name), made]);
    }
    await rm(cache, { recursive: true });
    await rm(lists, { recursive: true });
    await rm(FOLDER, { recursive: true, force: true });
    await rename(made, FOLDER);
  } finally {
    await rm(made, { recursive: true, force: true });
  }
}

async function run(command: string, args: string[]): Promise<void> {
  await promisify(execFile)(command, args, { timeout: APT_WITHIN_MS }).catch(
    (error: Error & { stderr?: string }) => {
      const said = (error.stderr ?? '').split('\n').find((line) => line.startsWith('E: '));
      throw new Error(`redis-server could not be fetched: ${said ?? error.message}`);
    },
  );
}

async function isExecutable(file: string): Promise<boolean> {
  return access(file, constants.X_OK).then(
    () => true,
    () => false,
  );
}
