/**
 * why: every state has a cause, every cause a source that can be looked up; and the causes people ask for,
 * one story each.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { Chronicle, sourceOf } from '../../../actors/flow/chronicle.ts';
import { emptyFlow, fold, type LogEntry } from '../../../actors/flow/fold.ts';
import { type Known, type Why, whyFlow, whyJob } from '../../../actors/flow/why.ts';
import type { RosterNode } from '../../../schemas/node.ts';
import { authority, COORD, INC, logs, NODE_A, NODE_B, signed } from './log-maker.ts';

const NAMES: Record<string, string> = { [NODE_A]: 'alpha', [NODE_B]: 'beta' };
const U = `U${'A'.repeat(55)}`;
const error = (code: string, message: string, cause: object | null = null) => ({
  code,
  message,
  actor: null,
  node: null,
  cause,
});

function node(address: string, more: Partial<RosterNode> = {}): RosterNode {
  return {
    v: 1,
    address,
    principal: U,
    name: NAMES[address] ?? address,
    groups: [],
    offers: ['process'],
    liveness: 'live',
    reason: null,
    state: 'ready',
    inc: INC,
    runners: [{ runner: 'process-0', inc: INC, class: 'process', slots: 4, busy: 4, contexts: [] }],
    flows: 0,
    version: '0',
    cpus: 1,
    memory_mib: 1,
    load1: 0,
    since_ms: 0,
    beat_ms: 0,
    ...more,
  };
}

function known(entries: readonly LogEntry[], more: Partial<Known> = {}): Known {
  const nameOf = (address: string): string => NAMES[address] ?? address;
  const chronicle = new Chronicle(nameOf);
  const state = emptyFlow();
  for (const entry of entries) chronicle.note(state, entry, fold(state, entry, authority));
  const roster = [node(NODE_A), node(NODE_B)];
  return { context: 'acme', state, chronicle, roster, nameOf, unplaced: null, nowMs: 0, ...more };
}

const SOURCE = /^(log #\d+ [a-z]+|roster( .+)?|policy .+|ledger .+)$/;

test('why - every reachable state of a job and of a flow has a cause, and every source is there', () => {
  const reached = new Set<string>();
  fc.assert(
    fc.property(logs, fc.nat(), (log, cut) => {
      const prefix = log.slice(0, 1 + (cut % log.length));
      const all = known(prefix);
      const written = new Set(prefix.map(sourceOf));
      const whys = all.state.jobs.map((job): [string, Why | undefined] => [
        `job ${job.status}${job.retryAt === null ? '' : ' backing off'}`,
        whyJob(all, job.n),
      ]);
      whys.push(['flow', whyFlow(all)]);
      for (const [what, why] of whys) {
        assert.ok(why !== undefined && why.because.length > 0, `${what} has no cause`);
        reached.add(what === 'flow' ? `flow ${why.state}` : what);
        for (const { fact, source } of why.because) {
          assert.match(source, SOURCE, fact);
          assert.ok(!source.startsWith('log') || written.has(source), `${fact}: no ${source}`);
          assert.doesNotMatch(fact, /undefined|null|\[object/);
        }
      }
      assert.equal(whyJob(all, all.state.jobs.length), undefined);
    }),
    { numRuns: Number(process.env['FOLD_RUNS'] ?? 400) },
  );
  for (const status of [
    'waiting',
    'unplaced',
    'pending',
    'pending backing off',
    'running',
    'completed',
    'failed',
    'timeout',
    'cancelled',
  ]) {
    assert.ok(reached.has(`job ${status}`), `no log came to a job that is ${status}`);
  }
});

// --- the causes people ask for ----------------------------------------------------------------------

type Draft = [writer: string, lane: 'main' | 'claim' | 'run', name: string, body: object];

function story(...drafts: Draft[]): LogEntry[] {
  return signed(
    drafts.map(([writer, lane, name, body], i) => ({
      writer,
      lane,
      ...(lane === 'main' ? { kind: name } : { pack: name }),
      seq: i + 1,
      at: 1000 + i,
      body: { v: 1, inc: INC, ...body },
    })),
  );
}

const deploy: Draft = [
  COORD,
  'main',
  'deploy',
  { envelope: '{}', engine: 'rhai-1', ledger_revision: 1, submitted_by: [U] },
];
const assign = (to = NODE_A, reason = 'placed'): Draft => [
  COORD,
  'main',
  'assign',
  { node: to, reason },
];
const plan = (body: object): Draft => [NODE_A, 'main', 'plan', { term: 2, ...body }];
const job = (n: number, more: object = {}) => ({
  n,
  kind: 'process',
  name: `job-${n}`,
  digest: '00',
  line: n + 1,
  ...more,
});
const planned = (n: number, pack: string, attempt = 1, because: string | null = null): object => ({
  placed: [{ n, attempt, pack, because }],
  packs: [{ pack, class: 'process', node: NODE_B }],
});
const claim = (n: number, pack: string, attempt = 1): Draft => [
  NODE_B,
  'claim',
  pack,
  { type: 'claim', runner: 'process-0', begun: [{ n, attempt }] },
];
const failing = (n: number, pack: string, message: string, attempt = 1, more = {}): Draft => [
  NODE_B,
  'run',
  pack,
  {
    runner: 'process-0',
    results: [
      {
        n,
        attempt,
        outcome: 'failed',
        value: null,
        error: error('job_failed', message),
        started_ms: 1,
        ended_ms: 2,
        ...more,
      },
    ],
  },
];
const end = (status: string, why: object | null): Draft => [
  NODE_A,
  'main',
  'end',
  { term: 2, status, value: null, error: why },
];
const cancel = (n: number | null): Draft => [
  COORD,
  'main',
  'cancel',
  { verb: 'cancel', job: n, reason: 'wrong version', by: [U], envelope: '{}' },
];

function says(why: Why | undefined, fact: RegExp, source: string): void {
  const found = why?.because.find((each) => fact.test(each.fact) && each.source === source);
  assert.ok(found, `nothing says ${String(fact)} by ${source}:\n${JSON.stringify(why, null, 1)}`);
}

test('why - a job without a node: for each node what it lacks', () => {
  const reason = 'alpha: does not offer net; beta: runs no process runner for acme';
  const lonely = known(
    story(
      deploy,
      assign(),
      plan({ jobs: [job(0)], placed: [{ n: 0, attempt: 1, pack: null, unplaced: reason }] }),
    ),
    { roster: [node(NODE_A, { liveness: 'dead', reason: 'no heartbeat for 9.0 s' })] },
  );
  const why = whyJob(lonely, 0);
  assert.equal(why?.state, 'unplaced');
  says(why, /alpha: does not offer net$/, 'log #3 plan');
  says(why, /beta: runs no process runner for acme$/, 'log #3 plan');
  says(why, /alpha is dead: no heartbeat for 9\.0 s/, 'roster alpha');
  says(whyFlow(lonely), /job 0 \(job-0\): .*does not offer net/, 'log #3 plan');
});

test('why - a flow without a node: what the ledger keeps beside it', () => {
  const why = whyFlow(known(story(deploy), { unplaced: 'alpha: does not match group=eu' }));
  assert.equal(why.state, 'unplaced');
  says(why, /alpha: does not match group=eu/, 'ledger open_flows');
});

test('why - a waiting job: the job before it, and why that one is where it is', () => {
  const why = whyJob(
    known(
      story(
        deploy,
        assign(),
        plan({ jobs: [job(0), job(1, { after: [0] })], ...planned(0, 'p0') }),
        claim(0, 'p0'),
      ),
    ),
    1,
  );
  says(why, /^waits for job 0 \(job-0\), which is running$/, 'log #4 claim');
  says(why, /^job 0 \(job-0\): attempt 1 was begun by process-0 on beta$/, 'log #4 claim');
});

test('why - a job in back-off: until when, by which policy, after which failure', () => {
  const all = known(
    story(
      deploy,
      assign(),
      plan({ jobs: [job(0, { retries: 2, backoff_ms: 500 })], ...planned(0, 'p0') }),
      claim(0, 'p0'),
      failing(0, 'p0', 'exit code 7'),
    ),
  );
  const why = whyJob(all, 0);
  const policy = 'policy retries=2 backoff=500ms in line 1';
  says(why, /^is in back-off until 1970-01-01T00:00:01\.504Z .*retry 1 of 2/, policy);
  says(why, /^attempt 1 failed: exit code 7/, 'log #5 run');
});

test('why - what each attempt used, and the figure of the limit that ended it', () => {
  const usage = (cpu_ms: number) => ({
    usage: { cpu_ms, memory_peak_bytes: 3 << 20, io_read_bytes: 0, io_write_bytes: 1 << 20 },
  });
  const limit = 'job-0 did not end within 700 ms and was killed; it had used 0.70 s of cpu';
  const all = known(
    story(
      deploy,
      assign(),
      plan({ jobs: [job(0, { retries: 1 })], ...planned(0, 'p0') }),
      claim(0, 'p0'),
      failing(0, 'p0', 'exit code 7', 1, usage(310)),
      plan(planned(0, 'p1', 2, 'retry')),
      claim(0, 'p1', 2),
      failing(0, 'p1', limit, 2, { ...usage(700), outcome: 'timeout' }),
    ),
  );
  const why = whyJob(all, 0);
  assert.equal(why?.state, 'timeout');
  assert.match(why?.because[0]?.fact ?? '', /^timeout on beta in attempt 2: .*within 700 ms/);
  const stored = '3.0 MiB of memory at its peak, 0.0 MiB read, 1.0 MiB written';
  says(why, new RegExp(`^attempt 2 used 0\\.70 s of cpu, ${stored}$`), 'log #8 run');
  says(why, new RegExp(`^attempt 1 used 0\\.31 s of cpu, ${stored}$`), 'log #5 run');
});

test('why - a job whose runner was lost: the attempt, the place, and what followed', () => {
  const retried = known(
    story(
      deploy,
      assign(),
      plan({ jobs: [job(0, { idempotent: true })], ...planned(0, 'p0') }),
      claim(0, 'p0'),
      plan(planned(0, 'p1', 2, 'lost')),
    ),
  );
  says(whyJob(retried, 0), /attempt 1 was lost: what ran it on beta ended/, 'log #5 plan');
  const given = known(
    story(
      deploy,
      assign(),
      plan({ jobs: [job(0)], ...planned(0, 'p0') }),
      claim(0, 'p0'),
      plan({
        gone: [
          { n: 0, attempt: 1, outcome: 'failed', error: error('outcome_unknown', 'it was begun') },
        ],
      }),
    ),
  );
  says(
    whyJob(given, 0),
    /the lease of what ran it on beta ended/,
    'policy idempotent=false in line 1',
  );
});

test('why - a flow that was moved: from where, to where, because of what', () => {
  const why = whyFlow(
    known(story(deploy, assign(), assign(NODE_B, 'is dead (no heartbeat for 9 s)'))),
  );
  says(
    why,
    /was moved from alpha to beta: alpha is dead \(no heartbeat for 9 s\)/,
    'log #3 assign',
  );
});

test('why - cancelled by whom, with the reason', () => {
  const all = known(
    story(deploy, assign(), plan({ jobs: [job(0)], ...planned(0, 'p0') }), cancel(0)),
  );
  const why = whyJob(all, 0);
  assert.equal(why?.state, 'cancelled');
  says(why, new RegExp(`cancelled by ${U}: wrong version`), 'log #4 cancel');
  const flow = whyFlow(known(story(deploy, cancel(null))));
  assert.equal(flow.state, 'cancelled');
  says(flow, new RegExp(`cancel was asked by ${U}: wrong version`), 'log #2 cancel');
});

test('why - a flow that failed: the job, its exit code, and what the end took along', () => {
  const cause = error('job_failed', 'exit code 7');
  const all = known(
    story(
      deploy,
      assign(),
      plan({ jobs: [job(0), job(1)], ...planned(0, 'p0') }),
      claim(0, 'p0'),
      failing(0, 'p0', 'exit code 7'),
      end('failed', error('job_failed', 'line 2: job 0 (job-0): exit code 7', cause)),
    ),
  );
  const why = whyFlow(all);
  assert.equal(why.state, 'failed');
  says(why, /^ended failed: line 2: job 0 \(job-0\): exit code 7/, 'log #6 end');
  says(why, /^its cause: exit code 7 \[job_failed\]/, 'log #6 end');
  says(why, /^job 0 \(job-0\): failed on beta in attempt 1: exit code 7/, 'log #5 run');
  says(whyJob(all, 1), /^its flow ended failed: line 2/, 'log #6 end');
});
