/**
 * One `up` for one data folder.
 *
 * The lock is a listening unix socket (abstract on Linux), because the kernel gives it up with its process
 * however that ends: nothing is left behind that a later start would have to judge. Who holds it answers
 * with its pid.
 */
import { createHash } from 'node:crypto';
import { mkdir, realpath, rm } from 'node:fs/promises';
import { connect, createServer, type Server } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { HeroError } from '../schemas/errors.ts';

const ANSWER_TIMEOUT_MS = 1000;

export type DataLock = { release(): Promise<void> };

export async function lockData(dataDir: string): Promise<DataLock> {
  await mkdir(dataDir, { recursive: true, mode: 0o700 });
  const name = createHash('sha256')
    .update(await realpath(dataDir))
    .digest('hex')
    .slice(0, 32);
  const abstract = process.platform === 'linux';
  const path = abstract ? `\0herobus-${name}` : join(tmpdir(), `herobus-${name}.sock`);
  const server = await listen(path).catch(async () => {
    const holder = await askHolder(path);
    if (!abstract && holder === 'gone') {
      await rm(path, { force: true });
      return listen(path);
    }
    throw new HeroError('not_allowed', `${dataDir} is in use by another \`up\`${holder}`, {
      fix: 'Stop it first, or give this one a folder of its own with --data.',
    });
  });
  return {
    release: () => new Promise((resolve) => server.close(() => resolve())),
  };
}

function listen(path: string): Promise<Server> {
  return new Promise((resolve, reject) => {
    const server = createServer((socket) => {
      socket.on('error', () => socket.destroy());
      socket.end(String(process.pid));
    });
    server.once('error', reject);
    server.listen({ path }, () => {
      // The lock alone keeps no process alive.
      server.unref();
      resolve(server);
    });
  });
}

/** ` (pid N)`, an empty text when the holder does not answer, `gone` when nobody holds it. */
function askHolder(path: string): Promise<string> {
  return new Promise((resolve) => {
    let answer = '';
    const socket = connect({ path });
    socket.setTimeout(ANSWER_TIMEOUT_MS, () => socket.destroy());
    socket.on('data', (data) => (answer += data.toString()));
    socket.on('error', () => resolve('gone'));
    socket.on('close', () => resolve(/^\d+$/.test(answer) ? ` (pid ${answer})` : ''));
  });
}
