/**
 * The runner on a bus in memory, with real processes where they matter. E1-E5, I1-I3 and R1-R3 are the
 * invariants of `runners/execution.ts`, `intake.ts` and `reporter.ts`.
 */
import assert from 'node:assert/strict';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, test } from 'node:test';
import { Host } from '../../actors/host.ts';
import type { JobRun, RunnerClass } from '../../runners/classes/class.ts';
import { processClass } from '../../runners/classes/process.ts';
import { type Runner, type RunnerOptions, startRunner } from '../../runners/runner.ts';
import type { Unwanted } from '../../runners/unwanted.ts';
import { FlowWatches } from '../../runners/watch.ts';
import { HeroError } from '../../schemas/errors.ts';
import type { Pack, PackedJob } from '../../schemas/job.ts';
import { isAlive, until, untilGone } from '../sal/waiting.ts';
import { FakeBlobs } from './fake-blobs.ts';
import { FakeBus, NODE } from './fake-bus.ts';

const flow = 'b'.repeat(26);
const ref = { context: 'acme', flow };

const cleanups: (() => unknown)[] = [];
afterEach(async () => {
  for (const cleanup of cleanups.splice(0).reverse()) await cleanup();
});

/** A job that ends when the test says so: `release(n)`, or by its signal. */
class HandClass implements RunnerClass {
  readonly class = 'process';
  readonly valueBytesMax = 1000;
  readonly runs: JobRun[] = [];
  readonly events: string[];
  killed = 0;
  most = 0;
  #running = new Map<number, (value: string) => void>();

  constructor(events: string[] = []) {
    this.events = events;
  }

  offers(): Promise<string[]> {
    return Promise.resolve(['process']);
  }

