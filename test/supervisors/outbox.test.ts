/** What waits to be sent: few packs of a flow in each queue, more where runners wait for them. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { Outbox, WINDOW_FIRST, WINDOW_MAX, WINDOW_MIN } from '../../supervisors/outbox.ts';
import { JobBudget, OPEN_JOBS_MAX, OPEN_JOBS_MIN } from '../../supervisors/job-budget.ts';

const pack = (n: number, node = 'a') => ({ pack: `p${n}`, class: 'process', node });

/** Packs claimed `tookMs` after they were sent, until all are. Returns the most that were out at a time. */
function drain(outbox: Outbox, clock: { ms: number }, tookMs: number, limit = 1000): number {
  let most = 0;
  const out: string[] = [];
  for (let rounds = 0; rounds < limit; rounds++) {
    for (const ready of outbox.ready()) {
      outbox.sent(ready);
      out.push(ready);
    }
    most = Math.max(most, out.length);
    clock.ms += tookMs;
    const claimed = out.shift();
    if (claimed === undefined) return most;
    outbox.gone(claimed, 'claimed');
  }
  return most;
}

test('outbox - a queue nobody takes from holds a window of packs, each once', () => {
  const outbox = new Outbox(() => 0);
  for (let n = 0; n < 1000; n++) outbox.add(pack(n));
  const first = outbox.ready();
  assert.equal(first.length, WINDOW_FIRST);
  for (const each of first) outbox.sent(each);
  assert.deepEqual(outbox.ready(), []);
  outbox.gone('p0', 'void');
  assert.deepEqual(outbox.ready(), [`p${WINDOW_FIRST}`], 'the next one, when one is gone');
});

test('outbox - another node has a window of its own', () => {
  const outbox = new Outbox(() => 0);
  for (let n = 0; n < 100; n++) outbox.add(pack(n));
  for (const each of outbox.ready()) outbox.sent(each);
  outbox.add(pack(100, 'b'));
  assert.deepEqual(outbox.ready(), ['p100']);
});

test('outbox - prompt claims make the window wider, slow ones narrower', () => {
  const clock = { ms: 0 };
  const outbox = new Outbox(() => clock.ms);
  for (let n = 0; n < 2000; n++) outbox.add(pack(n));
  assert.ok(drain(outbox, clock, 0, 1500) > WINDOW_FIRST * 4);
  const slow = new Outbox(() => clock.ms);
  for (let n = 0; n < 200; n++) slow.add(pack(n));
  drain(slow, clock, 5000, 100);
  const out = slow.ready().length;
  assert.ok(out <= WINDOW_MIN, `${out} more were to be sent`);
});

test('outbox - whatever happens, every pack is sent, and none is while it is out', () => {
  const step = fc.constantFrom('send', 'claim', 'void', 'again', 'wait');
  fc.assert(
    fc.property(
      fc.integer({ min: 1, max: 400 }),
      fc.array(step, { maxLength: 300 }),
      (count, steps) => {
        const clock = { ms: 0 };
        const outbox = new Outbox(() => clock.ms);
        const left = new Set<string>();
        const out = new Set<string>();
        for (let n = 0; n < count; n++) {
          outbox.add(pack(n, String(n % 3)));
          left.add(`p${n}`);
        }
        const act = (what: string): void => {
          clock.ms += what === 'wait' ? 3000 : 1;
          if (what === 'send')
            for (const each of outbox.ready()) {
              assert.ok(!out.has(each), 'twice');
              outbox.sent(each);
              out.add(each);
            }
          const [oldest] = out;
          if (oldest !== undefined && (what === 'claim' || what === 'void')) {
            out.delete(oldest);
            left.delete(oldest);
            outbox.gone(oldest, what === 'claim' ? 'claimed' : 'void');
          }
          if (what === 'again') {
            outbox.again();
            out.clear();
          }
          assert.ok(out.size <= 3 * WINDOW_MAX);
        };
        steps.forEach(act);
        for (let i = 0; i < 2 * count; i++) act(i % 2 === 0 ? 'send' : 'claim');
        assert.equal(left.size, 0);
      },
    ),
  );
});

test('job budget - one script may have many, many scripts have fewer each, none has none', () => {
  const budget = new JobBudget();
  assert.equal(budget.allowance(), OPEN_JOBS_MAX);
  let open = 0;
  for (let scripts = 0; scripts < 50; scripts++) {
    const more = budget.allowance();
    budget.changed('acme', more);
    open += more;
  }
  assert.ok(open < 150_000, String(open));
  budget.changed('acme', 10_000_000);
  assert.equal(budget.allowance(), OPEN_JOBS_MIN);
});

test('job budget - the quota of a context counts its own jobs only', () => {
  const budget = new JobBudget();
  budget.changed('acme', 30);
  budget.changed('other', 500);
  assert.equal(budget.roomOf('acme', 50), 20);
  assert.ok(budget.roomOf('acme', null) > 1e9);
  budget.changed('acme', -30);
  assert.equal(budget.roomOf('acme', 50), 50);
});
