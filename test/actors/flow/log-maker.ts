/**
 * Makes logs of one flow for property tests: what really happens, mixed with what should not count.
 *
 * Entries are drawn from small sets of numbers, so that jobs, packs, attempts and terms collide all the time.
 */
import fc from 'fast-check';
import {
  type Authority,
  emptyFlow,
  type FlowState,
  fold,
  type LogEntry,
} from '../../../actors/flow/fold.ts';

export const COORD = 'c'.repeat(32);
export const NODE_A = 'a'.repeat(32);
export const NODE_B = 'b'.repeat(32);
export const STRANGER = 'd'.repeat(32);
export const INC = 'incarnation1';

export const authority: Authority = { isCoord: (address) => address === COORD };

const PRINCIPAL = `U${'A'.repeat(55)}`;
const small = fc.integer({ min: 0, max: 4 });
const attempt = fc.integer({ min: 1, max: 3 });
const packId = fc.integer({ min: 0, max: 5 }).map((i) => `p${i}`);
const node = fc.constantFrom(NODE_A, NODE_B);
const writer = fc.constantFrom(COORD, NODE_A, NODE_B, STRANGER);
const header = { v: 1 as const, inc: INC };
const error = { code: 'job_failed', message: 'no', actor: null, node: null, cause: null };

const newJob = fc.record({
  n: small,
  kind: fc.constant('process' as const),
  name: fc.constant('job'),
  digest: fc.constant('00'),
  line: fc.constant(1),
  retries: fc.integer({ min: 0, max: 2 }),
  backoff_ms: fc.constant(10),
  idempotent: fc.boolean(),
  after: fc.array(small, { maxLength: 1 }),
});
const placement = fc.record({
  n: small,
  attempt,
  pack: fc.option(packId),
  unplaced: fc.constant(null),
  because: fc.option(fc.constantFrom('lost' as const, 'retry' as const, 'void' as const)),
});
const result = fc.record({
  n: small,
  attempt,
  outcome: fc.constantFrom(
    'completed' as const,
    'failed' as const,
    'timeout' as const,
    'cancelled' as const,
  ),
  value: fc.constant('1'),
  error: fc.constant(error),
  started_ms: fc.constant(1),
  ended_ms: fc.constant(2),
});
const begun = fc.record({ n: small, attempt });
const term = fc.integer({ min: 1, max: 40 });

type Draft = { writer: string; body: unknown } & (
  | { lane: 'main'; kind: string }
  | { lane: 'claim'; pack: string }
  | { lane: 'run'; pack: string }
);

const command = fc.record({
  verb: fc.constantFrom('cancel' as const, 'pause' as const, 'resume' as const, 'retry' as const),
  job: fc.oneof({ weight: 9, arbitrary: small }, { weight: 1, arbitrary: fc.constant(null) }),
});

const main = (kind: string, body: fc.Arbitrary<object>): fc.Arbitrary<Draft> =>
  fc.record({ writer, body }).map((drawn) => ({
    lane: 'main' as const,
    kind,
    writer: drawn.writer,
    body: { ...header, ...drawn.body },
  }));