  run(run: JobRun): Promise<string> {
    this.runs.push(run);
    this.events.push(`run ${run.job.n}`);
    return new Promise<string>((resolve, reject) => {
      this.#running.set(run.job.n, resolve);
      this.most = Math.max(this.most, this.#running.size);
      run.signal.addEventListener('abort', () => reject(run.signal.reason as Error));
    }).finally(() => this.#running.delete(run.job.n));
  }

  release(n: number, value = 'null'): void {
    const resolve = this.#running.get(n);
    assert.ok(resolve !== undefined, `job ${n} does not run`);
    resolve(value);
  }

  get running(): number[] {
    return [...this.#running.keys()];
  }

  killAll(): void {
    this.killed++;
  }

  close(): void {
    this.events.push('close');
  }
}

type Started = { bus: FakeBus; runner: Runner; hand: HandClass };

function start(options: Partial<Omit<RunnerOptions, 'bus'>> & { bus?: FakeBus } = {}): Started {
  const bus = options.bus ?? new FakeBus();
  const hand = new HandClass(bus.events);
  const faults: unknown[] = [];
  const host = new Host({ onFault: (_name, error) => faults.push(error) });
  const runner = startRunner({
    host,
    name: 'p1',
    work: hand,
    slots: 2,
    contexts: [],
    ...options,
    bus: bus.asBus(),
  });
  cleanups.push(async () => {
    await runner.stop();
    assert.deepEqual(faults, []);
    assert.equal(bus.watching, 0, 'a watch was left');
  });
  return { bus, runner, hand };
}

function withProcesses(slots = 2): Omit<Started, 'hand'> & { folder: string } {
  const folder = mkdtempSync(join(tmpdir(), 'herobus-runner-'));
  cleanups.push(() => rmSync(folder, { recursive: true, force: true }));
  return {
    folder,
    ...start({
      work: processClass({
        directory: folder,
        folders: join(folder, 'jobs'),
        blobs: new FakeBlobs(),
      }),
      slots,
    }),
  };
}

function job(n: number, payload: unknown = { cmd: 'true' }, spec: object = {}): PackedJob {
  return {
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
      ...spec,
    },
  };
}

const sh = (n: number, script: string, spec: object = {}): PackedJob =>
  job(n, { cmd: 'sh', args: ['-c', script] }, spec);

const pack = (jobs: PackedJob[], id = 'p1', more: Partial<Pack> = {}): Pack => ({
  v: 1,
  context: 'acme',
  flow,
  pack: id,
  plan: 50,
  node: NODE,
  caller: `U${'B'.repeat(55)}`,
  jobs,
  ...more,
});

const plan = (placed: object[], gone: object[] = []): object => ({
  v: 1,
  inc: 'supervisor1',
  term: 1,
  jobs: [],
  placed,
  packs: [],
  gone,
});
const cancel = (n: number | null): object => ({
  v: 1,
  inc: 'coord00001',
  verb: 'cancel',
  job: n,
  reason: 'enough',
  by: [],
  envelope: '',
});

const settle = (): Promise<void> =>
  new Promise((resolve) => {
    setImmediate(() => setImmediate(resolve));
  });

test('runner - a process from message to result, its output before it', async () => {
  const { bus } = withProcesses();
  bus.publishPack(pack([sh(7, 'echo one; echo two >&2; echo $HEROBUS_JOB.$HEROBUS_ATTEMPT')]));
  const [result] = await until('a result', () => bus.results().length > 0 && bus.results());
  assert.deepEqual([result?.n, result?.attempt, result?.outcome], [7, 1, 'completed']);
  assert.deepEqual(JSON.parse(result?.value ?? ''), {
    code: 0,
    stdout: `one\n${flow}.7.1\n`,
    stderr: 'two\n',
    truncated: false,
  });
  assert.ok((result?.ended_ms ?? 0) >= (result?.started_ms ?? 0));
  assert.deepEqual(bus.lines(7).sort(), [`${flow}.7.1`, 'one', 'two'].sort());
  assert.ok(bus.events.indexOf('log 7') < bus.events.indexOf('result 7'));
});

test('runner - watches, claims, then executes (E1): the first instruction finds the claim committed', async () => {
  const { bus, folder } = withProcesses();
  let committed = false;
  let ran: string | undefined;
  bus.beforeCommit = async (lane) => {
    if (lane !== 'claim') return;
    // Long enough for a process that did not wait to have left its trace.
    await until('the watch', () => bus.events.includes('watch'));
    for (let turn = 0; turn < 200; turn++) await settle();
    try {
      ran = readFileSync(join(folder, 'ran'), 'utf8');
    } catch {
      committed = true;
    }
  };
  bus.publishPack(pack([sh(0, 'echo x > ran')]));
  await until('a result', () => bus.results().length === 1);
  assert.equal(ran, undefined);
  assert.equal(committed, true);
  assert.equal(readFileSync(join(folder, 'ran'), 'utf8'), 'x\n');
  assert.deepEqual(bus.events.slice(0, 3), ['watch', 'claim p1 [0]', 'ack']);
});

test('runner - further jobs begin only after their fact, as slots free up (E1, S1)', async () => {
  const { bus, hand } = start({ slots: 2 });
  bus.publishPack(pack([0, 1, 2, 3].map((n) => job(n))));
  await until('two run', () => hand.running.length === 2);
  assert.deepEqual(bus.claims()[0], {
    v: 1,
    inc: bus.claims()[0]?.inc,
    type: 'claim',
    runner: 'p1',
    begun: [
      { n: 0, attempt: 1 },
      { n: 1, attempt: 1 },
    ],
  });
  hand.release(1, '"one"');
  await until('the third runs', () => hand.running.includes(2));
  assert.ok(bus.events.indexOf('begun [2]') < bus.events.indexOf('run 2'));
  // The slow job 0 held nothing up (R1), and one entry carried both.
  assert.deepEqual(
    bus.results().map(({ n }) => n),
    [1],
  );
  assert.equal(bus.facts().length, 1);
  hand.release(0);
  hand.release(2);
  await until('the last runs', () => hand.running.includes(3));
  hand.release(3);
  await until('all results', () => bus.results().length === 4);
  assert.equal(hand.most, 2);
});

test('runner - a lost claim executes nothing and drops the message (E2)', async () => {
  const { bus, hand } = start();
  bus.occupy(ref, 'p1');
  bus.publishPack(pack([job(0)]));
  bus.publishPack(pack([job(1)], 'p2'));
  await until('the other pack runs', () => hand.running.includes(1));
  assert.deepEqual(
    hand.runs.map(({ job: { n } }) => n),
    [1],
  );
  assert.deepEqual(
    bus.delivered.map(({ fate }) => fate),
    ['ack', 'ack'],
  );
  hand.release(1);
});

test('runner - a claim that could not be made is made at the next delivery (I1)', async () => {
  const { bus, hand } = start();
  let failures = 2;
  bus.beforeCommit = async (lane) => {
    if (lane === 'claim' && failures-- > 0) throw new HeroError('unreachable', 'no bus');
  };
  bus.publishPack(pack([job(0)]));
  await until('it runs', () => hand.running.includes(0));
  assert.deepEqual(
    bus.events.filter((event) => event === 'nak' || event === 'ack'),
    ['nak', 'nak', 'ack'],
  );
  hand.release(0);
});

test('runner - two deliveries of a pack execute once (I2)', async () => {
  const { bus, hand, runner } = start({ slots: 4 });
  let release = (): void => undefined;
  const held = new Promise<void>((resolve) => {
    release = resolve;
  });
  bus.beforeCommit = async (lane) => (lane === 'claim' ? held : undefined);
  bus.publishPack(pack([job(0)]));
  bus.publishPack(pack([job(0)]));
  await until('both are in hand', () => runner.stats().duplicates === 1);
  // Neither message is acked before the claim is committed (I1).
  assert.deepEqual(
    bus.delivered.map(({ fate }) => fate),
    ['out', 'out'],
  );
  release();
  await until('it runs', () => hand.running.includes(0));
  hand.release(0);
  await until('a result', () => bus.results().length === 1);
  bus.publishPack(pack([job(0)]));
  await until('the third is dropped', () => bus.delivered.every(({ fate }) => fate === 'ack'));
  assert.equal(hand.runs.length, 1);
  assert.equal(bus.claims().length, 1);
});

test('runner - garbage and misplaced packs end for good, with a count', async () => {
  const { bus, hand, runner } = start();
  const subject = `hb.jobs.acme.process.${NODE}`;
  const other = pack([job(0)], 'p1', { node: 'd'.repeat(32) });
  const alien = pack([job(0)], 'p1', { context: 'beta' });
  bus.deliver(subject, Buffer.from('{'));
  bus.deliver(subject, Buffer.from('{"v":1}'));
  bus.deliver(subject, Buffer.from(JSON.stringify(pack([job(0), job(0)]))));
  bus.deliver(subject, Buffer.from(JSON.stringify(other)));
  bus.deliver(subject, Buffer.from(JSON.stringify(alien)));
  await until('all ended', () => bus.delivered.every(({ fate }) => fate === 'term'));
  const { garbage, misplaced } = runner.stats();
  assert.deepEqual({ garbage, misplaced }, { garbage: 3, misplaced: 2 });
  await until('its beat tells', () => bus.beats.at(-1)?.report.refused?.count === 5, 5000);
  assert.match(
    bus.beats.at(-1)?.report.refused?.last ?? '',
    /of hb\.jobs\.acme\.process\..*: a pack/,
  );
  assert.equal(hand.runs.length, 0);
});

test('runner - outcomes: bad payload, failure, time-out with the figure, forged, value too large', async () => {
  const forged = new HeroError('forged_job', 'it does not follow from the script');
  const { bus } = withProcesses(8);
  bus.publishPack(
    pack([
      job(0, { cmd: 'true', args: 'no list' }),
      sh(1, 'echo why >&2; exit 4'),
      sh(2, 'sleep 600', { timeout_ms: 200 }),
      job(3, {}, { kind: 'vm' }),
    ]),
  );
  const results = await until('all results', () => bus.results().length === 4 && bus.results());
  const of = (n: number) => results.find((result) => result.n === n);
  assert.equal(of(0)?.error?.code, 'bad_job');
  assert.match(of(0)?.error?.message ?? '', /`args`/);
  assert.equal(of(1)?.outcome, 'failed');
  assert.deepEqual(of(1)?.error, {
    code: 'job_failed',
    message: 'sh exited with code 4: why',
    actor: 'runner:p1',
    node: NODE,
    cause: null,
  });
  assert.equal(of(2)?.outcome, 'timeout');
  assert.equal(of(2)?.error?.code, 'timeout');
  assert.match(of(2)?.error?.message ?? '', /200 ms/);
  assert.equal(of(3)?.error?.code, 'bad_job');

  const second = start({
    verify: async (_pack, { n }) => (n === 0 ? Promise.reject(forged) : undefined),
  });
  second.bus.publishPack(pack([job(0), job(1)]));
  await until('the true one runs', () => second.hand.running.includes(1));
  second.hand.release(1, JSON.stringify('x'.repeat(2000)));
  const judged = await until(
    'both',
    () => second.bus.results().length === 2 && second.bus.results(),
  );
  assert.deepEqual(
    judged.map(({ error }) => error?.code ?? '').toSorted((a, b) => a.localeCompare(b)),
    ['forged_job', 'too_large'],
  );
  assert.deepEqual(
    second.hand.runs.map(({ job: { n } }) => n),
    [1],
  );
});

test('runner - a cancelled job is gone within a second and reported; its neighbour goes on', async () => {
  const { bus } = withProcesses();
  const stubborn = `trap '' TERM; echo $$; while :; do sleep 0.2; done`;
  bus.publishPack(pack([sh(0, stubborn), sh(1, stubborn)]));
  const pid = Number(await until('its pid', () => bus.lines(0)[0]));
  const other = Number(await until('its pid', () => bus.lines(1)[0]));
  bus.decide(ref, 'cancel', cancel(0));
  await untilGone(pid, 1000);
  const [result] = await until('a result', () => bus.results().length === 1 && bus.results());
  assert.deepEqual(
    [result?.n, result?.outcome, result?.error?.code],
    [0, 'cancelled', 'cancelled'],
  );
  assert.match(result?.error?.message ?? '', /enough/);
  assert.ok(isAlive(other));
  bus.decide(ref, 'end', {});
  await untilGone(other, 1000);
  await until('both', () => bus.results().length === 2);
});

test('runner - a plan of a later attempt ends the earlier one; of the same it does not', async () => {
  const { bus, hand } = start();
  bus.publishPack(pack([job(0), job(1)]));
  await until('both run', () => hand.running.length === 2);
  bus.decide(
    ref,
    'plan',
    plan([
      { n: 0, attempt: 1, pack: 'p2' },
      { n: 1, attempt: 2, pack: 'p2' },
    ]),
  );
  await until('one is over', () => bus.results().length === 1);
  assert.deepEqual(
    bus.results().map(({ n, outcome }) => [n, outcome]),
    [[1, 'cancelled']],
  );
  const error = { code: 'outcome_unknown', message: '' };
  bus.decide(ref, 'plan', plan([], [{ n: 0, attempt: 1, outcome: 'failed', error }]));
  await until('both are over', () => bus.results().length === 2);
});

test('runner - the same attempt given to another pack leaves what had begun and takes the rest', async () => {
  const { bus, hand } = start({ slots: 1 });
  bus.publishPack(pack([job(0), job(1), job(2)]));
  await until('the first runs', () => hand.running.includes(0));
  bus.decide(
    ref,
    'plan',
    plan([
      { n: 0, attempt: 1, pack: 'p2' },
      { n: 1, attempt: 1, pack: 'p2' },
    ]),
  );
  hand.release(0);
  await until('the third runs', () => hand.running.includes(2));
  hand.release(2);
  await until('two results', () => bus.results().length === 2);
  assert.deepEqual(
    bus.results().map(({ n, outcome }) => [n, outcome]),
    [
      [0, 'completed'],
      [2, 'completed'],
    ],
  );
});

test('runner - a job moved while its begin was being committed does not run', async () => {
  const { bus, hand } = start();
  bus.beforeCommit = async (lane) => {
    if (lane === 'claim') bus.decide(ref, 'plan', plan([{ n: 0, attempt: 1, pack: 'p2' }]));
  };
  bus.publishPack(pack([job(0), job(1)]));
  await until('the other runs', () => hand.running.includes(1));
  const [result] = await until('a result', () => bus.results().length === 1 && bus.results());
  assert.deepEqual([result?.n, result?.outcome], [0, 'cancelled']);
  assert.deepEqual(hand.running, [1]);
});

test('runner - a cancel takes what has not begun out of the pack', async () => {
  const { bus, hand } = start({ slots: 1 });
  bus.publishPack(pack([job(0), job(1), job(2)]));
  await until('the first runs', () => hand.running.includes(0));
  bus.decide(ref, 'cancel', cancel(1));
  hand.release(0);
  await until('the third runs', () => hand.running.includes(2));
  bus.decide(ref, 'cancel', cancel(null));
  await until('it is over', () => bus.results().length === 2);
  assert.deepEqual(
    hand.runs.map(({ job: { n } }) => n),
    [0, 2],
  );
});

test('runner - a cancel while the claim is under way is not missed', async () => {
  const { bus, hand } = start();
  bus.beforeCommit = async (lane) => {
    if (lane === 'claim') bus.decide(ref, 'cancel', cancel(0));
  };
  bus.publishPack(pack([job(0)]));
  const [result] = await until('a result', () => bus.results().length === 1 && bus.results());
  assert.equal(result?.outcome, 'cancelled');
  assert.equal(hand.runs.length, 0);
});

test('runner - a cancel older than the delivery is found in the log, another flow’s is not', async () => {
  const { bus, hand } = start({ slots: 4 });
  bus.decide(ref, 'cancel', cancel(0));
  bus.decide(ref, 'cancel', cancel(1));
  bus.decide({ context: 'acme', flow: 'c'.repeat(26) }, 'cancel', cancel(null));
  bus.publishPack(pack([job(0), job(1), job(2)]));
  await until('two are over', () => bus.results().length === 2);
  assert.deepEqual(hand.running, [2]);
  // A plan newer than the cancel means the job was planned in its knowledge.
  bus.publishPack(pack([job(1)], 'p2', { plan: 1000 }));
  await until('it runs again', () => hand.running.includes(1));
});

test('runner - decisions missed while the link was down are read when it is back', async () => {
  const { bus, hand } = start();
  bus.publishPack(pack([job(0), job(1)]));
  await until('both run', () => hand.running.length === 2);
  // The look into the log that follows every claim is over.
  for (let turn = 0; turn < 10; turn++) await settle();
  bus.setLink(false);
  bus.decide(ref, 'cancel', cancel(0));
  bus.decide(ref, 'plan', plan([{ n: 1, attempt: 2, pack: 'p9' }]));
  await settle();
  assert.equal(hand.running.length, 2);
  bus.setLink(true);
  await until('both are over', () => bus.results().length === 2);
  assert.ok(bus.results().every(({ outcome }) => outcome === 'cancelled'));
});

test('runner - a decision whose copy was lost is found in the log', async () => {
  const { bus } = start();
  const watches = new FlowWatches(bus.asBus(), 20);
  const heard: Unwanted[] = [];
  const subscription = watches.listen(ref, 0, (unwanted) => heard.push(unwanted));
  bus.losesCopies = true;
  bus.decide(ref, 'cancel', cancel(3));
  const [unwanted] = await until('it is heard', () => heard.length > 0 && heard);
  const attempt = { attempt: 1, pack: 'p1', begunSeq: undefined };
  assert.ok(unwanted?.covers({ n: 3, ...attempt }));
  assert.ok(!unwanted?.covers({ n: 2, ...attempt }));
  subscription.stop();
  watches.stop();
});

test('runner - a lost lease kills the groups, reports nothing and ends the runner (E3)', async () => {
  const { bus, runner } = withProcesses();
  bus.publishPack(pack([sh(0, `trap '' TERM; echo $$; while :; do sleep 0.2; done`)]));
  const pid = Number(await until('its pid', () => bus.lines(0)[0]));
  const startedMs = performance.now();
  bus.lease = undefined;
  assert.equal(await runner.ended, 'lease_lost');
  assert.ok(performance.now() - startedMs < 4100, 'the lease was held too long');
  await untilGone(pid, 500);
  await settle();
  assert.deepEqual(bus.facts(), []);
});

test('runner - a blocked event loop wakes up without a lease: nothing begins, nothing is reported (E3)', async () => {
  const bus = new FakeBus();
  // Holds for 300 ms after the beat.
  bus.lease = { lease_ms: 1300, drain: false, contexts: ['acme'] };
  const { runner, hand } = start({ bus, slots: 1 });
  bus.publishPack(pack([job(0), job(1)]));
  await until('it runs', () => hand.running.includes(0));
  hand.release(0);
  const untilMs = performance.now() + 400;
  while (performance.now() < untilMs);
  assert.equal(await runner.ended, 'lease_lost');
  await settle();
  assert.deepEqual(bus.facts(), []);
  assert.deepEqual(hand.runs.length, 1);
  assert.ok(hand.killed > 0);
});

test('runner - a lease lost while a begin is committed: it is not executed (E3)', async () => {
  const bus = new FakeBus();
  bus.lease = { lease_ms: 1300, drain: false, contexts: ['acme'] };
  const { runner, hand } = start({ bus, slots: 1 });
  bus.beforeCommit = async (lane) => {
    if (lane === 'claim') await runner.ended;
  };
  bus.publishPack(pack([job(0)]));
  assert.equal(await runner.ended, 'lease_lost');
  await until('the claim', () => bus.claims().length === 1);
  await settle();
  assert.equal(hand.runs.length, 0);
});

test('runner - takes nothing without a lease, and does not spin while it waits', async () => {
  const bus = new FakeBus();
  bus.lease = undefined;
  const { runner } = start({ bus });
  bus.publishPack(pack([job(0)]));
  await until('a second beat', () => bus.beats.length === 2, 3000);
  assert.deepEqual(bus.consumed, []);
  assert.ok(bus.beats.length < 4);
  await runner.stop();
});

test('runner - serves the contexts its lease names, or those of its own among them', async () => {
  const bus = new FakeBus();
  bus.lease = { lease_ms: 5000, drain: false, contexts: ['acme', 'beta'] };
  const { runner } = start({ bus });
  await until('both', () => bus.consumed.join() === 'acme.process,beta.process');
  bus.lease = { ...bus.lease, contexts: ['gamma'] };
  await until('the change', () => bus.consumed.join() === 'gamma.process', 3000);
  assert.deepEqual(bus.beats.at(-1)?.report.runner, runner.name);
  const picky = new FakeBus();
  picky.lease = { lease_ms: 5000, drain: false, contexts: ['acme', 'beta'] };
  start({ bus: picky, contexts: ['beta', 'delta'] });
  await until('its own', () => picky.consumed.join() === 'beta.process');
});

test('runner - a full one gives the queue back, and comes again when it has room (I3)', async () => {
  const { bus, hand } = start({ slots: 1 });
  bus.publishPack(pack([job(0)]));
  await until('it runs', () => hand.running.includes(0));
  bus.publishPack(pack([job(1)], 'p2'));
  await until('the queue is let go', () => bus.consumed.length === 0);
  assert.ok(bus.events.includes('nak') || bus.delivered[1]?.fate === 'out');
  assert.equal(hand.runs.length, 1);
  hand.release(0);
  await until('the next runs', () => hand.running.includes(1));
  hand.release(1);
});

test('runner - contexts take turns: one pack does not wait behind many of another context (I4)', async () => {
  for (const holdMs of [0, 400]) {
    const bus = new FakeBus();
    bus.lease = { lease_ms: 5000, drain: false, contexts: ['acme', 'beta'] };
    const { runner, hand } = start({ bus, slots: 1 });
    await until('both', () => bus.consumed.length === 2);
    for (let n = 0; n < 30; n++) bus.publishPack(pack([job(n)], `p${n}`));
    await until('the first runs', () => hand.running.length === 1);
    bus.publishPack({ ...pack([job(99)], 'p99'), context: 'beta' });
    // Held so long, the runner is full and gives its queues back meanwhile.
    for (const heldMs = performance.now() + holdMs; performance.now() < heldMs; ) await settle();
    let others = 0;
    while (!hand.running.includes(99)) {
      const [n] = hand.running;
      if (n !== undefined) {
        hand.release(n);
        others += 1;
      }
      await until('the next one runs', () => hand.running.some((each) => each !== n), 5000);
    }
    assert.ok(others <= 4, `${others} jobs of the other context came before it`);
    hand.release(99);
    await runner.stop();
  }
});

test('runner - of jobs that may be what kills runners one runs at a time, and others beside it (I5)', async () => {
  const { bus, hand, runner } = start({ slots: 4 });
  bus.publishPack(pack([job(0)], 'p0', { suspect: true }));
  bus.publishPack(pack([job(1)], 'p1', { suspect: true }));
  bus.publishPack(pack([job(2)], 'p2'));
  await until('two of them run', () => hand.running.length === 2);
  assert.ok(hand.running.includes(2));
  const first = hand.running.find((n) => n !== 2) ?? -1;
  hand.release(first);
  await until('the other suspect runs', () => hand.running.includes(1 - first), 5000);
  hand.release(1 - first);
  hand.release(2);
  await runner.stop();
});

test('runner - drain: no new packs, what runs ends and is reported, what has not begun is left', async () => {
  const { bus, runner, hand } = start({ slots: 1 });
  bus.publishPack(pack([job(0), job(1)]));
  await until('it runs', () => hand.running.includes(0));
  runner.drain();
  bus.publishPack(pack([job(2)], 'p2'));
  await settle();
  hand.release(0, '"done"');
  assert.equal(await runner.ended, 'drained');
  assert.deepEqual(
    bus.results().map(({ n }) => n),
    [0],
  );
  assert.deepEqual(
    hand.runs.map(({ job: { n } }) => n),
    [0],
  );
  assert.deepEqual(bus.consumed, []);
});

test('runner - the supervisor can drain it', async () => {
  const { bus, runner } = start();
  await until('it serves', () => bus.consumed.length === 1);
  bus.lease = { lease_ms: 5000, drain: true, contexts: ['acme'] };
  assert.equal(await runner.ended, 'drained');
});

test('runner - stop kills what runs without a report, and stores what had ended', async () => {
  const { bus, runner, hand } = start({ slots: 2 });
  let release = (): void => undefined;
  const held = new Promise<void>((resolve) => {
    release = resolve;
  });
  bus.beforeCommit = async (lane) => (lane === 'run' ? held : undefined);
  bus.publishPack(pack([job(0), job(1)]));
  await until('both run', () => hand.running.length === 2);
  hand.release(0);
  await settle();
  const stopped = runner.stop();
  release();
  await stopped;
  assert.equal(await runner.ended, 'stopped');
  assert.deepEqual(
    bus.results().map(({ n, outcome }) => [n, outcome]),
    [[0, 'completed']],
  );
  assert.ok(hand.killed > 0);
});

test('runner - results that could not be stored are stored later, once each (R3)', async () => {
  const { bus, hand } = start();
  let failures = 3;
  bus.beforeCommit = async (lane) => {
    if (lane === 'run' && failures-- > 0) throw new HeroError('unreachable', 'no bus');
  };
  bus.publishPack(pack([job(0)]));
  await until('it runs', () => hand.running.includes(0));
  hand.release(0);
  await until('a result', () => bus.results().length === 1);
  assert.equal(failures, -1);
});

test('runner - output waits for a slow bus, loses nothing and comes before the result', async () => {
  const { bus } = withProcesses();
  let open = (): void => undefined;
  const gate = new Promise<void>((resolve) => {
    open = resolve;
  });
  let asked = 0;
  bus.beforeLog = async () => {
    asked++;
    await gate;
  };
  bus.publishPack(pack([sh(0, 'i=0; while [ $i -lt 30000 ]; do i=$((i+1)); echo $i; done')]));
  await until('output arrives', () => asked === 1);
  // The pipe is full and nobody reads it: the process stands still in its middle.
  for (let turn = 0; turn < 100; turn++) await settle();
  assert.equal(bus.results().length, 0);
  open();
  await until('a result', () => bus.results().length === 1, 20_000);
  const lines = bus.lines(0);
  assert.equal(lines.length, 30_000);
  assert.ok(lines.every((line, index) => Number(line) === index + 1));
  assert.ok(Math.max(...bus.logs.map((batch) => batch.lines.length)) <= 200);
});

test('runner - output that is refused for good is counted, not waited for', async () => {
  const { bus } = withProcesses();
  let refusals = 1;
  bus.beforeLog = async () => {
    if (refusals-- > 0) throw new HeroError('not_allowed', 'no logs here');
  };
  bus.publishPack(pack([sh(0, 'echo gone')]));
  await until('a result', () => bus.results().length === 1);
  assert.deepEqual(bus.lines(0), ['1 lines of output could not be stored']);
});

test('runner - beats say what it holds', async () => {
  const { bus, hand, runner } = start();
  bus.publishPack(pack([job(0)]));
  await until('it runs', () => hand.running.includes(0));
  const beat = await until('a beat', () => bus.beats.find(({ packs }) => packs.length > 0), 3000);
  assert.deepEqual(beat.packs, [`acme.${flow}.p1`]);
  assert.equal(beat.inc, runner.inc);
  assert.deepEqual(beat.report, {
    runner: 'p1',
    inc: runner.inc,
    class: 'process',
    slots: 2,
    busy: 1,
    contexts: ['acme'],
  });
});
