/**
 * The process SAL with real processes: what streams, what ends, what is left (nothing).
 * The numbers X1-X4 and G1-G3 are the invariants of `sal/exec.ts` and `sal/guardian.ts`.
 */
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { after, before, test } from 'node:test';
import { Guardian } from '../../sal/guardian.ts';
import { PROCESS_VALUE_BYTES_MAX, processValue, runProcess } from '../../sal/process.ts';
import { HeroError } from '../../schemas/errors.ts';
import { ProcessPayload } from '../../schemas/job.ts';
import { isAlive, until, untilGone } from './waiting.ts';

let guardian: Guardian;
let folder: string;

before(() => {
  guardian = new Guardian();
  folder = mkdtempSync(join(tmpdir(), 'herobus-process-'));
});
after(() => {
  guardian.killAll();
  guardian.close();
  rmSync(folder, { recursive: true, force: true });
});

const attempt = { context: 'acme', flow: 'a'.repeat(26), n: 3, attempt: 2 };

type Value = { code: number; stdout: string; stderr: string; truncated: boolean };

type Extra = {
  signal?: AbortSignal;
  deadlineMs?: number | null;
  onLines?: (stream: 'stdout' | 'stderr', lines: string[]) => void | Promise<void>;
};

async function run(payload: Record<string, unknown>, extra: Extra = {}): Promise<Value> {
  const text = await runProcess(ProcessPayload.parse(payload), attempt, {
    signal: new AbortController().signal,
    deadlineMs: null,
    guardian,
    ...extra,
  });
  return JSON.parse(text) as Value;
}

const sh = (script: string, extra: Extra = {}, more: object = {}): Promise<Value> =>
  run({ cmd: 'sh', args: ['-c', script], ...more }, extra);

const fails = (code: string, message: RegExp) => (error: unknown) => {
  assert.ok(error instanceof HeroError, String(error));
  assert.equal(error.code, code);
  assert.match(error.message, message);
  return true;
};

test('process - value, codes and both streams', async () => {
  assert.deepEqual(await sh('echo out; echo err >&2'), {
    code: 0,
    stdout: 'out\n',
    stderr: 'err\n',
    truncated: false,
  });
  assert.equal((await sh('exit 7', {}, { ok_codes: [0, 7] })).code, 7);
});

test('process - lines arrive in order while it runs', async () => {
  const fifo = join(folder, 'go');
  const seen: string[] = [];
  // The second half of the output is only written once the first was seen here.
  await sh(`mkfifo ${fifo}; echo one; echo two; read -r _ < ${fifo}; echo three`, {
    onLines: (stream, lines) => {
      seen.push(...lines.map((line) => `${stream} ${line}`));
      if (seen.at(-1) === 'stdout two') writeFileSync(fifo, 'go\n');
    },
  });
  assert.deepEqual(seen, ['stdout one', 'stdout two', 'stdout three']);
});

test('process - a slow sink holds the writer up and loses nothing (X4)', async () => {
  let lines = 0;
  let last = 0;
  const value = await sh('i=0; while [ $i -lt 20000 ]; do i=$((i+1)); echo $i; done', {
    onLines: async (_stream, batch) => {
      for (const line of batch) {
        assert.equal(Number(line), last + 1);
        last++;
      }
      lines += batch.length;
      await new Promise((resolve) => {
        setImmediate(resolve);
      });
    },
  });
  assert.equal(lines, 20_000);
  assert.equal(value.truncated, true);
  assert.equal(Buffer.byteLength(value.stdout), 64 * 1024);
  assert.ok(value.stdout.endsWith('\n19999\n20000\n'));
});

test('process - standard input, and none', async () => {
  const stdin = 'é'.repeat(100_000);
  assert.equal((await run({ cmd: 'wc', args: ['-c'], stdin })).stdout.trim(), '200000');
  assert.equal((await run({ cmd: 'wc', args: ['-c'] })).stdout.trim(), '0');
  // Not reading it is no error.
  assert.equal((await run({ cmd: 'true', stdin: 'x'.repeat(1_000_000) })).code, 0);
});

test('process - a clean environment with the job named in it', async () => {
  process.env['HEROBUS_TEST_SECRET'] = 'mine';
  const { stdout } = await run({ cmd: 'env', env: { EXTRA: 'a=b', HEROBUS_JOB: 'forged' } });
  delete process.env['HEROBUS_TEST_SECRET'];
  const lines = stdout.trim().split('\n').sort();
  const names = lines.map((line) => line.split('=')[0]).filter((name) => name !== 'PWD');
  assert.deepEqual(names, [
    'EXTRA',
    'HEROBUS_ATTEMPT',
    'HEROBUS_CONTEXT',
    'HEROBUS_FLOW',
    'HEROBUS_JOB',
    'HOME',
    'LANG',
    'PATH',
    'TMPDIR',
  ]);
  assert.ok(lines.includes('EXTRA=a=b'));
  assert.ok(lines.includes(`HEROBUS_JOB=${attempt.flow}.3`));
  assert.ok(lines.includes('HEROBUS_ATTEMPT=2'));
});