const drafts: { arbitrary: fc.Arbitrary<Draft>; weight: number }[] = [
  {
    weight: 1,
    arbitrary: main(
      'deploy',
      fc.constant({
        envelope: '{}',
        engine: 'rhai-1',
        ledger_revision: 1,
        submitted_by: [PRINCIPAL],
      }),
    ),
  },
  { weight: 2, arbitrary: main('assign', fc.record({ node, reason: fc.constant('placed') })) },
  {
    weight: 24,
    arbitrary: main(
      'plan',
      fc.record({
        term,
        jobs: fc.array(newJob, { maxLength: 3 }),
        placed: fc.array(placement, { maxLength: 4 }),
        packs: fc.array(fc.record({ pack: packId, class: fc.constant('process' as const), node }), {
          maxLength: 3,
        }),
        gone: fc.array(
          fc.record({
            n: small,
            attempt,
            outcome: fc.constant('failed' as const),
            error: fc.constant(error),
          }),
          { maxLength: 1 },
        ),
      }),
    ),
  },
  {
    weight: 2,
    arbitrary: main(
      'call',
      fc.record({
        term,
        k: small,
        name: fc.constantFrom('kv_get', 'cancel'),
        args: fc.constant('1'),
        answer: fc.constant('2'),
        error: fc.constant(null),
      }),
    ),
  },
  { weight: 1, arbitrary: main('timer', fc.record({ term, k: small, due_ms: fc.constant(9) })) },
  {
    weight: 1,
    arbitrary: main(
      'end',
      fc.record({
        term,
        status: fc.constantFrom('completed', 'failed'),
        value: fc.constant(1),
        error: fc.constant(null),
      }),
    ),
  },
  {
    weight: 1,
    arbitrary: command.chain(({ verb, job }) =>
      main(verb, fc.constant({ verb, job, reason: null, by: [PRINCIPAL], envelope: '{}' })),
    ),
  },
  {
    weight: 2,
    arbitrary: fc
      .oneof({ weight: 2, arbitrary: fc.constant(null) }, { weight: 1, arbitrary: small })
      .chain((job) => {
        const said = { verb: 'retry', job, reason: null, by: [PRINCIPAL], envelope: '{}' };
        // The same command may stand in the log twice, where two coords entered it.
        const digest = fc.constantFrom('', 'one', 'two');
        return main(
          'retry',
          fc.record({ digest }).map((more) => ({ ...said, ...more })),
        );
      }),
  },
  { weight: 1, arbitrary: main('gossip', fc.constant({ term: 1 })) },
  {
    weight: 20,
    arbitrary: fc
      .record({ writer, pack: packId, begun: fc.array(begun, { maxLength: 3 }) })
      .map((drawn) => ({
        lane: 'claim' as const,
        pack: drawn.pack,
        writer: drawn.writer,
        body: { ...header, type: 'claim', runner: 'process-0', begun: drawn.begun },
      })),
  },
  {
    weight: 1,
    arbitrary: fc.record({ writer, pack: packId, term }).map((drawn) => ({
      lane: 'claim' as const,
      pack: drawn.pack,
      writer: drawn.writer,
      body: { ...header, type: 'void', term: drawn.term, reason: 'test' },
    })),
  },
  {
    weight: 24,
    arbitrary: fc
      .record({
        writer,
        pack: packId,
        inc: fc.constantFrom(INC, 'incarnation2'),
        begun: fc.array(begun, { maxLength: 2 }),
        results: fc.array(result, { maxLength: 3 }),
      })
      .map((drawn) => ({
        lane: 'run' as const,
        pack: drawn.pack,
        writer: drawn.writer,
        body: {
          v: 1,
          inc: drawn.inc,
          runner: 'process-0',
          begun: drawn.begun,
          results: drawn.results,
        },
      })),
  },
  {
    weight: 1,
    arbitrary: fc
      .record({ writer, body: fc.jsonValue() })
      .map((drawn) => ({ lane: 'main' as const, kind: 'plan', ...drawn })),
  },
];

/**
 * Makes a drawn entry one that could be real: the writer that may, the present term, the next free numbers,
 * a pack that exists. Without this almost nothing of a random log would count.
 */
