/**
 * What the system knows about processes that hold what the embedded server needs: its store and its port.
 *
 * Read from /proc; where there is none, nothing is found and the caller's message is shorter.
 */
import { readdir, readFile, readlink } from 'node:fs/promises';

async function pids(): Promise<number[]> {
  const names = await readdir('/proc').catch(() => []);
  return names.filter((name) => /^[0-9]+$/.test(name)).map(Number);
}

async function commandLine(pid: number): Promise<string[]> {
  const text = await readFile(`/proc/${pid}/cmdline`, 'utf8').catch(() => '');
  return text.split('\0').filter((part) => part !== '');
}

/** Running processes that were started with this very argument. */
export async function startedWith(argument: string): Promise<number[]> {
  const found: number[] = [];
  for (const pid of await pids()) {
    if (pid !== process.pid && (await commandLine(pid)).includes(argument)) found.push(pid);
  }
  return found;
}

/** A zombie has ended: it only waits for its parent. */
export async function isRunning(pid: number): Promise<boolean> {
  try {
    process.kill(pid, 0);
  } catch {
    return false;
  }
  const stat = await readFile(`/proc/${pid}/stat`, 'utf8').catch(() => '');
  return stat === '' || !/^\d+ \(.*\) Z/s.test(stat);
}

/** Who listens on a TCP port of this machine, as people read it: `nats-server (pid 12)`. */
export async function portHolder(port: number): Promise<string | undefined> {
  const inodes = new Set<string>();
  for (const table of ['/proc/net/tcp', '/proc/net/tcp6']) {
    const text = await readFile(table, 'utf8').catch(() => '');
    for (const line of text.split('\n').slice(1)) {
      const fields = line.trim().split(/\s+/);
      const [local, state, inode] = [fields[1], fields[3], fields[9]];
      const listens = state === '0A' && Number.parseInt(local?.split(':')[1] ?? '', 16) === port;
      if (listens && inode !== undefined) inodes.add(`socket:[${inode}]`);
    }
  }
  if (inodes.size === 0) return undefined;
  for (const pid of await pids()) {
    const fds = await readdir(`/proc/${pid}/fd`).catch(() => []);
    for (const fd of fds) {
      const target = await readlink(`/proc/${pid}/fd/${fd}`).catch(() => '');
      if (!inodes.has(target)) continue;
      const name = (await commandLine(pid))[0]?.split('/').at(-1) ?? 'a process';
      return `${name} (pid ${pid})`;
    }
  }
  return 'a process of another user';
}
