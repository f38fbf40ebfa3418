/** Placing and planning: which node, which pack, which attempt, and what is given up. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import {
  type Authority,
  emptyFlow,
  type FlowState,
  fold,
  type LogEntry,
} from '../../../actors/flow/fold.ts';
import { type Next, next, type NextInput } from '../../../actors/flow/next.ts';
import { nextPlan, PACK_JOBS_MAX, type Plan, type PlanInput } from '../../../actors/flow/plan.ts';
import { explain, place, selectorFault } from '../../../actors/flow/place.ts';
import type { DerivedJob } from '../../../actors/flow/derive.ts';
import { Worklist } from '../../../actors/flow/worklist.ts';
import { addressText } from '../../../schemas/ids.ts';
import type { JobSpec } from '../../../schemas/job.ts';
import type { RosterNode } from '../../../schemas/node.ts';

const COORD = 'c'.repeat(32);
const ME = 'a'.repeat(32);
const OTHER = 'b'.repeat(32);
const authority: Authority = { isCoord: (address) => address === COORD };
const U = `U${'A'.repeat(55)}`;
const FLOW = 'f'.repeat(26);

function node(address: string, over: Partial<RosterNode> = {}): RosterNode {
  return {
    v: 1,
    address,
    principal: U,
    name: address.slice(0, 3),
    groups: [],
    offers: ['process'],
    liveness: 'live',
    reason: null,
    state: 'ready',
    inc: 'incarnation0',
    runners: [
      {
        runner: 'process-0',
        inc: 'incarnation1',
        class: 'process',
        slots: 4,
        busy: 0,
        contexts: [],
      },
    ],
    flows: 0,
    version: '0',
    cpus: 2,
    memory_mib: 1,
    load1: 0,
    since_ms: 0,
    beat_ms: 0,
    ...over,
  };
}

const spec = (over: Partial<JobSpec> = {}): JobSpec => ({
  v: 1,
  kind: 'process',
  name: 'job',
  payload: { cmd: 'true' },
  needs: ['process'],
  on: null,
  timeout_ms: null,
  retries: 0,
  backoff_ms: 100,
  after: [],
  idempotent: false,
  ...over,
});
const jobs = (count: number, over: Partial<JobSpec> = {}): DerivedJob[] =>
  Array.from({ length: count }, (_, n) => ({
    n,
    spec: spec(over),
    digest: `${n}`,
    line: 1,
    bytes: 100,
  }));

/** What a plan puts into each pack. */
function contents({ placed, packs: planned }: Plan): Map<string, { n: number; attempt: number }[]> {
  const packs = new Map<string, { n: number; attempt: number }[]>();
  for (const { pack, jobs = [] } of planned) {
    if (jobs.length > 0)
      packs.set(
        pack,
        jobs.map((n) => ({ n, attempt: 1 })),
      );
  }
  for (const { pack, n, attempt } of placed) {
    if (pack !== null) packs.set(pack, [...(packs.get(pack) ?? []), { n, attempt }]);
  }
  return packs;
}

/** A flow as its supervisor holds it, to which entries are appended as the log would store them. */
class World {
  readonly state: FlowState = emptyFlow();
  readonly work = new Worklist();
  derived: DerivedJob[];
  roster = [node(ME)];
  nowMs = 10_000;
  lost = new Set<string>();
  published = new Set<string>();
  #seq = 0;

  constructor(derived: DerivedJob[]) {
    this.derived = derived;
    this.append(COORD, 'main', 'deploy', {
      envelope: '{}',
      engine: 'rhai-1',
      ledger_revision: 1,
      submitted_by: [U],
    });
    this.append(COORD, 'main', 'assign', { node: ME, reason: 'placed' });
  }

