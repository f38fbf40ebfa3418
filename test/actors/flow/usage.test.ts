/** What a result says its job used: kept by the fold, shown in the flow object. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { emptyFlow, fold, type LogEntry } from '../../../actors/flow/fold.ts';
import { showFlow } from '../../../actors/flow/show.ts';
import { Flow } from '../../../schemas/flow.ts';
import { type Usage, usageText } from '../../../schemas/job.ts';
import { authority, COORD, INC, NODE_A, signed } from './log-maker.ts';

const FLOW = 'a'.repeat(26);
const USAGE: Usage = {
  cpu_ms: 310,
  memory_peak_bytes: 64 * 1024 * 1024,
  io_read_bytes: 0,
  io_write_bytes: null,
};

/** A flow of two jobs in one pack, both begun, with these results. */
function log(results: object[]): LogEntry[] {
  const head = { v: 1, inc: INC };
  const job = { kind: 'process', name: 'j', digest: '00', line: 1 };
  const main = (kind: string, writer: string, body: object) => ({
    lane: 'main' as const,
    kind,
    writer,
    body: { ...head, ...body },
  });
  const entries = [
    main('deploy', COORD, { envelope: '{}', engine: '1', ledger_revision: 1, submitted_by: [] }),
    main('assign', COORD, { node: NODE_A, reason: 'idle' }),
    main('plan', NODE_A, {
      term: 2,
      jobs: [0, 1].map((n) => ({ n, ...job })),
      placed: [0, 1].map((n) => ({ n, attempt: 1, pack: 'p0' })),
      packs: [{ pack: 'p0', class: 'process', node: NODE_A }],
    }),
    {
      lane: 'claim' as const,
      pack: 'p0',
      writer: NODE_A,
      body: {
        ...head,
        type: 'claim',
        runner: 'process-0',
        begun: [0, 1].map((n) => ({ n, attempt: 1 })),
      },
    },
    {
      lane: 'run' as const,
      pack: 'p0',
      writer: NODE_A,
      body: { ...head, runner: 'process-0', results },
    },
  ];
  return signed(entries.map((entry, i) => ({ ...entry, seq: i + 1, at: 1000 + i })));
}

const result = (n: number, more: object) => ({
  n,
  attempt: 1,
  outcome: 'completed',
  value: '1',
  error: null,
  started_ms: 1,
  ended_ms: 2,
  ...more,
});

test('usage - is kept with its job and shown, and null where nobody told', () => {
  const state = emptyFlow();
  for (const entry of log([result(0, { usage: USAGE }), result(1, {})])) {
    fold(state, entry, authority);
  }
  assert.deepEqual(state.ignored, {});
  const { jobs } = Flow.parse(showFlow('acme', FLOW, state, JSON.parse));
  assert.deepEqual(
    jobs.map(({ status, usage }) => [status, usage]),
    [
      ['completed', USAGE],
      ['completed', null],
    ],
  );
});

test('usage - figures that cannot be are no result at all', () => {
  const state = emptyFlow();
  for (const entry of log([result(0, { usage: { ...USAGE, cpu_ms: -1 } })])) {
    fold(state, entry, authority);
  }
  assert.deepEqual(state.ignored, { unreadable: 1 });
});

test('usage - in words', () => {
  const text = '0.31 s of cpu, 64.0 MiB of memory at its peak, 0.0 MiB read';
  assert.equal(usageText(USAGE), text);
  assert.equal(usageText({ ...USAGE, io_write_bytes: 4 << 20 }), `${text}, 4.0 MiB written`);
  const unseen = { memory_peak_bytes: null, io_read_bytes: null };
  assert.equal(usageText({ ...USAGE, ...unseen }), '0.31 s of cpu');
});