function plausible(draft: Draft, state: FlowState): Draft {
  const body = structuredClone(draft.body) as Record<string, unknown>;
  if (typeof body !== 'object' || body === null || Array.isArray(body)) return draft;
  if (draft.lane === 'main') {
    if (['deploy', 'assign', 'cancel', 'retry', 'pause', 'resume'].includes(draft.kind)) {
      return { ...draft, writer: COORD };
    }
    if ('term' in body) body['term'] = state.term?.seq ?? 1;
    if ('k' in body) body['k'] = state.answers.length;
    if (draft.kind === 'plan' && 'jobs' in body) plausiblePlan(body, state);
    return { ...draft, writer: state.term?.node ?? NODE_A, body };
  }
  const packs = Object.values(state.packs);
  const drawn = Number(draft.pack.slice(1));
  const pack = packs.length === 0 ? undefined : packs[packs.length - 1 - (drawn % packs.length)];
  if (pack === undefined) return draft;
  const mine = pack.jobs.map((n) => ({ n, attempt: state.jobs[n]?.attempt ?? 1 }));
  if (body['type'] === 'void') {
    body['term'] = state.term?.seq ?? 1;
    return { ...draft, pack: pack.pack, writer: state.term?.node ?? NODE_A, body };
  }
  body['begun'] = mine.slice(0, 2);
  if (Array.isArray(body['results'])) {
    const results = body['results'] as object[];
    body['results'] = results.map((each, i) => ({
      ...each,
      ...mine[i % Math.max(1, mine.length)],
    }));
    body['inc'] = INC;
  }
  return { ...draft, pack: pack.pack, writer: pack.node, body };
}

function plausiblePlan(body: Record<string, unknown>, state: FlowState): void {
  const fresh = `p${state.packCount}`;
  const jobs = (body['jobs'] as { n: number }[]).map((job, i) => ({
    ...job,
    n: state.jobs.length + i,
  }));
  const known = state.jobs.map((job) => ({
    n: job.n,
    attempt: job.attempt + (job.begunAt === null ? 0 : 1),
  }));
  const all = [...known, ...jobs.map(({ n }) => ({ n, attempt: 1 }))];
  const placed = (body['placed'] as { n: number }[]).flatMap((each) => {
    const target = all[all.length - 1 - (each.n % Math.max(1, all.length))];
    return target === undefined ? [] : [{ ...each, ...target, pack: fresh }];
  });
  const packs = (body['packs'] as object[]).slice(0, 1).map((each) => ({ ...each, pack: fresh }));
  Object.assign(body, { jobs, placed, packs });
}

const first: Draft[] = [
  {
    lane: 'main',
    kind: 'deploy',
    writer: COORD,
    body: {
      ...header,
      envelope: '{}',
      engine: 'rhai-1',
      ledger_revision: 1,
      submitted_by: [PRINCIPAL],
    },
  },
  {
    lane: 'main',
    kind: 'assign',
    writer: COORD,
    body: { ...header, node: NODE_A, reason: 'placed' },
  },
];

/** The entries as their writers sign them: each decision after the one before it. */
export function signed(entries: readonly object[]): LogEntry[] {
  let last = 0;
  return (entries as LogEntry[]).map((entry) => {
    const proof = { fence: entry.lane === 'main' ? last : null };
    if (entry.lane === 'main') last = entry.seq;
    return { ...entry, proof };
  });
}

/** Three of four entries are made plausible; the others stay as drawn. */
export const logs: fc.Arbitrary<LogEntry[]> = fc
  .array(fc.tuple(fc.oneof(...drafts), fc.integer({ min: 0, max: 3 })), {
    minLength: 40,
    maxLength: 120,
  })
  .map((list) => {
    const state = emptyFlow();
    const entries: LogEntry[] = [];
    const add = (draft: Draft): void => {
      const place = { seq: entries.length + 1, at: 1000 + entries.length };
      const proof = { fence: draft.lane === 'main' ? state.mainSeq : null };
      const entry = { ...draft, ...place, proof } as LogEntry;
      entries.push(entry);
      fold(state, entry, authority);
    };
    for (const draft of first) add(draft);
    for (const [draft, luck] of list) add(luck === 0 ? draft : plausible(draft, state));
    return entries;
  });

/**
 * Decisions and facts of who may not write them. A stranger's entry on a claim lane is another matter: it
 * spends the pack's fence, whoever wrote it (F7).
 */
export const worthless: fc.Arbitrary<Draft> = fc
  .oneof(...drafts)
  .filter((draft) => draft.lane !== 'claim')
  .map((draft): Draft => ({ ...draft, writer: STRANGER }));
