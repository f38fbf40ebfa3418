/** When a claim is lost (`supervisors/liveness.ts`), and when what is known says nothing about it. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { PackState } from '../../actors/flow/fold.ts';
import type { RunnerReport } from '../../schemas/node.ts';
import { isClaimLost, LOST_AFTER_MS, type NodeView } from '../../supervisors/liveness.ts';
import { RunnerRegistry } from '../../supervisors/runner-registry.ts';

const CLAIMED_MS = 100_000;

const pack = (inc: string): PackState => ({
  pack: 'p0',
  class: 'process',
  node: 'a'.repeat(32),
  planSeq: 1,
  planInc: 'supervisor',
  jobs: [0],
  state: 'claimed',
  claim: { inc, runner: 'process-0', seq: 2, at: CLAIMED_MS },
});

const view = (incs: string[], atMs: number, more: Partial<NodeView> = {}): NodeView => ({
  liveness: 'live',
  state: 'ready',
  runners: incs.map(
    (inc): RunnerReport => ({
      runner: 'process-0',
      inc,
      class: 'process',
      slots: 1,
      busy: 1,
      contexts: [],
    }),
  ),
  atMs,
  asOfMs: atMs,
  ...more,
});

const isLost = (inc: string, node: NodeView, nowMs = CLAIMED_MS + 60_000): boolean =>
  isClaimLost(pack(inc), node, nowMs);

test('liveness - a later incarnation seen after the claim means that it is lost, at once', () => {
  assert.equal(isLost('b', view(['c'], CLAIMED_MS + 1)), true);
});

test('liveness - what was seen before the claim says nothing, however incarnations sort', () => {
  assert.equal(isLost('b', view(['c'], CLAIMED_MS - 1)), false);
});

test('liveness - the claimer that is known holds its claim', () => {
  assert.equal(isLost('b', view(['b'], CLAIMED_MS + 60_000)), false);
});

test('liveness - silence counts after a lease and a second, and only where somebody listened', () => {
  const late = CLAIMED_MS + LOST_AFTER_MS + 1;
  assert.equal(isLost('b', view([], late - 1)), false);
  assert.equal(isLost('b', view([], late)), true);
  assert.equal(isLost('b', view(['a'], late)), true, 'an earlier one is no proof of it');
  assert.equal(isLost('b', view([], late, { asOfMs: 0 })), false);
});

test('liveness - a death or a goodbye from before the claim is no word about it', () => {
  const dead = view(['b'], CLAIMED_MS - 9000, { liveness: 'dead' });
  assert.equal(isLost('b', dead, CLAIMED_MS + LOST_AFTER_MS), false, 'it claims, so it lives');
  assert.equal(isLost('b', dead, CLAIMED_MS + LOST_AFTER_MS + 1), true);
  const stopped = (atMs: number) => view(['b'], atMs, { state: 'stopped' });
  assert.equal(isLost('b', stopped(CLAIMED_MS - 1), CLAIMED_MS + 10), false);
  assert.equal(isLost('b', stopped(CLAIMED_MS + 1), CLAIMED_MS + 10), true, 'at once');
});

test('liveness - a runner that is gone does not come back by a beat that was held up', () => {
  let nowMs = 0;
  const registry = new RunnerRegistry(() => nowMs);
  const beat = (inc: string) => ({
    v: 1 as const,
    role: 'runner' as const,
    inc,
    seq: 0,
    report: view([inc], 0).runners[0] as RunnerReport,
    packs: [],
  });
  // Its clock was ahead: its incarnation sorts after its successor's.
  assert.equal(registry.take(beat('z')), true);
  nowMs = LOST_AFTER_MS + 1;
  assert.deepEqual(registry.reports(), []);
  assert.equal(registry.take(beat('a')), true);
  assert.equal(registry.take(beat('z')), false);
  assert.equal(registry.isCurrent(beat('z')), false);
  assert.equal(registry.isCurrent(beat('a')), true);
  assert.equal(registry.take(beat('b')), true);
  assert.equal(registry.take(beat('a')), false, 'replaced');
  nowMs += LOST_AFTER_MS + 1;
  assert.deepEqual(registry.reports(), []);
  assert.equal(registry.take(beat('b')), true, 'only silent: it may have had no answer so far');
});
