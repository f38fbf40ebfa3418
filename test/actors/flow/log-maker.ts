/**
 * Makes logs of one flow for property tests: what really happens, mixed with what should not count.
 *
 * Entries are drawn from small sets of numbers, so that jobs, packs, attempts and terms collide all the time.
 */
import fc from 'fast-check';
import type { Authority, LogEntry } from '../../../actors/flow/fold.ts';

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
  job: fc.option(small),
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
    weight: 8,
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
  { weight: 1, arbitrary: main('gossip', fc.constant({ term: 1 })) },
  {
    weight: 5,
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
    weight: 6,
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

const numbered = (list: Draft[]): LogEntry[] =>
  list.map((draft, i) => ({ ...draft, seq: i + 1, at: 1000 + i }));

/** A log that begins as real ones do, so that most of what follows can count. */
export const logs: fc.Arbitrary<LogEntry[]> = fc
  .array(fc.oneof(...drafts), { maxLength: 60 })
  .map((list) =>
    numbered([
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
      ...list.map((draft) => inTerm(draft)),
    ]),
  );

/** Most supervisors know their term: half of the drawn ones become the first. */
function inTerm(draft: Draft): Draft {
  const body = draft.body as { term?: number } | null;
  if (typeof body !== 'object' || body === null || typeof body.term !== 'number') return draft;
  return body.term % 2 === 0 ? { ...draft, body: { ...body, term: 2 } } : draft;
}

/** Entries that must never count, whatever the state: from a stranger, unreadable, of unknown kind. */
export const worthless: fc.Arbitrary<Draft> = fc
  .oneof(...drafts)
  .map((draft): Draft => ({ ...draft, writer: STRANGER }));
