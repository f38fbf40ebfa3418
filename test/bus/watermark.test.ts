/**
 * The watermarks against a real server and real damage: a store that lost its end is named and nothing
 * starts on it, whatever the server makes of it; one that is merely shorter than it was starts.
 *
 * Method: fill, end the server (in order, or by SIGKILL), change the newest block's file, start again.
 */
import assert from 'node:assert/strict';
import { existsSync, globSync, rmSync } from 'node:fs';
import { readFile, rm, stat, truncate, writeFile } from 'node:fs/promises';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { join, resolve } from 'node:path';
import { createInterface } from 'node:readline';
import { text } from 'node:stream/consumers';
import { test, type TestContext } from 'node:test';
import { callApi } from '../../bus/jetstream.ts';
import { portHolder } from '../../bus/processes.ts';
import { type WatermarkKeeper, watermarkPath } from '../../bus/watermark.ts';
import { lossesPath, readLosses } from '../../bus/watermark-losses.ts';
import { WatermarkFile } from '../../schemas/config.ts';
import type { HeroError } from '../../schemas/errors.ts';
import { bareEnvironment, runCli } from '../cli/cli.ts';
import { CONTEXT, until } from './fixtures.ts';
import {
  append,
  cleanups,
  type End,
  ENDS,
  flipBit,
  folder,
  newestBlock,
  openMarks,
  openStore,
  OWNER,
  type Store,
} from './store.ts';

const MESSAGES = 20;
const KILLS = Number(process.env['HEROBUS_KILLS'] ?? 5);

/** A folder whose store was filled, marked and ended. */
async function filled(
  t: TestContext,
  how: End,
  fill: (store: Store, keeper: WatermarkKeeper) => Promise<void>,
): Promise<string> {
  const dataDir = folder(t);
  const store = await openStore(t, dataDir);
  const { keeper, alarms } = await openMarks(t, store, dataDir);
  await store.bus.admin.ensureBus();
  await fill(store, keeper);
  if (how === 'stopped') await keeper.stop();
  else await keeper.refresh();
  await store.end(how);
  assert.deepEqual(alarms, []);
  return dataDir;
}

const DAMAGES: Record<string, (path: string) => Promise<void>> = {
  'a bit in the middle': (path) => flipBit(path, (size) => size >> 1),
  'a bit in the last message': (path) => flipBit(path, (size) => size - 100),
  'the end cut off': async (path) => truncate(path, (await stat(path)).size - 50),
  'the block deleted': (path) => rm(path),
};

const marksIn = async (dataDir: string): Promise<WatermarkFile['streams']> =>
  WatermarkFile.parse(JSON.parse(await readFile(watermarkPath(dataDir), 'utf8'))).streams;

function isRegression(stream: string, ...said: RegExp[]): (error: HeroError) => boolean {
  return (error) => {
    assert.equal(error.code, 'log_regressed');
    for (const pattern of [new RegExp(`^${stream} ends at sequence \\d+, `), ...said]) {
      assert.match(error.message, pattern);
    }
    assert.match(error.fix ?? '', /nats\/jetstream in place .*`herobus up --accept-loss`/);
    return true;
  };
}