test('process - failures name the command, the end and the last of stderr', async () => {
  await assert.rejects(
    sh('for i in 1 2 3; do echo "line $i" >&2; done; exit 3'),
    fails('job_failed', /^sh exited with code 3: line 1\nline 2\nline 3$/),
  );
  await assert.rejects(sh('kill -9 $$'), fails('job_failed', /^sh was ended by SIGKILL/));
  await assert.rejects(
    run({ cmd: 'no-such-tool' }),
    fails('missing_tool', /no-such-tool is not installed/),
  );
  await assert.rejects(
    run({ cmd: 'podman', env: { PATH: folder } }),
    (error: HeroError) => error.code === 'missing_tool' && error.fix === 'apt-get install podman',
  );
  await assert.rejects(
    run({ cmd: 'true', cwd: join(folder, 'nowhere') }),
    fails('job_failed', /working directory .*nowhere does not exist/),
  );
  const plain = join(folder, 'plain');
  writeFileSync(plain, 'not a program', { mode: 0o644 });
  await assert.rejects(run({ cmd: plain }), fails('job_failed', /plain is not an executable/));
  await assert.rejects(run({ cmd: folder }), fails('job_failed', /EACCES/));
  // A program that is there but cannot be executed is the command's failure, not a fault of ours.
  const odd = join(folder, 'odd');
  writeFileSync(odd, '#!/no/such/interpreter\n', { mode: 0o755 });
  await assert.rejects(run({ cmd: odd }), fails('job_failed', /odd exited with code 12[67]/));
});

test('process - what the system refuses to start is a failure of the job', async () => {
  await assert.rejects(
    run({ cmd: 'echo', args: ['a\0b'] }),
    fails('job_failed', /could not be started/),
  );
  const args = ['x'.repeat(3_000_000)];
  await assert.rejects(
    run({ cmd: 'echo', args }),
    fails('job_failed', /could not be started \(E2BIG\)/),
  );
});

test('process - a sink that fails fails the job, after its end', async () => {
  const onLines = (): never => {
    throw new HeroError('internal', 'no sink');
  };
  await assert.rejects(sh('echo a; echo b', { onLines }), fails('internal', /no sink/));
});

test('process - works in its cwd, and finds a command relative to it', async () => {
  writeFileSync(join(folder, 'here.sh'), '#!/bin/sh\npwd\n', { mode: 0o755 });
  const { stdout } = await run({ cmd: './here.sh', cwd: folder });
  assert.equal(stdout.trim(), folder);
});

/** A child that ignores TERM, with a grandchild that does too; prints both process ids. */
const STUBBORN = `trap '' TERM; sh -c 'trap "" TERM; echo $$; while :; do sleep 0.2; done' & echo $$; wait; wait`;

async function stubborn(
  extra: (pids: number[]) => Extra,
): Promise<{ pids: number[]; error: unknown }> {
  const pids: number[] = [];
  const error = await sh(STUBBORN, {
    onLines: (_stream, lines) => {
      pids.push(...lines.map(Number));
    },
    ...extra(pids),
  }).then(
    () => undefined,
    (thrown: unknown) => thrown,
  );
  return { pids, error };
}

test('process - a deadline ends the whole group, grandchildren too (X2)', async () => {
  const startedMs = performance.now();
  const { pids, error } = await stubborn(() => ({ deadlineMs: startedMs + 400 }));
  assert.ok(fails('timeout', /sh did not end in time/)(error));
  assert.equal(pids.length, 2);
  for (const pid of pids) assert.equal(isAlive(pid), false);
});

test('process - an abort ends the whole group within a second, with its reason (X3)', async () => {
  const controller = new AbortController();
  let abortedMs = 0;
  const { pids, error } = await stubborn((seen) => {
    void until('both run', () => seen.length === 2).then(() => {
      abortedMs = performance.now();
      controller.abort(new HeroError('cancelled', 'the user said so'));
    });
    return { signal: controller.signal, deadlineMs: performance.now() + 60_000 };
  });
  assert.ok(performance.now() - abortedMs < 1000);
  assert.ok(fails('cancelled', /the user said so/)(error));
  for (const pid of pids) assert.equal(isAlive(pid), false);
});

