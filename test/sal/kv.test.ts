/**
 * The kv SAL against the supervisor's real socket over a bucket in memory: K1-K3 of
 * `supervisors/kv-socket.ts`, typed values, and what happens while nobody answers.
 */
import assert from 'node:assert/strict';
import { mkdtempSync, rmSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, test } from 'node:test';
import type { Bus, Kv, KvEntry } from '../../bus/bus.ts';
import { RevisionLost } from '../../bus/bus.ts';
import { newIdentity } from '../../bus/identity.ts';
import { Registry, type SalContext } from '../../sal/driver.ts';
import { kvFamily } from '../../sal/kv.ts';
import { HeroError } from '../../schemas/errors.ts';
import { exactJson, type JsonValue, parseStrict, stringifyTyped } from '../../schemas/json.ts';
import { type KvSocketServer, serveKv } from '../../supervisors/kv-socket.ts';

const { principal, address } = newIdentity();
let folder: string;
let bucket: MemoryBucket;
let server: KvSocketServer;
let registry: Registry;

/** A bucket that keeps the JSON text of its values, as the stream does. */
class MemoryBucket {
  readonly texts = new Map<string, { text: string; revision: number }>();
  writes = 0;
  fails = 0;
  /** Runs between a request's look and its write. */
  meanwhile: (() => void) | undefined;
  #revision = 0;