for (const how of ENDS) {
  for (const [damage, inflict] of Object.entries(DAMAGES)) {
    test(`watermark - ${how}, then ${damage}: the next start names the stream`, async (t) => {
      const dataDir = await filled(t, how, (store) => append(store, MESSAGES));
      await inflict(newestBlock(dataDir, 'HB_FLOW'));
      const before = await marksIn(dataDir);
      const store = await openStore(t, dataDir);
      const said = new RegExp(`\\b${MESSAGES}\\b`);
      await assert.rejects(openMarks(t, store, dataDir), isRegression('HB_FLOW', said));
      await assert.rejects(openMarks(t, store, dataDir), isRegression('HB_FLOW', said));
      assert.deepEqual(await marksIn(dataDir), before, 'a refusal moves no mark');
    });
  }

  test(`watermark - ${how} and untouched: it starts`, async (t) => {
    const dataDir = await filled(t, how, async (store) => {
      await append(store, MESSAGES);
      await append(store, 3, `hb.deploy.${CONTEXT}`);
      for (let n = 0; n < 40; n++) await store.bus.kv('ledger_meta').put('k', { n });
    });
    const marks = await marksIn(dataDir);
    assert.deepEqual(
      Object.entries(marks).map(([stream, { seq }]) => [stream, seq]),
      [
        ['HB_FLOW', MESSAGES],
        ['HB_DEPLOY', 3],
        ['KV_ledger_meta', 40],
      ],
    );
    for (let start = 0; start < 2; start++) {
      const store = await openStore(t, dataDir);
      const { keeper, alarms } = await openMarks(t, store, dataDir);
      assert.deepEqual(alarms, []);
      if (how === 'stopped') await keeper.stop();
      await store.end(how);
      assert.deepEqual(await marksIn(dataDir), marks);
    }
  });

  test(`watermark - ${how} with a purged tail and a drained queue: it starts`, async (t) => {
    const dataDir = await filled(t, how, async (store, keeper) => {
      const { nats } = store.bus;
      await append(store, MESSAGES);
      await append(store, 2, 'hb.flow.gone.f.x');
      await append(store, 5, `hb.deploy.${CONTEXT}`);
      await keeper.refresh();
      await callApi(nats, 'STREAM.PURGE.HB_FLOW', { filter: 'hb.flow.gone.>' }, 5_000);
      const taken: string[] = [];
      const consuming = await store.bus.queues.consume(
        { queue: 'deploy' },
        { inFlight: 5 },
        async (message) => {
          taken.push(message.subject);
          message.ack();
        },
      );
      await until(() => taken.length === 5, 'the queue is drained');
      await consuming.stop();
    });
    const marks = await marksIn(dataDir);
    assert.deepEqual([marks['HB_FLOW']?.seq, marks['HB_FLOW']?.digest], [MESSAGES + 2, null]);
    assert.equal(marks['HB_DEPLOY']?.seq, 5);
    const store = await openStore(t, dataDir);
    const { keeper, alarms } = await openMarks(t, store, dataDir);
    await append(store, 1);
    await keeper.refresh();
    assert.deepEqual(alarms, []);
    assert.equal((await marksIn(dataDir))['HB_FLOW']?.seq, MESSAGES + 3);
  });
}

test(`watermark - killed ${KILLS} times amid writes and acknowledgements: never a false alarm`, async (t) => {
  const dataDir = folder(t);
  let written = 0;
  for (let kill = 0; kill < KILLS; kill++) {
    const store = await openStore(t, dataDir);
    const { keeper, alarms, regressed } = await openMarks(t, store, dataDir);
    const { bus } = store;
    await bus.admin.ensureBus();
    const consuming = await bus.queues.consume({ queue: 'deploy' }, { inFlight: 8 }, async (m) =>
      m.ack(),
    );
    let lives = true;
    const write = async (subject: string): Promise<void> => {
      for (; lives; written++) await append(store, 1, subject).catch(() => (lives = false));
    };
    const work = [
      ...Array.from({ length: 4 }, (_, i) => write(`hb.flow.${CONTEXT}.f${i}.x`)),
      write(`hb.deploy.${CONTEXT}`),
      (async () => {
        while (lives) await keeper.refresh();
      })(),
    ];
    const enough = written + 20 + Math.random() * 200;
    await until(() => written > enough, 'some were written');
    lives = false;
    await store.end('killed');
    await consuming.stop();
    await Promise.all(work);
    assert.deepEqual([alarms, regressed], [[], []]);
  }
  const store = await openStore(t, dataDir);
  await openMarks(t, store, dataDir);
  t.diagnostic(`${written} messages`);
});

test('watermark - the ledger in its own account is watched too', async (t) => {
  const dataDir = await filled(t, 'killed', async ({ bus }) => {
    for (const key of ['one', 'two']) await bus.kv('ledger_principals').put(key, { key });
  });
  await rm(newestBlock(dataDir, 'KV_ledger_principals'));
  const store = await openStore(t, dataDir);
  await assert.rejects(
    openMarks(t, store, dataDir),
    isRegression('KV_ledger_principals', /at sequence 0, and 2 was stored/),
  );
});

