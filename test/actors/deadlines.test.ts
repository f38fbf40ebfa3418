/** Deadlines: each fires once, in its time and in order; what was moved or disarmed does not. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { Deadlines } from '../../actors/deadlines.ts';

test('deadlines - fired once, in the order of their moments, unless disarmed or moved', (t) => {
  t.mock.timers.enable({ apis: ['setTimeout'] });
  const step = fc.record({
    name: fc.integer({ min: 0, max: 20 }).map(String),
    what: fc.constantFrom('arm', 'arm', 'arm', 'disarm', 'pass'),
    ms: fc.integer({ min: 0, max: 3000 }),
  });
  fc.assert(
    fc.property(fc.array(step, { maxLength: 120 }), (steps) => {
      let now = 0;
      const deadlines = new Deadlines({ now: () => now });
      const wanted = new Map<string, number>();
      const fired: number[] = [];
      const pass = (ms: number): void => {
        for (let i = 0; i < ms; i += 10) {
          now += 10;
          t.mock.timers.tick(10);
        }
        for (const [name, atMs] of wanted) assert.ok(atMs >= now - 10, `${name} is late`);
      };
      for (const { name, what, ms } of steps) {
        if (what === 'disarm') {
          deadlines.disarm(name);
          wanted.delete(name);
        } else if (what === 'arm') {
          const atMs = now + ms;
          wanted.set(name, atMs);
          deadlines.arm(name, atMs, () => {
            assert.equal(wanted.get(name), atMs, 'not armed any more');
            assert.ok(now >= atMs, 'too early');
            wanted.delete(name);
            fired.push(atMs);
          });
        } else pass(ms);
      }
      pass(4000);
      assert.equal(wanted.size, 0, 'all fired');
      deadlines.stop();
    }),
  );
});

test('deadlines - arming 100,000 takes no time to speak of, and an overdue one fires at once', async () => {
  const deadlines = new Deadlines({ now: () => 1_000_000 });
  const before = performance.now();
  for (let i = 0; i < 100_000; i++)
    deadlines.arm(String(i), 2_000_000 + (i % 977), () => undefined);
  assert.ok(performance.now() - before < 5000);
  await new Promise<void>((resolve) => deadlines.arm('now', 1, resolve));
  deadlines.stop();
});
