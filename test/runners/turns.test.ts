/** Contexts take turns by the jobs they got; who was away has saved nothing up, and lost nothing either. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { Turns } from '../../runners/turns.ts';

test('turns - one pack of a context waits for no more than one of each other context', () => {
  const turns = new Turns<string>();
  for (let n = 0; n < 100; n++) turns.wait('acme', 4, `a${n}`);
  assert.deepEqual([turns.next(), turns.next()], ['a0', 'a1']);
  turns.wait('beta', 1, 'b0');
  const then = [turns.next(), turns.next()];
  assert.ok(then.includes('b0'), then.join());
});

test('turns - by jobs, not by packs; what was left out is not claimed afterwards', () => {
  const turns = new Turns<string>();
  for (let n = 0; n < 40; n++) turns.wait('wide', 10, 'wide');
  for (let n = 0; n < 400; n++) turns.wait('thin', 1, 'thin');
  const first = Array.from({ length: 110 }, () => turns.next());
  const wide = first.filter((each) => each === 'wide').length;
  assert.ok(wide >= 9 && wide <= 11, `${wide} of 110 packs were wide ones`);
  for (let n = 0; n < 40; n++) turns.wait('late', 10, 'late');
  const then = Array.from({ length: 24 }, () => turns.next());
  const late = then.filter((each) => each === 'late').length;
  assert.ok(late >= 1 && late <= 4, `${late} of 24 packs were of who came late`);
});

test('turns - every item comes once, those of a context in their order', () => {
  const wait = fc.record({
    context: fc.constantFrom('a', 'b', 'c'),
    jobs: fc.integer({ min: 1, max: 9 }),
  });
  fc.assert(
    fc.property(fc.array(fc.oneof(wait, fc.constant(null)), { maxLength: 200 }), (steps) => {
      const turns = new Turns<{ context: string; n: number }>();
      const got: { context: string; n: number }[] = [];
      let asked = 0;
      const take = (): void => {
        const item = turns.next();
        if (item !== undefined) got.push(item);
      };
      for (const step of steps) {
        if (step === null) take();
        else turns.wait(step.context, step.jobs, { context: step.context, n: asked++ });
      }
      while (!turns.isEmpty) take();
      assert.equal(got.length, asked);
      for (const context of ['a', 'b', 'c']) {
        const own = got.filter((each) => each.context === context).map(({ n }) => n);
        assert.deepEqual(
          own,
          own.toSorted((a, b) => a - b),
        );
      }
    }),
  );
});
