/**
 * The fold by properties: over random logs in which authorised, forged, stale and repeated entries mix.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import {
  type Change,
  emptyFlow,
  type FlowState,
  fold,
  type LogEntry,
} from '../../../actors/flow/fold.ts';
import { Worklist } from '../../../actors/flow/worklist.ts';
import { authority, COORD, INC, logs, NODE_A, NODE_B, signed, worthless } from './log-maker.ts';

const RUNS = { numRuns: Number(process.env['FOLD_RUNS'] ?? 400) };

function folded(entries: readonly LogEntry[]): FlowState {
  const state = emptyFlow();
  for (const entry of entries) fold(state, entry, authority);
  return state;
}

/** What a state means, without the count of what was ignored and where the log stands. */
function meaning({ ignored: _ignored, seq: _seq, mainSeq: _mainSeq, ...rest }: FlowState): unknown {
  return JSON.parse(JSON.stringify(rest));
}

const sorted = (numbers: Iterable<number>): number[] => [...numbers].sort((a, b) => a - b);

test('fold - any prefix folds, and two folds of one log agree', () => {
  fc.assert(
    fc.property(logs, fc.nat(), (log, cut) => {
      const prefix = log.slice(0, cut % (log.length + 1));
      assert.deepEqual(folded(prefix), folded(prefix));
      const state = folded(prefix);
      assert.deepEqual(
        JSON.parse(JSON.stringify(state)),
        JSON.parse(JSON.stringify(folded(prefix))),
      );
    }),
    RUNS,
  );
});

test('fold - repeated entries change nothing', () => {
  fc.assert(
    fc.property(logs, fc.nat(), (log, at) => {
      const state = folded(log);
      const before = structuredClone(state);
      const again = log[at % log.length];
      if (again !== undefined) assert.deepEqual(fold(state, again, authority), []);
      assert.deepEqual(state, before);
    }),
    RUNS,
  );
});

/** Room between the entries of a log for those of intruders. */
const SPREAD = 1000;

test('fold - entries of who may not write them mean nothing', () => {
  fc.assert(
    fc.property(
      logs,
      fc.array(fc.tuple(fc.nat(), worthless), { maxLength: 10 }),
      (log, intruders) => {
        const mixed: LogEntry[] = log.map(
          (entry) => ({ ...entry, seq: entry.seq * SPREAD }) as LogEntry,
        );
        const clean = folded(signed(renumbered(mixed)));
        for (const [where, draft] of intruders) {
          const seq = (where % log.length) * SPREAD + mixed.length;
          mixed.push({ ...draft, seq, at: 1 } as LogEntry);
        }
        mixed.sort((a, b) => a.seq - b.seq);
        assert.deepEqual(meaning(folded(signed(renumbered(mixed)))), meaning(clean));
      },
    ),
    RUNS,
  );
});

/** Terms are sequences: the log's own numbers are kept, and what names a term is scaled with them. */
function renumbered(entries: LogEntry[]): LogEntry[] {
  return entries.map((entry) => {
    const body = entry.body as { term?: unknown } | null;
    const scaled =
      typeof body === 'object' && body !== null && typeof body.term === 'number'
        ? { ...body, term: body.term * SPREAD }
        : entry.body;
    return { ...entry, body: scaled };
  });
}

test('fold - what its writer has not signed, or signed for another place, means nothing', () => {
  const drawn = fc.array(fc.tuple(fc.nat(), fc.boolean()), { minLength: 1, maxLength: 10 });
  fc.assert(
    fc.property(logs, drawn, (log, spoiled) => {
      const honest = new Map(log.map((entry) => [entry.seq, entry]));
      for (const [where, unsigned] of spoiled) {
        const entry = log[where % log.length];
        if (entry === undefined || entry.lane === 'claim') continue;
        if (unsigned) honest.set(entry.seq, { ...entry, proof: null });
        else if (entry.lane === 'main') honest.set(entry.seq, { ...entry, proof: { fence: -1 } });
      }
      const state = folded([...honest.values()]);
      const left = [...honest.values()].filter(
        ({ lane, proof }) => proof !== null && (lane !== 'main' || proof.fence !== -1),
      );
      // The fence of what follows is the sequence of what does not count, too.
      assert.deepEqual(meaning(state), meaning(folded(signed(left))));
    }),
    RUNS,
  );
});

