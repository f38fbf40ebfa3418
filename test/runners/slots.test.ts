/** Slots keep S1-S3 (runners/slots.ts) whatever packs and newcomers do. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { type Eater, Slots } from '../../runners/slots.ts';

const never = new AbortController().signal;

/** A pack with jobs left, that takes what it is given. */
class Pack implements Eater {
  left: number;
  given = 0;

  constructor(left: number) {
    this.left = left;
  }

  wants(): number {
    return this.left;
  }

  give(count: number): void {
    this.left -= count;
    this.given += count;
  }
}

const feed = (slots: Slots, pack: Pack): (() => void) =>
  slots.feed({ wants: () => pack.wants(), give: (count) => pack.give(count) });

test('slots - the first pack eats first, then the next, then who waits at the door (S2)', async () => {
  const slots = new Slots(4);
  assert.equal(slots.takeMore(10), 4);
  const first = new Pack(2);
  const second = new Pack(1);
  feed(slots, first);
  feed(slots, second);
  let entered = false;
  const door = slots.acquire(never).then(() => {
    entered = true;
  });
  slots.release(2);
  assert.deepEqual([first.given, second.given, entered], [2, 0, false]);
  slots.release(2);
  await door;
  assert.deepEqual([second.given, slots.free], [1, 0]);
});

test('slots - a pack is fed at once with what is free, and not after its end', () => {
  const slots = new Slots(3);
  const pack = new Pack(5);
  const stop = feed(slots, pack);
  assert.deepEqual([pack.given, slots.free], [3, 0]);
  stop();
  slots.release(3);
  assert.deepEqual([pack.given, slots.free], [3, 3]);
});

test('slots - who gave up waiting gets none', async () => {
  const slots = new Slots(1);
  slots.takeMore(1);
  const controller = new AbortController();
  const gone = slots.acquire(controller.signal);
  const next = slots.acquire(never);
  controller.abort(new Error('enough'));
  await assert.rejects(gone, /enough/);
  slots.release();
  await next;
  assert.equal(slots.free, 0);
  assert.throws(() => slots.acquire(controller.signal), /enough/);
});

test('slots - never more than there are, none free while a pack could use one (S1, S3)', () => {
  const act = fc.oneof(
    fc.record({ kind: fc.constant('feed' as const), jobs: fc.nat(6) }),
    fc.record({ kind: fc.constant('release' as const), jobs: fc.nat(3) }),
    fc.record({ kind: fc.constant('take' as const), jobs: fc.nat(3) }),
  );
  fc.assert(
    fc.property(fc.integer({ min: 1, max: 8 }), fc.array(act, { maxLength: 40 }), (size, acts) => {
      const slots = new Slots(size);
      const packs: Pack[] = [];
      let taken = 0;
      for (const { kind, jobs } of acts) {
        const out = packs.reduce((sum, { given }) => sum + given, taken);
        if (kind === 'feed') {
          const pack = new Pack(jobs);
          packs.push(pack);
          feed(slots, pack);
        } else if (kind === 'take') {
          taken += slots.takeMore(jobs);
        } else {
          const count = Math.min(jobs, out);
          taken -= count;
          slots.release(count);
        }
        const now = packs.reduce((sum, { given }) => sum + given, taken);
        assert.equal(now + slots.free, size);
        assert.equal(slots.busy, now);
        if (packs.some(({ left }) => left > 0)) assert.equal(slots.free, 0);
      }
    }),
  );
});
