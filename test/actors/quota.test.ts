/** Quotas that are kept before a flow exists: how many are open, how many come within a minute. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { newContext } from '../../actors/ledger/contexts.ts';
import { QuotaDesk } from '../../actors/coord/quota.ts';
import type { Quotas } from '../../schemas/ledger.ts';

const record = (quotas: Partial<Quotas>) => {
  const made = newContext('acme', 'U', 0);
  return { ...made, quotas: { ...made.quotas, ...quotas } };
};
const ref = (n: number) => ({ context: 'acme', flow: String(n) });

test('quota - open flows: one too many is refused with the figure and who raises it, until one ends', () => {
  const desk = new QuotaDesk();
  const limited = record({ open_flows: 2 });
  desk.opened(ref(0));
  assert.equal(desk.letIn(ref(1), limited, 0), undefined);
  const refused = desk.letIn(ref(2), limited, 0);
  assert.equal(refused?.code, 'quota');
  assert.match(
    refused?.message ?? '',
    /acme has 2 flows .* quota open_flows is 2: .*--open-flows N/,
  );
  assert.equal(desk.letIn({ context: 'other', flow: 'x' }, record({}), 0), undefined);
  desk.closed(ref(0));
  assert.equal(desk.letIn(ref(2), limited, 0), undefined);
  assert.ok(desk.isOpen(ref(2)));
});

test('quota - deployments a minute: by the time at which the bus took them', () => {
  const desk = new QuotaDesk();
  const limited = record({ deploys_per_minute: 2 });
  assert.equal(desk.letIn(ref(1), limited, 1_000), undefined);
  assert.equal(desk.letIn(ref(2), limited, 30_000), undefined);
  assert.match(desk.letIn(ref(3), limited, 31_000)?.message ?? '', /deploy again in 30 s/);
  assert.equal(desk.letIn(ref(3), limited, 61_001), undefined, 'the first one is a minute old');
});