test('fold - a job ends once between retries, and an attempt begins once for ever', () => {
  let reopened = 0;
  fc.assert(
    fc.property(logs, (log) => {
      const state = emptyFlow();
      const ends = new Map<number, string>();
      const begins = new Set<string>();
      for (const entry of log) {
        const before = state.jobs.map((job) => ({ attempt: job.attempt, begunAt: job.begunAt }));
        const failed = state.end?.status === 'failed';
        const changes = fold(state, entry, authority);
        if (changes.some(({ type }) => type === 'reopened')) {
          assert.ok(failed, 'only a flow that ended failed is opened again');
          assert.equal(state.end, null);
          reopened += assertAnotherAttempt(state, before, ends, changes);
        }
        for (const job of state.jobs) {
          const known = ends.get(job.n);
          const now = JSON.stringify([job.status, job.value, job.error, job.endedSeq]);
          if (known !== undefined) assert.equal(now, known, `job ${job.n} changed after its end`);
          if (job.endedSeq !== null) ends.set(job.n, now);
          const earlier = before[job.n];
          if (
            job.begunAt !== null &&
            (earlier?.begunAt == null || earlier.attempt !== job.attempt)
          ) {
            const begin = `${job.n} ${job.attempt}`;
            assert.ok(!begins.has(begin), `attempt ${begin} began twice`);
            begins.add(begin);
          }
        }
      }
    }),
    RUNS,
  );
  assert.ok(reopened > 20, `the logs gave only ${reopened} jobs another attempt by a retry`);
});