test('watermark - a stream that is gone as a whole went back to nothing', async (t) => {
  const dataDir = await filled(t, 'killed', (store) => append(store, 3));
  const meta = globSync(join(dataDir, 'nats/jetstream/**/streams/HB_FLOW/meta.inf'));
  await flipBit(meta[0] ?? '', (size) => size >> 1);
  const store = await openStore(t, dataDir);
  await assert.rejects(
    openMarks(t, store, dataDir),
    isRegression('HB_FLOW', /at sequence 0, and 3 was stored/),
  );
});

test('watermark - the same sequences given to other messages are told from the marked ones', async (t) => {
  const dataDir = await filled(t, 'killed', (store) => append(store, MESSAGES));
  await DAMAGES['a bit in the middle']?.(newestBlock(dataDir, 'HB_FLOW'));
  const store = await openStore(t, dataDir);
  await append(store, MESSAGES, `hb.flow.${CONTEXT}.g.x`);
  await assert.rejects(
    openMarks(t, store, dataDir),
    isRegression('HB_FLOW', /sequence 30, and holds another message at 20 /),
  );
});

test('watermark - a loss that is accepted is told once, and marked as it is', async (t) => {
  const dataDir = await filled(t, 'killed', (store) => append(store, MESSAGES));
  await DAMAGES['the end cut off']?.(newestBlock(dataDir, 'HB_FLOW'));
  const store = await openStore(t, dataDir);
  const { keeper, alarms } = await openMarks(t, store, dataDir, true);
  assert.equal(alarms.length, 1);
  assert.match(
    alarms[0] ?? '',
    /^accepted with --accept-loss: HB_FLOW ends at sequence 19, and 20 /,
  );
  assert.equal((await marksIn(dataDir))['HB_FLOW']?.seq, 19);
  const [loss, ...others] = await readLosses(dataDir);
  assert.deepEqual([loss?.stream, loss?.from, loss?.to], ['HB_FLOW', 20, 20]);
  assert.deepEqual([loss?.by, others], [OWNER.principal, []]);
  await keeper.stop();
  const again = await openMarks(t, store, dataDir);
  assert.deepEqual(again.alarms, []);
  assert.equal((await readLosses(dataDir)).length, 1);
  const record = await readFile(lossesPath(dataDir), 'utf8');
  const payload = (said: string) => Buffer.from(said).toString('base64');
  const changed = JSON.stringify({ ...JSON.parse(record), payload: payload('{}') });
  await writeFile(lossesPath(dataDir), changed);
  await assert.rejects(readLosses(dataDir), { code: 'bad_signature', message: /line 1 of / });
});

test('watermark - a damaged file of marks is no reason to go on', async (t) => {
  const dataDir = await filled(t, 'stopped', (store) => append(store, 1));
  await writeFile(watermarkPath(dataDir), '{"v":1,"streams":{"HB_FLOW":{"seq":-1}}}');
  const store = await openStore(t, dataDir);
  await assert.rejects(openMarks(t, store, dataDir), { code: 'log_regressed', message: /damaged/ });
  const { alarms } = await openMarks(t, store, dataDir, true);
  assert.equal(alarms.length, 1);
  assert.equal((await marksIn(dataDir))['HB_FLOW']?.seq, 1);
  assert.deepEqual(
    (await readLosses(dataDir)).map(({ stream, to }) => [stream, to]),
    [[null, null]],
  );
});

test('watermark - marks follow by themselves, and rest while the streams do', async (t) => {
  const dataDir = folder(t);
  const store = await openStore(t, dataDir);
  await store.bus.admin.ensureBus();
  const { keeper } = await openMarks(t, store, dataDir);
  await append(store, 7);
  const seen = async () => (await marksIn(dataDir).catch(() => undefined))?.['HB_FLOW']?.seq;
  const end = performance.now() + 10_000;
  while ((await seen()) !== 7) assert.ok(performance.now() < end, 'the mark came by itself');
  const { ino } = await stat(watermarkPath(dataDir));
  for (let round = 0; round < 5; round++) await keeper.refresh();
  assert.equal((await stat(watermarkPath(dataDir))).ino, ino, 'nothing was written');
});

