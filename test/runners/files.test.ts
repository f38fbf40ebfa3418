/** Files and large values of jobs at their runner: fetched, verified, placed; stored before they are named. */
import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { existsSync, mkdirSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test, type TestContext } from 'node:test';
import { Host } from '../../actors/host.ts';
import type { RunnerClass } from '../../runners/classes/class.ts';
import { processClass } from '../../runners/classes/process.ts';
import { SentFiles } from '../../runners/files.ts';
import { startRunner } from '../../runners/runner.ts';
import { HeroError } from '../../schemas/errors.ts';
import type { Pack, PackedJob, Result } from '../../schemas/job.ts';
import { until } from '../sal/waiting.ts';
import { FakeBlobs } from './fake-blobs.ts';
import { FakeBus, NODE } from './fake-bus.ts';

const FLOW = 'b'.repeat(26);
const sha256 = (text: string): string => createHash('sha256').update(text).digest('hex');

function folderOf(t: TestContext): string {
  const folder = mkdtempSync(join(tmpdir(), 'herobus-runner-'));
  t.after(() => rmSync(folder, { recursive: true, force: true }));
  return folder;
}

function start(t: TestContext, work: (bus: FakeBus) => RunnerClass): FakeBus {
  const bus = new FakeBus();
  const host = new Host({
    onFault: (_name, error) => {
      throw error;
    },
  });
  const options = { name: 'p1', slots: 4, contexts: [], bus: bus.asBus(), host };
  const runner = startRunner({ ...options, work: work(bus) });
  t.after(() => runner.stop());
  return bus;
}

const job = (n: number, payload: unknown): PackedJob => ({
  n,
  attempt: 1,
  spec: {
    v: 1,
    kind: 'process',
    name: `job ${n}`,
    payload,
    needs: ['process'],
    on: null,
    timeout_ms: null,
    retries: 0,
    backoff_ms: 0,
    after: [],
    idempotent: false,
  },
});

async function run(bus: FakeBus, ...jobs: PackedJob[]): Promise<Result[]> {
  const pack: Pack = {
    v: 1,
    context: 'acme',
    flow: FLOW,
    pack: 'p1',
    plan: 50,
    node: NODE,
    caller: `U${'B'.repeat(55)}`,
    jobs,
  };
  bus.publishPack(pack);
  await until('all results', () => bus.results().length === jobs.length);
  return [...bus.results()].sort((a, b) => a.n - b.n);
}

const file = (path: string, text: string, size = text.length) => ({
  path,
  sha256: sha256(text),
  size,
});
const stdoutOf = ({ value, error }: Result | { value?: null; error?: null } = {}): string => {
  assert.equal(error, null);
  return (JSON.parse(value ?? '{}') as { stdout: string }).stdout;
};

test('runner files - placed in a folder of the job, where it works, and gone after it', async (t) => {
  const folder = folderOf(t);
  const folders = join(folder, 'jobs');
  // What a runner that was killed has left.
  mkdirSync(join(folders, 'old'), { recursive: true });
  writeFileSync(join(folders, 'old', 'secret'), 'left behind');
  const bus = start(t, ({ blobs }) => processClass({ directory: folder, folders, blobs }));
  await bus.blobs.put(
    'acme',
    Buffer.from('#!/bin/sh\ncat conf/app; pwd; echo "$HEROBUS_FOLDER"; ls ..'),
  );
  await bus.blobs.put('acme', Buffer.from('text\n'));
  const files = [
    { path: 'conf/app', sha256: sha256('text\n'), size: 5 },
    file('tool', '#!/bin/sh\ncat conf/app; pwd; echo "$HEROBUS_FOLDER"; ls ..'),
  ];
  const [placed, plain, inside] = await run(
    bus,
    job(0, { cmd: './tool', files }),
    job(1, { cmd: 'pwd' }),
    job(2, { cmd: 'cat', args: ['app'], cwd: 'conf', files: [files[0]] }),
  );
  const [text, cwd, variable, ...others] = stdoutOf(placed).trim().split('\n');
  assert.equal(text, 'text');
  assert.equal(cwd, variable);
  assert.match(cwd ?? '', new RegExp(`^${folders}/${FLOW}\\.0\\.1-`));
  assert.ok(!others.includes('old'), 'what was left behind is swept');
  assert.equal(stdoutOf(plain), `${folder}\n`);
  assert.equal(stdoutOf(inside), 'text\n');
  assert.deepEqual(readdirSync(folders), []);
});

