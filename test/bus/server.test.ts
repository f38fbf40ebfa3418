/**
 * The embedded server as a process: it dies with its parent, keeps its port, comes back when killed, and
 * never runs twice on one data folder. Method: real processes, killed with SIGKILL.
 */
import assert from 'node:assert/strict';
import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { mkdir, mkdtemp, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { createServer, type AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { after, describe, it } from 'node:test';
import { fileURLToPath } from 'node:url';
import { Worker } from 'node:worker_threads';
import { makeTrust, openKeys } from '../../bus/credentials.ts';
import { connect, readBusFile, removeBusFile, writeBusFile } from '../../bus/connect.ts';
import { newIdentity } from '../../bus/identity.ts';
import { isRunning, startedWith } from '../../bus/processes.ts';
import { findServerBinary } from '../../bus/server-binary.ts';
import { startServer } from '../../bus/server.ts';
import { until } from './fixtures.ts';
import { startRealBus } from './real-bus.ts';

const cleanups: (() => unknown)[] = [];
after(async () => {
  for (const act of cleanups.reverse()) await act();
});

async function dataFolder(): Promise<string> {
  const dir = await mkdtemp(join(tmpdir(), 'herobus-server-'));
  cleanups.push(() => rm(dir, { recursive: true, force: true }));
  return dir;
}

type Said = { url?: string; pid?: number; error?: string; fix?: string; alarms?: string[] };

/** A server that only says its version, and otherwise does this; each start is a line of `starts`. */
async function standIn(dataDir: string, instead: string): Promise<string> {
  const file = join(dataDir, 'nats-server');
  const version = 'if [ "$1" = --version ]; then echo "nats-server: v2.15.1"; exit; fi';
  const program = `${version}\necho start >> ${dataDir}/starts\n${instead}`;
  await writeFile(file, `#!/bin/sh\n${program}\n`, { mode: 0o755 });
  return file;
}

const startsOf = async (dataDir: string): Promise<number> =>
  (await readFile(join(dataDir, 'starts'), 'utf8')).trimEnd().split('\n').length;

async function startChild(
  dataDir: string,
  env: Record<string, string> = {},
): Promise<{ child: ChildProcess; said: Said }> {
  const script = fileURLToPath(new URL('server-child.ts', import.meta.url));
  const child = spawn(process.execPath, [script, dataDir], {
    env: { ...process.env, ...env },
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  cleanups.push(async () => {
    if (child.exitCode !== null || child.signalCode !== null) return;
    child.kill('SIGKILL');
    await once(child, 'exit');
  });
  const lines = createInterface({ input: child.stdout });
  const [line] = (await once(lines, 'line')) as [string];
  return { child, said: JSON.parse(line) as Said };
}

async function ended(pid: number): Promise<void> {
  const end = performance.now() + 10_000;
  while (await isRunning(pid)) {
    assert.ok(performance.now() < end, `process ${pid} still runs`);
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
}

describe('server - a child of its process', () => {
  it('dies with a parent that is killed; the next start keeps the port', async () => {
    const dataDir = await dataFolder();
    const first = await startChild(dataDir);
    assert.ok(first.said.pid);
    first.child.kill('SIGKILL');
    await once(first.child, 'exit');
    await ended(first.said.pid);
    const second = await startChild(dataDir);
    assert.equal(second.said.url, first.said.url);
    second.child.kill('SIGTERM');
    const [code] = (await once(second.child, 'exit')) as [number | null];
    assert.equal(code, 0);
    assert.ok(second.said.pid);
    assert.equal(await isRunning(second.said.pid), false);
  });

  it('ends a server that outlived its parent before it starts another on the store', async () => {
    const dataDir = await dataFolder();
    const first = await startChild(dataDir);
    const { said } = first;
    first.child.kill('SIGKILL');
    await once(first.child, 'exit');
    assert.ok(said.pid);
    await ended(said.pid);
    // The same server again without anything that binds it to a parent.
    const { file } = await findServerBinary();
    const config = join(dataDir, 'nats', 'server.conf');
    const orphan = spawn(file, ['-c', config], { stdio: 'ignore', detached: true });
    cleanups.push(() => void orphan.kill('SIGKILL'));
    await once(orphan, 'spawn');
    assert.deepEqual(await startedWith(config), [orphan.pid]);
    const second = await startChild(dataDir);
    assert.equal(second.said.url, said.url);
    assert.equal(await isRunning(orphan.pid ?? 0), false);
  });

  it('gives a second `up` on the same folder a clear error', async () => {
    const dataDir = await dataFolder();
    const first = await startChild(dataDir);
    const second = await startChild(dataDir);
    assert.match(second.said.error ?? '', new RegExp(`in use by another.*pid ${first.child.pid}`));
    assert.match(second.said.fix ?? '', /--data/);
    assert.ok(await isRunning(first.said.pid ?? 0));
  });

  it('names who holds its port', async () => {
    const dataDir = await dataFolder();
    const holder = createServer();
    holder.listen(0, '127.0.0.1');
    await once(holder, 'listening');
    cleanups.push(() => void holder.close());
    const { port } = holder.address() as AddressInfo;
    await openKeys(dataDir);
    const trust = await makeTrust(await openKeys(dataDir));
    const options = { dataDir, trust, durability: 'fsync' } as const;
    const server = await startServer(options);
    await server.stop();
    await writeFile(join(dataDir, 'nats', 'port'), `${port}\n`);
    await assert.rejects(startServer(options), (error: Error & { code: string; fix: string }) => {
      assert.equal(error.code, 'unreachable');
      assert.match(error.message, new RegExp(`port ${port} .*pid ${process.pid}`));
      assert.match(error.fix, /nats\/port/);
      return true;
    });
    holder.close();
    await once(holder, 'close');
    const again = await startServer(options);
    assert.match(again.url, new RegExp(`:${port}$`));
    await again.stop();
  });

  it('tells why it cannot start, not what an earlier server logged, once it ended by itself thrice', async () => {
    const dataDir = await dataFolder();
    await mkdir(join(dataDir, 'nats'), { recursive: true });
    const earlier = '[1] 2026/01/01 00:00:00.000000 [ERR] something long ago\n';
    await writeFile(join(dataDir, 'nats', 'server.log'), earlier);
    const file = await standIn(dataDir, 'echo "no such setting" >&2; exit 1');
    const { said } = await startChild(dataDir, { HEROBUS_NATS_SERVER: file });
    assert.match(said.error ?? '', /ended at its start: no such setting$/);
    assert.equal(await startsOf(dataDir), 3);
  });

  it('starts again, and says so, when it is killed at its start, however often', async () => {
    const dataDir = await dataFolder();
    const { file: real } = await findServerBinary();
    const file = await standIn(
      dataDir,
      `[ "$(wc -l < ${dataDir}/starts)" -gt 5 ] && exec ${real} "$@"; kill -9 $$`,
    );
    const { child, said } = await startChild(dataDir, { HEROBUS_NATS_SERVER: file });
    assert.equal(said.error, undefined);
    assert.equal(await startsOf(dataDir), 6);
    assert.equal(said.alarms?.length, 5);
    assert.match(said.alarms?.[0] ?? '', /it was ended by SIGKILL; started again in \d+ ms$/);
    child.kill('SIGTERM');
    await once(child, 'exit');
  });

  it('is not started from a worker thread, whose end would end it', async () => {
    const url = new URL('../../bus/server.ts', import.meta.url).href;
    const source = `import(${JSON.stringify(url)})
      .then((m) => m.startServer({}))
      .catch((e) => require('node:worker_threads').parentPort.postMessage(e.message));`;
    const worker = new Worker(source, { eval: true });
    const [message] = (await once(worker, 'message')) as [string];
    assert.match(message, /main one/);
    await worker.terminate();
  });
});

describe('server - killed and started again', () => {
  it('comes back on its port with what was acknowledged, and connections with it', async () => {
    const bus = await startRealBus({ contexts: ['acme'] });
    cleanups.push(() => bus.close());
    const { controlConnection, server } = bus;
    const states: boolean[] = [];
    controlConnection.link.onChange(({ up }) => states.push(up));
    const { publishAcked, readLast } = await import('../../bus/jetstream.ts');
    const { nats } = controlConnection;
    const subject = 'hb.deploy.acme';
    const ack = await publishAcked(nats, subject, Buffer.from('{}'), { timeoutMs: 5_000 });
    for (let kill = 1; kill <= 2; kill++) {
      const pid = server.pid();
      assert.ok(pid);
      process.kill(pid, 'SIGKILL');
      await until(
        () => server.restarts() === kill && controlConnection.link.state().up,
        'it is back',
      );
      assert.notEqual(server.pid(), pid);
    }
    assert.deepEqual(states, [false, true, false, true]);
    const next = await publishAcked(nats, subject, Buffer.from('{}'), { timeoutMs: 5_000 });
    assert.equal(next.seq, ack.seq + 1);
    assert.equal(await readLast(nats, 'KV_roster', '$KV.roster.none', 5_000), undefined);
    const log = await stat(join(bus.dataDir, 'nats', 'server.log'));
    assert.ok(log.size > 0);
    const pid = server.pid();
    await bus.close();
    assert.equal(await isRunning(pid ?? 0), false);
  });

  it('keeps its secrets to its owner', async () => {
    const dataDir = await dataFolder();
    const keys = await openKeys(dataDir);
    for (const name of Object.keys(keys)) {
      const file = join(dataDir, 'keys', `${name}.nk`);
      assert.equal((await stat(file)).mode & 0o777, 0o600);
      assert.match(await readFile(file, 'utf8'), /^S[AUO][A-Z2-7]{56}\n$/);
    }
    const again = await openKeys(dataDir);
    assert.equal(again.accountSigner.public, keys.accountSigner.public);
  });

  it('tells a client that finds nobody what to do', async () => {
    const identity = newIdentity();
    const connecting = connect({
      server: 'nats://127.0.0.1:1',
      as: { key: identity, jwt: () => '' },
      inboxPrefix: '_INBOX',
    });
    await assert.rejects(connecting, (error: Error & { code: string; fix: string }) => {
      assert.equal(error.code, 'unreachable');
      assert.match(error.message, /nats:\/\/127\.0\.0\.1:1/);
      assert.match(error.fix, /herobus up/);
      return true;
    });
  });

  it('writes bus.json whole and takes it away', async () => {
    const dataDir = await dataFolder();
    assert.equal(await readBusFile(dataDir), undefined);
    const file = {
      url: 'nats://127.0.0.1:4222',
      web: null,
      ca: null,
      join_creds: join(dataDir, 'join.creds'),
      account: 'A',
      pid: process.pid,
      version: '2.15.1',
    };
    await writeBusFile(dataDir, file);
    assert.deepEqual(await readBusFile(dataDir), file);
    await removeBusFile(dataDir);
    assert.equal(await readBusFile(dataDir), undefined);
  });
});