test('watermark - a server that comes back with less while we run is noticed, once', async (t) => {
  const dataDir = folder(t);
  const store = await openStore(t, dataDir);
  await store.bus.admin.ensureBus();
  const { keeper, regressed } = await openMarks(t, store, dataDir);
  await append(store, MESSAGES);
  await keeper.refresh();
  const before = await marksIn(dataDir);
  await store.server.stop();
  await DAMAGES['the end cut off']?.(newestBlock(dataDir, 'HB_FLOW'));
  const back = await openStore(t, dataDir);
  await until(() => regressed.length > 0, 'the regression was noticed');
  assert.ok(isRegression('HB_FLOW')(regressed[0] as HeroError));
  await append(back, 3);
  await keeper.refresh();
  await keeper.stop();
  assert.equal(regressed.length, 1);
  assert.deepEqual(await marksIn(dataDir), before);
});

const UP = ['--json', 'up', '--roles', 'ledger,roster,coord', '--name', 'first'];
const ENTRY = resolve(import.meta.dirname, '../../tools/cli/entry.ts');

type UpProcess = { server: string; kill: (signal: NodeJS.Signals) => void; ended: Promise<Ended> };
type Ended = { code: number | null; stdout: string; stderr: string };

async function startUp(t: TestContext, home: string, more: string[] = []): Promise<UpProcess> {
  const child = spawn(process.execPath, [ENTRY, ...UP, ...more], {
    stdio: ['ignore', 'pipe', 'pipe'],
    env: bareEnvironment(home),
  });
  const gone = once(child, 'exit') as Promise<[number | null]>;
  cleanups(t)(async () => {
    child.kill('SIGKILL');
    await gone;
  });
  const said = Promise.all([text(child.stdout), text(child.stderr)]);
  const ended = gone.then(async ([code]) => {
    const [stdout, stderr] = await said;
    return { code, stdout, stderr };
  });
  const ready = once(createInterface({ input: child.stdout }), 'line') as Promise<[string]>;
  const line = await Promise.race([ready.then(([first]) => first), ended]);
  if (typeof line !== 'string') throw new Error(`up ended: ${line.stderr}${line.stdout}`);
  const { server } = JSON.parse(line) as { server: string };
  return { server, kill: (signal) => void child.kill(signal), ended };
}

const serverPid = async (url: string): Promise<number> =>
  Number(/pid (\d+)/.exec((await portHolder(Number(new URL(url).port))) ?? '')?.[1]);

test('watermark - `up` ends on a log that went back, until the loss is accepted', async (t) => {
  const home = folder(t);
  const dataDir = join(home, 'data');
  const first = await startUp(t, home);
  first.kill('SIGTERM');
  assert.equal((await first.ended).code, 0);
  const { seq } = (await marksIn(dataDir))['KV_ledger_contexts'] ?? {};
  assert.ok(seq !== undefined);
  await rm(newestBlock(dataDir, 'KV_ledger_contexts'));

  const refused = await runCli(home, UP);
  assert.equal(refused.code, 1, refused.stderr);
  const { error } = JSON.parse(refused.stdout) as { error: HeroError };
  assert.ok(isRegression('KV_ledger_contexts', new RegExp(`\\b${seq}\\b`))(error));

  const accepted = await startUp(t, home, ['--accept-loss']);
  accepted.kill('SIGTERM');
  const { code, stderr } = await accepted.ended;
  assert.equal(code, 0);
  assert.match(stderr, /Z accepted with --accept-loss: KV_ledger_contexts ends at/);
  const after = await startUp(t, home);
  after.kill('SIGTERM');
  assert.equal((await after.ended).code, 0);
  const doctor = await runCli(home, ['doctor']);
  assert.match(doctor.stdout, new RegExp(`KV_ledger_contexts .* to ${seq}, accepted 2.* by U`));
});

test('watermark - `up` ends when its server comes back with less', async (t) => {
  const home = folder(t);
  const dataDir = join(home, 'data');
  const up = await startUp(t, home);
  await until(() => existsSync(watermarkPath(dataDir)), 'the first mark');
  const pid = await serverPid(up.server);
  const block = newestBlock(dataDir, 'KV_ledger_contexts');
  rmSync(block);
  process.kill(pid, 'SIGKILL');
  const { code, stdout } = await up.ended;
  assert.equal(code, 1);
  assert.match(stdout, /"code":"log_regressed","message":"KV_ledger_contexts ends at/);
});
