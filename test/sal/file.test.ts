/**
 * The file SAL on a real tree: convergence, undo, drift (C1-C3 of `sal/file-change.ts`), and no way out of
 * the root, by path, link or exchange.
 */
import assert from 'node:assert/strict';
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, test } from 'node:test';
import { Registry, type SalContext } from '../../sal/driver.ts';
import { fileFamily } from '../../sal/file.ts';
import { HeroError } from '../../schemas/errors.ts';

let base: string;
let root: string;
let registry: Registry;
const flow = 'f'.repeat(26);

beforeEach(() => {
  base = mkdtempSync(join(tmpdir(), 'herobus-file-'));
  root = join(base, 'root');
  mkdirSync(root);
  registry = new Registry([fileFamily({ root, undo: join(base, 'undo') })]);
});
afterEach(() => rmSync(base, { recursive: true, force: true }));

const context = (n: number, attempt = 1): SalContext => ({
  jobId: `${flow}.${n}`,
  attempt,
  caller: 'U',
  deadlineMs: null,
  signal: new AbortController().signal,
  log: () => undefined,
});

const run = (op: string, args: object, n = 0, attempt = 1): Promise<unknown> =>
  registry.operation(`file.${op}`).bind(args).run(context(n, attempt));
const undo = async (op: string, args: object, n = 0): Promise<void> =>
  registry.operation(`file.${op}`).bind(args).inverse?.(context(n));
const text = (path: string): string => readFileSync(join(root, path), 'utf8');

const fails = (code: string, message: RegExp) => (error: unknown) => {
  assert.ok(error instanceof HeroError, String(error));
  assert.equal(error.code, code, error.message);
  assert.match(error.message, message);
  return true;
};

test('file - write, read, stat, list', async () => {
  assert.deepEqual(await run('write', { path: 'a.txt', content: 'é\n', mode: 0o600 }), {
    changed: true,
    bytes: 3,
  });
  assert.equal(await run('read', { path: 'a.txt' }), 'é\n');
  assert.equal(await run('read', { path: join(root, 'a.txt'), encoding: 'base64' }), 'w6kK');
  const stat = (await run('stat', { path: 'a.txt' })) as { mode: number };
  assert.equal(stat.mode, 0o600);
  assert.equal(await run('stat', { path: 'b.txt' }), null);
  await run('mkdir', { path: 'd' }, 1);
  assert.deepEqual(await run('list', { path: '.' }), [
    { name: 'a.txt', type: 'file' },
    { name: 'd', type: 'directory' },
  ]);
});

test('file - the same content again is no change, and leaves the file itself alone', async () => {
  await run('write', { path: 'a', content: 'x' });
  const before = statSync(join(root, 'a'));
  assert.deepEqual(await run('write', { path: 'a', content: 'x' }, 1), {
    changed: false,
    bytes: 1,
  });
  assert.equal(statSync(join(root, 'a')).ino, before.ino);
  assert.deepEqual(readdirSync(root), ['a']);
});

test('file - undo of a write restores what was, mode and all; twice is once', async () => {
  writeFileSync(join(root, 'a'), 'old', { mode: 0o640 });
  await run('write', { path: 'a', content: 'new', mode: 0o600 });
  await undo('write', { path: 'a', content: 'new' });
  await undo('write', { path: 'a', content: 'new' });
  assert.equal(text('a'), 'old');
  assert.equal(statSync(join(root, 'a')).mode & 0o777, 0o640);
  await run('write', { path: 'b', content: 'new' }, 1);
  await undo('write', { path: 'b', content: 'new' }, 1);
  assert.equal(existsSync(join(root, 'b')), false);
});

test('file - an undo knows the first attempt’s before, after any number of attempts (C1)', async () => {
  writeFileSync(join(root, 'a'), 'old');
  await run('write', { path: 'a', content: 'new' }, 0, 1);
  await run('write', { path: 'a', content: 'new' }, 0, 2);
  await undo('write', { path: 'a', content: 'new' });
  assert.equal(text('a'), 'old');
});

test('file - a later change of others stands, against later attempts and undos (C2)', async () => {
  writeFileSync(join(root, 'a'), 'old');
  await run('write', { path: 'a', content: 'mine' });
  writeFileSync(join(root, 'a'), 'theirs');
  assert.deepEqual(await run('write', { path: 'a', content: 'mine' }, 0, 2), {
    changed: false,
    bytes: 4,
  });
  await assert.rejects(
    undo('write', { path: 'a', content: 'mine' }),
    fails('job_failed', /a was changed since the job/),
  );
  assert.equal(text('a'), 'theirs');
});