test('runner files - missing, altered and hostile ones fail the job by code and name', async (t) => {
  const folder = folderOf(t);
  const folders = join(folder, 'jobs');
  const bus = start(t, ({ blobs }) => processClass({ directory: folder, folders, blobs }));
  const digest = await bus.blobs.put('acme', Buffer.from('true bytes'));
  bus.blobs.stored.set(`acme ${sha256('forged')}`, Buffer.from('other bytes'));
  await bus.blobs.put('rival', Buffer.from('of another context'));
  const touch = { cmd: 'sh', args: ['-c', 'touch ../../ran'] };
  const results = await run(
    bus,
    job(0, { ...touch, files: [file('gone', 'never stored')] }),
    job(1, { ...touch, files: [file('f', 'forged')] }),
    job(2, { ...touch, files: [{ path: 'f', sha256: digest, size: 3 }] }),
    job(3, { ...touch, files: [file('f', 'of another context')] }),
    job(4, { ...touch, files: [file('../f', 'true bytes')] }),
    job(5, { ...touch, files: [file('a', 'true bytes'), file('a/b', 'true bytes')] }),
  );
  assert.deepEqual(
    results.map(({ outcome, error }) => `${outcome} ${error?.code}`),
    ['not_found', 'unverifiable', 'unverifiable', 'not_found', 'bad_job', 'bad_job'].map(
      (code) => `failed ${code}`,
    ),
  );
  assert.match(results[0]?.error?.message ?? '', /^the file gone is gone: there is no blob/);
  assert.match(results[1]?.error?.message ?? '', /^the file f was altered/);
  assert.ok(!existsSync(join(folder, 'ran')), 'none of them ran');
});

test('runner files - one read serves the jobs that ask for the same; a bus that is away is waited for', async () => {
  const blobs = new FakeBlobs();
  await blobs.put('acme', Buffer.from('shared'));
  let failures = 2;
  blobs.before = () =>
    failures-- > 0 ? Promise.reject(new HeroError('unreachable', 'away')) : Promise.resolve();
  const sent = new SentFiles(blobs);
  const { signal } = new AbortController();
  const ask = () => sent.get('acme', [file('f', 'shared')], signal);
  const found = await Promise.all([ask(), ask(), ask()]);
  assert.deepEqual(
    found.flat().map(({ bytes }) => String(bytes)),
    ['shared', 'shared', 'shared'],
  );
  const reads = blobs.gets;
  await ask();
  assert.equal(blobs.gets, reads, 'it is kept');
  const away = new FakeBlobs();
  away.before = () => Promise.reject(new HeroError('unreachable', 'away'));
  const stop = new AbortController();
  const waiting = new SentFiles(away).get('acme', [file('f', 'x')], stop.signal);
  await until('a second try', () => away.gets > 1);
  stop.abort(new HeroError('cancelled', 'enough'));
  await assert.rejects(waiting, { code: 'cancelled' });
});

test('runner values - beyond 64 KiB they are blobs, stored before the result that names them', async (t) => {
  const values = ['s'.repeat(64 * 1024 - 2), 'l'.repeat(64 * 1024), 'h'.repeat(17 * 1024 * 1024)];
  const bus = start(t, () => ({
    class: 'process',
    valueBytesMax: 20 * 1024 * 1024,
    offers: () => Promise.resolve(['process']),
    run: ({ job: { n } }) => Promise.resolve(JSON.stringify(values[n])),
    killAll: () => undefined,
    close: () => undefined,
  }));
  let failures = 2;
  bus.blobs.before = async () => {
    if (failures-- > 0) throw new HeroError('unreachable', 'away');
    bus.events.push('blob');
  };
  const [small, large, huge] = await run(bus, job(0, {}), job(1, {}), job(2, {}));
  const text = JSON.stringify(values[1]);
  assert.deepEqual([small?.value, small?.value_ref], [JSON.stringify(values[0]), undefined]);
  assert.deepEqual(
    [large?.value, large?.value_ref],
    [null, { blob: sha256(text), size: text.length }],
  );
  assert.deepEqual([huge?.outcome, huge?.error?.code], ['failed', 'too_large']);
  assert.match(huge?.error?.message ?? '', /at most 16777216/);
  assert.equal(String(bus.blobs.stored.get(`acme ${sha256(text)}`)), text);
  assert.ok(bus.events.indexOf('blob') < bus.events.indexOf('result 1'), bus.events.join());
});
