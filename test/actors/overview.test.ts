/** The list of a context's flows, in pages that a reply has room for. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { flowsPage } from '../../actors/coord/overview.ts';
import type { Bus, Entry } from '../../bus/bus.ts';
import { FlowsReply } from '../../schemas/ledger.ts';

const [COORD, NODE] = ['c'.repeat(32), 'd'.repeat(32)];
const FLOWS = 600;
const REPLY_BYTES_MAX = 1024 * 1024;

const flowOf = (n: number): string =>
  `${'a'.repeat(22)}${n.toString(26).padStart(4, '0')}`.replaceAll(
    /[0189]/g,
    (digit) => 'qrst'['0189'.indexOf(digit)] ?? '',
  );

/** Flows that all ended failed, each with an error as long as errors get. */
function entries(): Entry[] {
  const head = { v: 1, inc: 'i'.repeat(8) };
  const error = {
    code: 'job_failed',
    message: 'x'.repeat(4096),
    actor: null,
    node: null,
    cause: null,
  };
  return ['deploy', 'assign', 'end'].flatMap((kind, k) =>
    Array.from({ length: FLOWS }, (_, n) => ({
      context: 'acme',
      flow: flowOf(n),
      lane: 'main' as const,
      kind,
      writer: kind === 'end' ? NODE : COORD,
      seq: 1 + n * 3 + k,
      at: 1000 + n * 3 + k,
      proof: { fence: null },
      body: {
        deploy: { ...head, envelope: '{}', engine: '1', ledger_revision: 1, submitted_by: [] },
        assign: { ...head, node: NODE, reason: 'idle' },
        end: { ...head, term: 2, status: 'failed', value: null, error },
      }[kind],
    })),
  ) as Entry[];
}

test('overview - every flow is in one page, newest first, and each page fits in a reply', async () => {
  const log = {
    async *overview() {
      yield* entries();
    },
  };
  const seen: string[] = [];
  let after: string | null = null;
  do {
    const page: FlowsReply = FlowsReply.parse(
      await flowsPage(
        { log, kv: () => ({}) } as unknown as Bus,
        { coords: () => [COORD] } as never,
        {
          context: 'acme',
          after,
          limit: 1000,
        },
      ),
    );
    assert.ok(Buffer.byteLength(JSON.stringify(page)) < REPLY_BYTES_MAX);
    assert.notEqual(page.flows.length, 0);
    for (const { flow, seq, status } of page.flows) {
      seen.push(flow);
      assert.deepEqual([seq, status], [1 + (FLOWS - seen.length) * 3, 'failed']);
    }
    after = page.next;
  } while (after !== null);
  const newestFirst = Array.from({ length: FLOWS }, (_, n) => flowOf(FLOWS - 1 - n));
  assert.deepEqual(seen, newestFirst);
});
