/** The lease clock keeps L1-L3 (runners/lease.ts) whatever order beats and answers come in. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import {
  holdsLease,
  LEASE_MARGIN_MS,
  type Lease,
  NO_LEASE,
  observeLease,
  renewLease,
} from '../../runners/lease.ts';
import { LEASE_MS } from '../../schemas/node.ts';

const HELD_MS = LEASE_MS - LEASE_MARGIN_MS;

test('lease - none before the first answer, and none to lose', () => {
  assert.equal(holdsLease(NO_LEASE, 0), false);
  assert.equal(observeLease(NO_LEASE, 1e9).lost, false);
});

test('lease - runs from the moment the beat was sent (L1), ends before the supervisor says so (L2)', () => {
  const lease = renewLease(NO_LEASE, 1000, LEASE_MS, 1800);
  assert.equal(holdsLease(lease, 1000 + HELD_MS - 1), true);
  assert.equal(holdsLease(lease, 1000 + HELD_MS), false);
  assert.equal(observeLease(lease, 1000 + HELD_MS).lost, true);
});

test('lease - an old answer neither shortens nor revives (L3)', () => {
  const lease = renewLease(renewLease(NO_LEASE, 2000, LEASE_MS, 2100), 1000, LEASE_MS, 2200);
  assert.equal(lease.untilMs, 2000 + HELD_MS);
  const late = renewLease(lease, 5000, LEASE_MS, 2000 + HELD_MS + 1);
  assert.equal(late.lost, true);
});

test('lease - a first answer that is too old gives none', () => {
  const lease = renewLease(NO_LEASE, 0, LEASE_MS, LEASE_MS);
  assert.equal(holdsLease(lease, LEASE_MS), false);
});

test('lease - any history: never held past the last confirmed beat, lost for good once lost', () => {
  const step = fc.record({
    waitMs: fc.nat(3000),
    /** How long ago the answered beat was sent; null: only a look at the clock. */
    agoMs: fc.option(fc.nat(6000)),
    leaseMs: fc.integer({ min: 1000, max: 60_000 }),
  });
  fc.assert(
    fc.property(fc.array(step, { maxLength: 30 }), (steps) => {
      let lease: Lease = NO_LEASE;
      let now = 0;
      let confirmedUntil = Number.NEGATIVE_INFINITY;
      let wasLost = false;
      for (const { waitMs, agoMs, leaseMs } of steps) {
        now += waitMs;
        if (agoMs === null) {
          lease = observeLease(lease, now);
        } else {
          const sent = now - agoMs;
          lease = renewLease(lease, sent, leaseMs, now);
          confirmedUntil = Math.max(confirmedUntil, sent + LEASE_MS - LEASE_MARGIN_MS);
        }
        if (wasLost) assert.equal(lease.lost, true);
        wasLost = lease.lost;
        if (holdsLease(lease, now)) assert.ok(now < confirmedUntil && !lease.lost);
      }
    }),
  );
});