  append(writer: string, lane: string, name: string, body: object): void {
    this.#seq += 1;
    const entry = {
      writer,
      lane,
      ...(lane === 'main' ? { kind: name } : { pack: name }),
      seq: this.#seq,
      at: this.nowMs,
      proof: { fence: lane === 'main' ? this.state.mainSeq : null },
      body: { v: 1, inc: 'incarnation1', ...body },
    } as LogEntry;
    this.work.note(this.state, fold(this.state, entry, authority));
  }

  get input(): PlanInput {
    return {
      flow: FLOW,
      context: 'acme',
      state: this.state,
      work: this.work,
      derived: this.derived,
      roster: this.roster,
      load: () => 0,
      nowMs: this.nowMs,
      isLost: (pack) => this.lost.has(pack.pack),
    };
  }

  plan(): Plan | undefined {
    const plan = nextPlan(this.input);
    if (plan === undefined) return undefined;
    const { jobs: fresh, placed, packs, gone } = plan;
    this.append(ME, 'main', 'plan', { term: 2, jobs: fresh, placed, packs, gone });
    return plan;
  }

  claim(pack: string, begun: { n: number; attempt: number }[]): void {
    this.append(this.state.packs[pack]?.node ?? ME, 'claim', pack, {
      type: 'claim',
      runner: 'process-0',
      begun,
    });
  }

  result(pack: string, n: number, attempt: number, outcome: string): void {
    const result = { n, attempt, outcome, value: null, error: null, started_ms: 1, ended_ms: 2 };
    this.append(this.state.packs[pack]?.node ?? ME, 'run', pack, {
      runner: 'process-0',
      results: [result],
    });
  }

  next(step: NextInput['step']): Next {
    const toSend = [...this.work.queued].filter((pack) => !this.published.has(pack));
    return next({ ...this.input, me: ME, step, toSend, spawnTo: 100, spawnStep: 10 });
  }
}

test('plan - jobs are spread over nodes by their slots, and every job is in exactly one pack', () => {
  fc.assert(
    fc.property(
      fc.integer({ min: 1, max: 500 }),
      fc.integer({ min: 1, max: 5 }),
      (count, nodes) => {
        const world = new World(jobs(count));
        world.roster = Array.from({ length: nodes }, (_, i) => node(String(i).repeat(32)));
        const plan = world.plan();
        assert.ok(plan);
        const packed = [...contents(plan).values()].flat().map(({ n }) => n);
        assert.deepEqual(
          packed.sort((a, b) => a - b),
          Array.from({ length: count }, (_, n) => n),
        );
        const slots = world.roster[0]?.runners[0]?.slots ?? 0;
        assert.ok([...contents(plan).values()].every((content) => content.length <= slots));
        if (count >= nodes * 8)
          assert.equal(new Set(plan.packs.map((pack) => pack.node)).size, nodes);
        assert.equal(world.plan(), undefined, 'what is planned is not planned again');
      },
    ),
    { numRuns: 60 },
  );
});

test('plan - a pack is what one runner begins at once, shared out among all runners that fit', () => {
  const wide = (slots: number, runners = 1): RosterNode['runners'] =>
    Array.from({ length: runners }, (_, i) => ({
      runner: `process-${i}`,
      inc: 'incarnation1',
      class: 'process' as const,
      slots,
      busy: 0,
      contexts: [],
    }));
  const sizes = (count: number, ...runners: RosterNode['runners'][]): number[] => {
    const world = new World(jobs(count));
    world.roster = runners.map((each, i) => node(String(i).repeat(32), { runners: each }));
    return [...contents(world.plan() ?? assert.fail()).values()].map((content) => content.length);
  };
  assert.deepEqual(sizes(10, wide(64)), [10], 'one runner gets them at once');
  assert.deepEqual(sizes(10, wide(64), wide(64)), [5, 5]);
  assert.deepEqual(sizes(10, wide(64, 3)), [4, 4, 2]);
  assert.deepEqual(sizes(10, wide(4)), [4, 4, 2], 'no job of a pack waits in its runner');
  assert.deepEqual(sizes(250, wide(500)), [PACK_JOBS_MAX, PACK_JOBS_MAX, 50]);
});