test('file - an append is done once by a job, also after a torn attempt (C1)', async () => {
  writeFileSync(join(root, 'log'), 'one\n');
  assert.deepEqual(await run('append', { path: 'log', content: 'two\n' }), {
    changed: true,
    bytes: 4,
  });
  assert.deepEqual(await run('append', { path: 'log', content: 'two\n' }, 0, 2), {
    changed: false,
    bytes: 4,
  });
  await run('append', { path: 'log', content: 'two\n' }, 1);
  assert.equal(text('log'), 'one\ntwo\ntwo\n');
  // A crash in the middle of a write left half of the job's line.
  writeFileSync(join(root, 'log'), 'one\ntwo\ntw');
  await run('append', { path: 'log', content: 'two\n' }, 1, 2);
  assert.equal(text('log'), 'one\ntwo\ntwo\n');
  await undo('append', { path: 'log', content: 'two\n' }, 1);
  assert.equal(text('log'), 'one\ntwo\n');
  writeFileSync(join(root, 'log'), 'one\nsix\n');
  await assert.rejects(
    run('append', { path: 'log', content: 'two\n' }, 0, 3),
    fails('outcome_unknown', /others wrote/),
  );
});

test('file - delete and mkdir, with their undos and drift', async () => {
  writeFileSync(join(root, 'a'), 'kept');
  assert.deepEqual(await run('delete', { path: 'a' }), { changed: true });
  assert.deepEqual(await run('delete', { path: 'a' }, 0, 2), { changed: false });
  await undo('delete', { path: 'a' });
  assert.equal(text('a'), 'kept');
  await run('mkdir', { path: 'd' }, 1);
  assert.deepEqual(await run('mkdir', { path: 'd' }, 1, 2), { changed: false });
  writeFileSync(join(root, 'd', 'x'), '');
  await assert.rejects(undo('mkdir', { path: 'd' }, 1), fails('job_failed', /changed since/));
  rmSync(join(root, 'd', 'x'));
  await undo('mkdir', { path: 'd' }, 1);
  assert.equal(existsSync(join(root, 'd')), false);
  await assert.rejects(run('delete', { path: '.' }, 2), fails('not_allowed', /root/));
});

test('file - no path leads out of the root', async () => {
  writeFileSync(join(base, 'secret'), 'secret');
  mkdirSync(join(base, 'root2'));
  symlinkSync(base, join(root, 'up'));
  symlinkSync(join(base, 'secret'), join(root, 'link'));
  symlinkSync(join(base, 'new'), join(root, 'dangling'));
  symlinkSync('a', join(root, 'a'));
  const outside = [
    '../secret',
    join(base, 'secret'),
    'up/secret',
    'link',
    'x/../../secret',
    `${root}2/x`,
  ];
  for (const path of [...outside, 'dangling', 'a', 'nul\0']) {
    for (const op of ['read', 'stat', 'delete']) {
      await assert.rejects(run(op, { path }), fails('not_allowed', /outside/), `${op} ${path}`);
    }
    await assert.rejects(
      run('write', { path, content: 'x' }),
      fails('not_allowed', /outside/),
      path,
    );
    await assert.rejects(
      run('append', { path, content: 'x' }),
      fails('not_allowed', /outside/),
      path,
    );
  }
  assert.equal(readFileSync(join(base, 'secret'), 'utf8'), 'secret');
  assert.equal(existsSync(join(base, 'new')), false);
});

test('file - a link inside of the root is followed to where it leads', async () => {
  mkdirSync(join(root, 'real'));
  symlinkSync('real', join(root, 'alias'));
  await run('write', { path: 'alias/x', content: '1' });
  assert.equal(text('real/x'), '1');
});

test('file - clear errors: missing, wrong kind, too large, not UTF-8, bad arguments', async () => {
  await assert.rejects(run('read', { path: 'no' }), fails('job_failed', /^no: does not exist$/));
  await assert.rejects(run('read', { path: 'no/such' }), fails('job_failed', /does not exist/));
  await assert.rejects(run('read', { path: '.' }), fails('job_failed', /not a file/));
  await assert.rejects(run('write', { path: '.', content: '' }), fails('job_failed', /directory/));
  writeFileSync(join(root, 'big'), Buffer.alloc(5_000_000));
  await assert.rejects(run('read', { path: 'big' }), fails('too_large', /5000000 bytes/));
  writeFileSync(join(root, 'odd'), Buffer.from([0xff, 0xfe]));
  await assert.rejects(run('read', { path: 'odd' }), fails('job_failed', /base64/));
  assert.throws(
    () => registry.operation('file.write').bind({ path: 'x' }),
    fails('bad_job', /^file\.write: `content`/),
  );
  assert.throws(() => registry.operation('file.copy'), fails('bad_job', /file\.write/));
  assert.throws(() => registry.operation('vm.start'), fails('bad_job', /file\.\*/));
});

test('file - is offered where its root is', async () => {
  assert.deepEqual(await registry.offers(), ['file']);
  rmSync(root, { recursive: true });
  assert.deepEqual(await registry.offers(), []);
});