/** A retry forgets the ends of exactly the jobs it tells of, never that of a completed one. */
function assertAnotherAttempt(
  state: FlowState,
  before: readonly { attempt: number }[],
  ends: Map<number, string>,
  changes: readonly Change[],
): number {
  const again = changes.flatMap((change) => (change.type === 'job' ? [change.n] : []));
  for (const n of again) {
    const job = state.jobs[n];
    assert.doesNotMatch(ends.get(n) ?? '"completed"', /^\["completed"/, `job ${n} was completed`);
    assert.deepEqual(
      [job?.attempt, job?.pack, job?.failures, job?.endedSeq, job?.begunAt, job?.retryAt],
      [(before[n]?.attempt ?? 0) + 1, null, 0, null, null, null],
    );
    ends.delete(n);
  }
  return again.length;
}

test('fold - the worklist knows every job that has not ended, and which of them no pack holds', () => {
  fc.assert(
    fc.property(logs, (log) => {
      const state = emptyFlow();
      const work = new Worklist();
      for (const entry of log) work.note(state, fold(state, entry, authority));
      const open = state.jobs.filter((job) => job.endedSeq === null);
      assert.deepEqual(sorted(work.open), sorted(open.map((job) => job.n)));
      const loose = open.filter(
        (job) =>
          job.retryAt !== null || job.pack === null || state.packs[job.pack]?.state === 'void',
      );
      assert.deepEqual(sorted(work.loose), sorted(loose.map((job) => job.n)));
    }),
    RUNS,
  );
});

// --- single cases, each a rule of the fold's header -------------------------------------------------

const header = { v: 1, inc: INC };
const U = `U${'A'.repeat(55)}`;

function story(...drafts: [writer: string, lane: string, name: string, body: object][]): FlowState {
  return folded(storyEntries(...drafts));
}

function storyEntries(...drafts: [string, string, string, object][]): LogEntry[] {
  return signed(
    drafts.map(([writer, lane, name, body], i) => ({
      writer,
      lane,
      ...(lane === 'main' ? { kind: name } : { pack: name }),
      seq: i + 1,
      at: 1000 + i,
      body: { ...header, ...body },
    })),
  );
}

const deploy: [string, string, string, object] = [
  COORD,
  'main',
  'deploy',
  { envelope: '{}', engine: 'rhai-1', ledger_revision: 1, submitted_by: [U] },
];
const assign: [string, string, string, object] = [
  COORD,
  'main',
  'assign',
  { node: NODE_A, reason: 'placed' },
];
const oneJob = (extra: object = {}): [string, string, string, object] => [
  NODE_A,
  'main',
  'plan',
  {
    term: 2,
    jobs: [{ n: 0, kind: 'process', name: 'x', digest: '00', line: 1, ...extra }],
    placed: [{ n: 0, attempt: 1, pack: 'p0' }],
    packs: [{ pack: 'p0', class: 'process', node: NODE_B }],
  },
];
const claim: [string, string, string, object] = [
  NODE_B,
  'claim',
  'p0',
  { type: 'claim', runner: 'r', begun: [{ n: 0, attempt: 1 }] },
];
const result = (outcome: string, n = 0, attempt = 1): [string, string, string, object] => [
  NODE_B,
  'run',
  'p0',
  {
    runner: 'r',
    results: [{ n, attempt, outcome, value: '7', error: null, started_ms: 1, ended_ms: 2 }],
  },
];

test('fold - a deployment from deploy to end', () => {
  const state = story(deploy, assign, oneJob(), claim, result('completed'), [
    NODE_A,
    'main',
    'end',
    { term: 2, status: 'completed', value: 7, error: null },
  ]);
  assert.equal(state.jobs[0]?.status, 'completed');
  assert.equal(state.jobs[0]?.value, '7');
  assert.equal(state.end?.status, 'completed');
  assert.deepEqual(state.ignored, {});
});

test('fold - a result after the cancel of its job comes too late', () => {
  const cancel: [string, string, string, object] = [
    COORD,
    'main',
    'cancel',
    { verb: 'cancel', job: 0, reason: 'enough', by: [U], envelope: '{}' },
  ];
  assert.equal(
    story(deploy, assign, oneJob(), claim, cancel, result('completed')).jobs[0]?.status,
    'cancelled',
  );
  assert.equal(
    story(deploy, assign, oneJob(), claim, result('completed'), cancel).jobs[0]?.status,
    'completed',
  );
});

test('fold - a failed job with retries left waits for its back-off, then has one more attempt', () => {
  const state = story(
    deploy,
    assign,
    oneJob({ retries: 1, backoff_ms: 500 }),
    claim,
    result('failed'),
  );
  assert.equal(state.jobs[0]?.status, 'pending');
  assert.equal(state.jobs[0]?.retryAt, 1004 + 500);
  assert.equal(state.jobs[0]?.endedSeq, null);
});

test('fold - the old term decides nothing after the new one', () => {
  const moved: [string, string, string, object] = [
    COORD,
    'main',
    'assign',
    { node: NODE_B, reason: 'is dead' },
  ];
  const late: [string, string, string, object] = [
    NODE_A,
    'main',
    'end',
    { term: 2, status: 'completed', value: 1, error: null },
  ];
  const state = story(deploy, assign, moved, late);
  assert.equal(state.end, null);
  assert.deepEqual(state.ignored, { not_the_assignee: 1 });
});

test('fold - results of who did not claim the pack count for nothing', () => {
  const other: [string, string, string, object] = [
    NODE_A,
    'run',
    'p0',
    {
      runner: 'r',
      results: [
        {
          n: 0,
          attempt: 1,
          outcome: 'completed',
          value: '9',
          error: null,
          started_ms: 1,
          ended_ms: 2,
        },
      ],
    },
  ];
  const state = story(deploy, assign, oneJob(), claim, other);
  assert.equal(state.jobs[0]?.status, 'running');
  assert.deepEqual(state.ignored, { not_the_claimer: 1 });
});

test('fold - who spends the fence of a pack without right makes it void, so that its jobs move on', () => {
  const stranger = 'd'.repeat(32);
  const stale: [string, string, string, object] = [
    stranger,
    'claim',
    'p0',
    { type: 'void', term: 1, reason: 'late' },
  ];
  const state = story(deploy, assign, oneJob(), stale, claim);
  assert.equal(state.packs['p0']?.state, 'void');
  assert.equal(state.jobs[0]?.begunAt, null);
  assert.deepEqual(state.ignored, { not_the_assignee: 1, repeated_claim: 1 });
  const early = story(deploy, assign, stale, oneJob(), claim);
  assert.equal(early.packs['p0']?.state, 'void');
});

test('fold - the same command wrapped anew is one command', () => {
  const pause = (seq: string): [string, string, string, object] => [
    COORD,
    'main',
    seq,
    {
      verb: seq,
      job: null,
      reason: null,
      by: [U],
      envelope: '{}',
      digest: seq === 'pause' ? 'aa' : 'bb',
    },
  ];
  const state = story(deploy, assign, pause('pause'), pause('resume'), pause('pause'));
  assert.equal(state.paused, false);
  assert.deepEqual(state.ignored, { repeated_command: 1 });
});

test('fold - a cancel of a flow nobody was assigned is its end', () => {
  const state = story(deploy, [
    COORD,
    'main',
    'cancel',
    { verb: 'cancel', job: null, reason: null, by: [U], envelope: '{}' },
  ]);
  assert.equal(state.end?.status, 'cancelled');
});

const command = (verb: string, job: number | null = null): [string, string, string, object] => [
  COORD,
  'main',
  verb,
  { verb, job, reason: null, by: [U], envelope: '{}' },
];
const end = (status: string): [string, string, string, object] => [
  NODE_A,
  'main',
  'end',
  { term: 2, status, value: null, error: null },
];
/** Four jobs: 0 runs and fails, 1 is to run after it, 2 has begun, 3 was cancelled by somebody. */
const fourJobs: [string, string, string, object] = [
  NODE_A,
  'main',
  'plan',
  {
    term: 2,
    jobs: [0, 1, 2, 3].map((n) => ({
      n,
      kind: 'process',
      name: 'x',
      digest: '00',
      line: 1,
      after: n === 1 ? [0] : [],
    })),
    placed: [0, 2, 3].map((n) => ({ n, attempt: 1, pack: 'p0' })),
    packs: [{ pack: 'p0', class: 'process', node: NODE_B }],
  },
];
const blocked: [string, string, string, object] = [
  NODE_A,
  'main',
  'plan',
  {
    term: 2,
    gone: [
      {
        n: 1,
        attempt: 1,
        outcome: 'cancelled',
        error: { code: 'cancelled', message: 'job 0 failed', actor: null, node: null, cause: null },
      },
    ],
  },
];
const claimTwo: [string, string, string, object] = [
  NODE_B,
  'claim',
  'p0',
  {
    type: 'claim',
    runner: 'r',
    begun: [
      { n: 0, attempt: 1 },
      { n: 2, attempt: 1 },
    ],
  },
];
const failed = [
  deploy,
  assign,
  fourJobs,
  claimTwo,
  command('cancel', 3),
  result('failed'),
] as const;

test('fold - a retry opens a flow that failed: what failed and what went with it has another attempt', () => {
  const state = story(...failed, blocked, end('failed'), command('retry'));
  assert.equal(state.end, null);
  assert.deepEqual(
    state.jobs.map(({ status, attempt, pack }) => [status, attempt, pack]),
    [
      ['unplaced', 2, null],
      ['waiting', 2, null],
      ['unplaced', 2, null],
      ['cancelled', 1, 'p0'],
    ],
  );
  const late = story(...failed, blocked, end('failed'), command('retry'), result('completed', 2));
  assert.equal(late.jobs[2]?.status, 'unplaced', 'the attempt before the end decides nothing');
});

test('fold - a retry of one job leaves others that failed as they are', () => {
  const state = story(...failed, result('failed', 2), end('failed'), command('retry', 2));
  assert.deepEqual(
    state.jobs.map(({ status, attempt }) => [status, attempt]),
    [
      ['failed', 1],
      ['waiting', 2],
      ['unplaced', 2],
      ['cancelled', 1],
    ],
  );
  const named = story(...failed, end('failed'), command('retry', 3));
  assert.equal(named.jobs[3]?.attempt, 2, 'a cancelled job that is named has another attempt');
});

test('fold - a retry of a flow that runs, completed or was cancelled counts for nothing', () => {
  assert.deepEqual(story(deploy, assign, command('retry')).ignored, { not_failed: 1 });
  for (const status of ['completed', 'cancelled', 'refused']) {
    const state = story(deploy, assign, end(status), command('retry'));
    assert.equal(state.end?.status, status);
    assert.deepEqual(state.ignored, { not_failed: 1 });
    assert.deepEqual(state.commands, []);
  }
});

test('fold - 100,000 entries fold in under a second', (t) => {
  const entries: LogEntry[] = [];
  let lastDecision = 0;
  const add = (writer: string, lane: string, name: string, body: object): void => {
    const seq = entries.length + 1;
    const place = lane === 'main' ? { kind: name } : { pack: name };
    const proof = { fence: lane === 'main' ? lastDecision : null };
    if (lane === 'main') lastDecision = seq;
    entries.push({
      writer,
      lane,
      ...place,
      seq,
      at: seq,
      proof,
      body: { ...header, ...body },
    } as LogEntry);
  };
  add(...deploy);
  add(...assign);
  for (let n = 0; n < 33_000; n++) {
    const pack = `p${n}`;
    add(NODE_A, 'main', 'plan', {
      term: 2,
      jobs: [{ n, kind: 'process', name: 'x', digest: '00', line: 1 }],
      placed: [{ n, attempt: 1, pack }],
      packs: [{ pack, class: 'process', node: NODE_B }],
    });
    add(NODE_B, 'claim', pack, { type: 'claim', runner: 'r', begun: [{ n, attempt: 1 }] });
    add(NODE_B, 'run', pack, {
      runner: 'r',
      results: [
        {
          n,
          attempt: 1,
          outcome: 'completed',
          value: '7',
          error: null,
          started_ms: 1,
          ended_ms: 2,
        },
      ],
    });
  }
  // The best of three: what the machine does beside it is not what is measured.
  let state = emptyFlow();
  let tookMs = Number.POSITIVE_INFINITY;
  for (let round = 0; round < 3; round++) {
    const started = performance.now();
    state = folded(entries);
    tookMs = Math.min(tookMs, performance.now() - started);
  }
  assert.equal(state.jobs.filter((job) => job.status === 'completed').length, 33_000);
  t.diagnostic(`${entries.length} entries in ${Math.round(tookMs)} ms`);
  assert.ok(tookMs < 1000, `${entries.length} entries took ${Math.round(tookMs)} ms`);
});