test('plan - a job no node can have is unplaced with the reason of each node, and placed once one can', () => {
  const world = new World(jobs(1, { needs: ['process', 'gpu'] }));
  const plan = world.plan();
  assert.equal(plan?.placed[0]?.unplaced, 'aaa: does not offer gpu');
  assert.equal(world.state.jobs[0]?.status, 'unplaced');
  assert.equal(world.plan(), undefined, 'the same reason is no news');
  world.roster = [node(ME), node(OTHER, { offers: ['process', 'gpu'] })];
  assert.equal(world.plan()?.packs[0]?.node, OTHER);
});

test('plan - a lost attempt: an idempotent job is tried again alone, another fails with outcome_unknown', () => {
  const world = new World([
    { n: 0, spec: spec({ idempotent: true }), digest: '0', line: 1, bytes: 100 },
    { n: 1, spec: spec(), digest: '1', line: 2, bytes: 100 },
    { n: 2, spec: spec(), digest: '2', line: 3, bytes: 100 },
  ]);
  world.roster = [
    node(ME, {
      runners: [
        {
          runner: 'process-0',
          inc: 'incarnation1',
          class: 'process',
          slots: 1,
          busy: 0,
          contexts: [],
        },
      ],
    }),
  ];
  const first = world.plan()?.packs[0]?.pack ?? '';
  world.claim(
    first,
    (world.state.packs[first]?.jobs ?? []).map((n) => ({ n, attempt: 1 })).slice(0, 2),
  );
  world.lost.add(first);
  const plan = world.plan();
  assert.ok(plan);
  const again = plan.placed.find(({ n }) => n === 0);
  assert.deepEqual([again?.attempt, again?.because], [2, 'lost']);
  assert.equal(
    [...contents(plan).values()].find((content) => content.some(({ n }) => n === 0))?.length,
    1,
  );
  if (world.state.packs[first]?.jobs.includes(1)) {
    assert.equal(world.state.jobs[1]?.error?.code, 'outcome_unknown');
  }
});

test('plan - after so many lost attempts an idempotent job fails too', () => {
  const world = new World(jobs(1, { idempotent: true }));
  for (let attempt = 1; attempt <= 6; attempt++) {
    const pack = world.plan()?.packs[0]?.pack;
    assert.ok(pack, `attempt ${attempt} is planned`);
    world.claim(pack, [{ n: 0, attempt }]);
    world.lost.add(pack);
  }
  const plan = world.plan();
  assert.equal(plan?.gone[0]?.error.code, 'outcome_unknown');
  assert.match(plan?.gone[0]?.error.message ?? '', /6 times/);
});

test('plan - what a lost runner had not begun keeps its attempt and moves on', () => {
  const world = new World(jobs(2));
  world.roster = [
    node(ME, {
      runners: [
        {
          runner: 'process-0',
          inc: 'incarnation1',
          class: 'process',
          slots: 1,
          busy: 0,
          contexts: [],
        },
      ],
    }),
  ];
  const pack = world.plan()?.packs[0]?.pack ?? '';
  world.claim(pack, []);
  world.lost.add(pack);
  const plan = world.plan();
  assert.ok(plan?.placed.every(({ attempt, because }) => attempt === 1 && because === 'void'));
});

test('plan - a failed job with retries is tried again after its back-off, not before', () => {
  const world = new World(jobs(1, { retries: 1, backoff_ms: 500 }));
  const pack = world.plan()?.packs[0]?.pack ?? '';
  world.claim(pack, [{ n: 0, attempt: 1 }]);
  world.result(pack, 0, 1, 'failed');
  assert.equal(world.plan(), undefined);
  assert.deepEqual(world.next({ state: 'waiting', mode: 'all', jobs: [0] }), {
    do: 'wait',
    dueMs: 10_500,
  });
  world.nowMs = 10_500;
  assert.deepEqual(
    world.plan()?.placed.map(({ attempt, because }) => [attempt, because]),
    [[2, 'retry']],
  );
});