test('process - TERM gives a command the time to clean up', async () => {
  const controller = new AbortController();
  const lines: string[] = [];
  const running = sh(`trap 'echo cleaned; exit 0' TERM; echo ready; while :; do sleep 0.05; done`, {
    signal: controller.signal,
    onLines: (_stream, batch) => {
      lines.push(...batch);
      if (lines.includes('ready')) controller.abort(new HeroError('cancelled', 'enough'));
    },
  });
  await assert.rejects(running, fails('cancelled', /enough/));
  assert.deepEqual([lines[0], lines.at(-1)], ['ready', 'cleaned']);
});

test('process - a stopped one is ended as well', async () => {
  const controller = new AbortController();
  const running = sh('echo $$; kill -STOP $$; echo never', {
    signal: controller.signal,
    onLines: (_stream, [pid]) => {
      const stopped = () => / T /.test(readFileSync(`/proc/${pid}/stat`, 'utf8'));
      void until('it is stopped', stopped).then(() =>
        controller.abort(new HeroError('cancelled', 'x')),
      );
    },
  });
  await assert.rejects(running, fails('cancelled', /x/));
});

test('process - what a command left behind ends with it (X2)', async () => {
  const startedMs = performance.now();
  const { stdout } = await sh('sleep 600 & echo $!');
  assert.equal(isAlive(Number(stdout)), false);
  assert.ok(performance.now() - startedMs < 5000, 'the open pipe of a left-over was waited for');
});

test('process - one that fled its group does not hold the result', async () => {
  const { stdout } = await sh('setsid sleep 600 & echo $!');
  const pid = Number(stdout);
  process.kill(pid, 'SIGKILL');
  await untilGone(pid);
});

test('process - an aborted signal starts nothing', async () => {
  const made = join(folder, 'made');
  const signal = AbortSignal.abort(new HeroError('cancelled', 'before it began'));
  await assert.rejects(sh(`: > ${made}`, { signal }), fails('cancelled', /before/));
  assert.throws(() => readFileSync(made));
});

test('process - a value always fits a log entry', () => {
  const text = processValue({
    code: 0,
    stdout: '\u0001'.repeat(64 * 1024),
    stderr: '\u{1F600}'.repeat(16 * 1024),
    truncated: false,
  });
  assert.ok(Buffer.byteLength(text) <= PROCESS_VALUE_BYTES_MAX);
  const value = JSON.parse(text) as Value;
  assert.equal(value.truncated, true);
  // The larger text is halved, never in the middle of a character.
  assert.ok(/^(\u{1F600})+$/u.test(value.stderr) && value.stderr.length >= 16 * 1024);
});

test('guardian - SIGKILL of the runner leaves no descendant (G1)', async () => {
  const runner = spawn(process.execPath, [join(import.meta.dirname, 'fixtures/run-two.ts')], {
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  const pids: number[] = [];
  createInterface({ input: runner.stdout }).on('line', (line) => pids.push(Number(line)));
  try {
    // Of each of the two jobs the child and its grandchild, and the guardian.
    await until('all run', () => pids.length === 5);
    for (const pid of pids) assert.ok(isAlive(pid));
  } finally {
    runner.kill('SIGKILL');
  }
  for (const pid of pids) await untilGone(pid, 2000);
});

test('guardian - a dead one is replaced and knows the groups (G3)', async () => {
  const own = new Guardian();
  const sleeper = spawn('sh', ['-c', 'sleep 600 & wait'], { detached: true, stdio: 'ignore' });
  try {
    assert.ok(sleeper.pid !== undefined && own.pid !== undefined);
    await own.enter(sleeper.pid);
    const first = own.pid;
    process.kill(first, 'SIGKILL');
    await until('another guardian', () => own.pid !== first);
    own.close();
    await untilGone(sleeper.pid, 2000);
  } finally {
    if (sleeper.exitCode === null && sleeper.pid !== undefined && isAlive(sleeper.pid)) {
      process.kill(-sleeper.pid, 'SIGKILL');
    }
  }
});

test('guardian - an ended group is forgotten (G2)', async () => {
  const own = new Guardian();
  const sleeper = spawn('sleep', ['600'], { detached: true, stdio: 'ignore' });
  try {
    assert.ok(sleeper.pid !== undefined && own.pid !== undefined);
    await own.enter(sleeper.pid + 1_000_000);
    await own.enter(sleeper.pid);
    own.leave(sleeper.pid);
    own.close();
    await untilGone(own.pid, 2000);
    assert.ok(isAlive(sleeper.pid));
  } finally {
    sleeper.kill('SIGKILL');
  }
});