  set(key: string, text: string): number {
    this.texts.set(key, { text, revision: ++this.#revision });
    return this.#revision;
  }

  kv(): Kv {
    const write = async (key: string, value: unknown, revision: number): Promise<number> => {
      this.meanwhile?.();
      this.meanwhile = undefined;
      if (this.fails-- > 0) throw new HeroError('unreachable', 'the bus is away');
      if ((this.texts.get(key)?.revision ?? 0) !== revision) throw new RevisionLost(key);
      this.writes++;
      return this.set(key, JSON.stringify(value));
    };
    return {
      get: async (key): Promise<KvEntry | undefined> => {
        const found = this.texts.get(key);
        if (found === undefined) return undefined;
        return { key, value: exactJson(found.text), revision: found.revision, at: 0 };
      },
      revision: async (key) => this.texts.get(key)?.revision ?? 0,
      create: (key, value) => write(key, value, 0),
      update: (key, value, revision) => write(key, value, revision),
      put: async (key, value) => this.set(key, JSON.stringify(value)),
      delete: async (key, revision) => {
        if (revision !== undefined && this.texts.get(key)?.revision !== revision) {
          throw new RevisionLost(key);
        }
        this.texts.delete(key);
        this.writes++;
      },
      list: async (prefix = '') =>
        [...this.texts.keys()].filter((key) => key.startsWith(prefix)).toSorted(),
      watch: async () => ({ stop: () => undefined }),
    };
  }
}

const serve = (): Promise<KvSocketServer> => {
  const bus = {
    kv: (name: string) => {
      assert.equal(name, `user_${address}`);
      return bucket.kv();
    },
  };
  return serveKv(bus as unknown as Bus, join(folder, 'kv.sock'));
};

beforeEach(async () => {
  folder = mkdtempSync(join(tmpdir(), 'herobus-kv-'));
  bucket = new MemoryBucket();
  server = await serve();
  registry = new Registry([kvFamily(server)]);
});
afterEach(async () => {
  await server.close();
  rmSync(folder, { recursive: true, force: true });
});

const context = (n: number, attempt: number): SalContext => ({
  jobId: `${'k'.repeat(26)}.${n}`,
  attempt,
  caller: principal,
  deadlineMs: null,
  signal: new AbortController().signal,
  log: () => undefined,
});

/** Arguments and answer as typed JSON text, as a job has them. */
const run = async (op: string, args: string, n = 0, attempt = 1): Promise<string> =>
  stringifyTyped(
    await registry.operation(`kv.${op}`).bind(parseStrict(args)).run(context(n, attempt)),
  );

const fails = (code: string) => (error: unknown) => {
  assert.ok(error instanceof HeroError, String(error));
  assert.equal(error.code, code, error.message);
  return true;
};

test('kv - values keep their types on the way in and out', async () => {
  const values: JsonValue[] = [
    '{"a":[1,1.0,9223372036854775807,null,true,"é"]}',
    '1.5e300',
    '0',
  ].map((text) => parseStrict(text));
  for (const [n, value] of values.entries()) {
    const text = stringifyTyped(value);
    assert.equal(await run('set', `{"key":"k","value":${text}}`, n), 'null');
    assert.equal(await run('get', '{"key":"k"}'), text);
  }
  assert.equal(await run('get', '{"key":"none"}'), 'null');
});

test('kv - list and delete', async () => {
  await run('set', '{"key":"a/1","value":1}', 0);
  await run('set', '{"key":"a/2","value":1}', 1);
  await run('set', '{"key":"b","value":1}', 2);
  assert.equal(await run('list', '{"prefix":"a/"}'), '["a/1","a/2"]');
  assert.equal(await run('list', '{}'), '["a/1","a/2","b"]');
  await run('del', '{"key":"a/1"}', 3);
  await run('del', '{"key":"a/1"}', 4);
  assert.equal(await run('list', '{}'), '["a/2","b"]');
});

test('kv - a write of a job is done once, whoever wrote in between (K1)', async () => {
  await run('set', '{"key":"k","value":1}', 0, 1);
  bucket.set('k', '2');
  await run('set', '{"key":"k","value":1}', 0, 2);
  assert.equal(bucket.texts.get('k')?.text, '2');
  assert.equal(bucket.writes, 1);
  // Another job's same write is another write.
  await run('set', '{"key":"k","value":1}', 1, 1);
  assert.equal(bucket.texts.get('k')?.text, '1');
});

test('kv - an attempt that was superseded changes nothing (K2)', async () => {
  await run('set', '{"key":"k","value":1}', 0, 2);
  await assert.rejects(run('set', '{"key":"k","value":1}', 0, 1), fails('fence_lost'));
});

test('kv - a write overtaken by another counts as before it (K3)', async () => {
  bucket.set('k', '0');
  bucket.meanwhile = () => void bucket.set('k', '"theirs"');
  assert.equal(await run('set', '{"key":"k","value":"mine"}'), 'null');
  assert.equal(bucket.texts.get('k')?.text, '"theirs"');
});

test('kv - the same value again is not written, also after a restart', async () => {
  await run('set', '{"key":"k","value":{"a":1.0}}');
  await server.close();
  server = await serve();
  registry = new Registry([kvFamily(server)]);
  await run('set', '{"key":"k","value":{"a":1.0}}', 0, 2);
  assert.equal(bucket.writes, 1);
});

test('kv - a bus that is away for a moment is waited for', async () => {
  bucket.fails = 2;
  await run('set', '{"key":"k","value":1}');
  assert.equal(bucket.texts.get('k')?.text, '1');
});

test('kv - a supervisor that restarts is waited for, an abort is not', async () => {
  await server.close();
  const { token, path } = server;
  const controller = new AbortController();
  const waiting = registry
    .operation('kv.get')
    .bind({ key: 'k' })
    .run({ ...context(0, 1), signal: controller.signal });
  controller.abort(new HeroError('cancelled', 'enough'));
  await assert.rejects(waiting, fails('cancelled'));
  await assert.rejects(
    registry
      .operation('kv.get')
      .bind({ key: 'k' })
      .run({ ...context(0, 1), deadlineMs: performance.now() + 150 }),
    fails('unreachable'),
  );
  server = await serve();
  assert.equal(server.path, path);
  // Another life of the supervisor has another token: a runner of the old one is refused.
  assert.notEqual(server.token, token);
  await assert.rejects(run('get', '{"key":"k"}'), fails('not_allowed'));
});

test('kv - a socket path the system cannot take is named', async () => {
  const path = join(folder, 'x'.repeat(120));
  await assert.rejects(serveKv({} as Bus, path), fails('usage'));
});

test('kv - only this user opens the socket, only with its token, only for a principal', async () => {
  assert.equal(statSync(server.path).mode & 0o777, 0o600);
  registry = new Registry([kvFamily({ path: server.path, token: 'guess' })]);
  await assert.rejects(run('get', '{"key":"k"}'), fails('not_allowed'));
  registry = new Registry([kvFamily(server)]);
  const stranger = { ...context(0, 1), caller: 'nobody' };
  await assert.rejects(
    registry.operation('kv.get').bind({ key: 'k' }).run(stranger),
    fails('bad_request'),
  );
  await assert.rejects(
    run('set', `{"key":"k","value":"${'x'.repeat(600_000)}"}`),
    fails('too_large'),
  );
});