test('plan - `after` waits for its jobs, and ends with them when they fail', () => {
  const derived = [
    { n: 0, spec: spec(), digest: '0', line: 1, bytes: 100 },
    { n: 1, spec: spec({ after: [0] }), digest: '1', line: 2, bytes: 100 },
  ];
  const world = new World(derived);
  const pack = world.plan()?.packs[0]?.pack ?? '';
  assert.equal(world.state.jobs[1]?.status, 'waiting');
  world.claim(pack, [{ n: 0, attempt: 1 }]);
  world.result(pack, 0, 1, 'failed');
  world.plan();
  assert.equal(world.state.jobs[1]?.status, 'cancelled');
  assert.match(
    world.state.jobs[1]?.error?.message ?? '',
    /which it was to run after, ended failed/,
  );
});

test('next - published once, published again by whoever takes over', () => {
  const world = new World(jobs(1));
  world.plan();
  assert.equal(world.next({ state: 'waiting', mode: 'all', jobs: [0] }).do, 'publish');
  world.published.add('p0');
  assert.equal(world.next({ state: 'waiting', mode: 'all', jobs: [0] }).do, 'wait');
});

test('next - a cancelled flow: its queued packs are void-ed before it ends', () => {
  const world = new World(jobs(3));
  world.plan();
  world.append(COORD, 'main', 'cancel', {
    verb: 'cancel',
    job: null,
    reason: 'enough',
    by: [U],
    envelope: '{}',
  });
  const first = world.next(undefined);
  assert.equal(first.do, 'void');
  for (const pack of first.do === 'void' ? first.packs : []) {
    world.append(ME, 'claim', pack, { type: 'void', term: 2, reason: 'cancelled' });
  }
  const then = world.next(undefined);
  assert.equal(then.do === 'end' && then.status, 'cancelled');
});

test('next - a flow that was moved or has ended is let go', () => {
  const world = new World(jobs(0));
  world.append(COORD, 'main', 'assign', { node: OTHER, reason: 'is dead' });
  assert.deepEqual(world.next(undefined), { do: 'close', why: 'moved' });
});

test('next - a job nobody joined that failed fails its flow, with its cause', () => {
  const world = new World(jobs(1));
  const pack = world.plan()?.packs[0]?.pack ?? '';
  world.published.add(pack);
  world.claim(pack, [{ n: 0, attempt: 1 }]);
  world.result(pack, 0, 1, 'failed');
  const end = world.next({ state: 'done', value: '1', unjoined: [0] });
  assert.equal(end.do === 'end' && end.status, 'failed');
  const fine = world.next({ state: 'done', value: '1', unjoined: [] });
  assert.equal(fine.do === 'end' && fine.status, 'completed');
});

test('place - a node is named by its address in either form', () => {
  const nodes = [node(ME), node(OTHER)];
  for (const address of [OTHER, OTHER.toUpperCase(), addressText(OTHER)]) {
    const need = { on: `node=${address}`, capabilities: [], class: null, context: 'acme' };
    assert.equal(selectorFault(need.on), undefined);
    const fit = place(need, nodes, () => 0);
    assert.ok('node' in fit && fit.node.address === OTHER, address);
  }
});

test('place - selectors, states and reasons', () => {
  const need = { on: 'group=eu,cap=process', capabilities: [], class: null, context: 'acme' };
  const nodes = [
    node(ME, { groups: ['eu'], liveness: 'dead', reason: 'silent for 9 s' }),
    node(OTHER, { groups: ['us'] }),
    node('d'.repeat(32), { groups: ['eu'], state: 'draining' }),
  ];
  const none = place(need, nodes, () => 0);
  assert.ok('reasons' in none);
  assert.equal(
    explain(none.reasons),
    'aaa: is dead (silent for 9 s); bbb: does not match group=eu; ddd: is draining',
  );
  const fit = place(need, [...nodes, node('e'.repeat(32), { groups: ['eu'] })], () => 0);
  assert.ok('node' in fit && fit.node.address === 'e'.repeat(32));
  assert.match(selectorFault('grp=eu') ?? '', /is no selector term/);
  assert.equal(selectorFault('group=eu, cap=vm'), undefined);
});

test('plan - no plan outgrows an entry of the log, however many jobs wait for one node', () => {
  const world = new World(jobs(6000, { on: 'group=later', name: 'x'.repeat(100) }));
  const size = (plan: Plan): number => JSON.stringify(plan).length;
  for (let plan = world.plan(); plan !== undefined; plan = world.plan())
    assert.ok(size(plan) < 256 * 1024);
  assert.equal(world.state.jobs.length, 6000);
  world.roster = [node(ME, { groups: ['later'] })];
  for (let plan = world.plan(); plan !== undefined; plan = world.plan())
    assert.ok(size(plan) < 256 * 1024);
  assert.ok(world.state.jobs.every((job) => job.status === 'pending'));
});

test('plan - packs are cut by bytes too', () => {
  const world = new World(jobs(40).map((job) => ({ ...job, bytes: 200 * 1024 })));
  const plan = world.plan();
  assert.ok(plan);
  assert.ok([...contents(plan).values()].every((content) => content.length <= 2));
});

test('next - a script held at a spawn goes on when it may spawn many, not job by job', () => {
  const world = new World(jobs(3));
  world.plan();
  for (const pack of world.work.queued) world.published.add(pack);
  const held = { state: 'held', jobs: 3 } as const;
  const may = (spawnTo: number): string =>
    next({ ...world.input, me: ME, step: held, toSend: [], spawnTo, spawnStep: 100 }).do;
  assert.equal(may(3), 'wait');
  assert.equal(may(4), 'wait');
  assert.equal(may(2000), 'advance');
});

test('plan - a delayed job is planned at once, placed in its time, and waits for nothing afterwards', () => {
  const world = new World(jobs(1, { delay_ms: 600_000 }));
  const first = world.plan();
  assert.deepEqual([first?.jobs.length, first?.packs.length], [1, 0]);
  assert.equal(world.state.jobs[0]?.status, 'waiting');
  const waits = { state: 'waiting' as const, mode: 'all' as const, jobs: [0] };
  assert.deepEqual(world.next(waits), { do: 'wait', dueMs: 610_000 });
  world.nowMs = 609_999;
  assert.equal(world.plan(), undefined);
  world.nowMs = 610_000;
  world.roster = [];
  assert.equal(world.plan()?.packs.length, 0);
  assert.equal(world.state.jobs[0]?.status, 'unplaced');
  assert.deepEqual(world.next(waits), { do: 'wait', dueMs: null }, 'no moment is left to wait for');
  world.roster = [node(ME)];
  const placed = world.plan();
  assert.equal(placed?.packs.length, 1);
  assert.deepEqual(contents(placed as Plan).get('p0'), [{ n: 0, attempt: 1 }]);
});

test('plan - a delay that has passed does not hold up what comes after another job', () => {
  const world = new World([
    ...jobs(1),
    ...jobs(1, { after: [0], delay_ms: 1000 }).map((job) => ({ ...job, n: 1 })),
  ]);
  const pack = world.plan()?.packs[0]?.pack ?? '';
  world.nowMs += 5000;
  assert.equal(world.plan(), undefined, 'the other one has not ended');
  world.claim(pack, [{ n: 0, attempt: 1 }]);
  world.result(pack, 0, 1, 'completed');
  assert.equal(world.plan()?.packs.length, 1);
});
