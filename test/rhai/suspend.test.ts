/** Suspension and slicing: a machine stops anywhere and goes on as if it had not. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import {
  Engine,
  type HostObject,
  HostObject as Host,
  RhaiError,
  Suspend,
} from '../../rhai/engine.ts';
import { runtimeError } from '../../rhai/engine.ts';
import { debugText } from '../../rhai/text.ts';
import { RMap, type Value } from '../../rhai/values.ts';

function suspendingEngine(): Engine {
  const engine = new Engine();
  engine.registerFn('ask', 1, 2, (args) => new Suspend(args[0]));
  engine.registerType({
    name: 'handle',
    get: (self: HostObject, property: string) =>
      property === 'value' ? new Suspend(self.data) : property === 'id' ? 'h1' : undefined,
  });
  engine.registerFn('launch', 1, 1, ([value]) => new Host('handle', value));
  return engine;
}

/** Runs to the end; each question is answered by `answer`. */
function drive(script: string, answer: (payload: unknown) => Value, slice = 0): string {
  const engine = suspendingEngine();
  const machine = engine.start(engine.compile(script));
  for (let i = 0; i < 100_000; i++) {
    const outcome = machine.run(slice);
    if (outcome.state === 'done') return debugText(outcome.value);
    if (outcome.state === 'failed') return outcome.error.message;
    if (outcome.state === 'suspended') machine.resume(answer(outcome.payload));
  }
  return 'did not end';
}

/** Twice what was asked for: texts and numbers; maps are given as new ones. */
const double = (payload: unknown): Value =>
  payload instanceof RMap
    ? new RMap(new Map(payload.items))
    : typeof payload === 'string'
      ? payload + payload
      : (payload as number) * 2;

const SCRIPTS: readonly (readonly [string, string])[] = [
  ['ask(21)', '42'],
  ['ask(1) + ask(2) * ask(3)', '26'],
  ['let x = ask(5); x += ask(1); x', '12'],
  ['fn f(x) { ask(x) + 1 } f(1) + f(2)', '8'],
  ['[1, 2, 3].map(|x| ask(x))', '[2, 4, 6]'],
  ['[1, 2, 3].map(|x| [x].map(|y| ask(y)))', '[[2], [4], [6]]'],
  ['fn f(a) { a.map(|x| { let y = ask(x); y + 1 }) } f([1, 2])', '[3, 5]'],
  ['[3, 1, 2].filter(|x| ask(x) > 3)', '[3, 2]'],
  ['[1, 2, 3].reduce(|s, x| s + ask(x), 0)', '12'],
  ['let a = [3, 1, 2]; a.sort(|x, y| ask(x) - ask(y)); a', '[1, 2, 3]'],
  ['let a = [1, 2]; a.for_each(|| this = ask(this)); a', '[2, 4]'],
  ['#{a: 1, b: 2}.map(|k, v| ask(v))', '#{"a": 2, "b": 4}'],
  ['let s = 0; for i in 0..5 { s += ask(i) } s', '20'],
  ['`${ask(1)} and ${ask(2)}`', '"2 and 4"'],
  ['switch ask(1) { 2 => ask(5), _ => 0 }', '10'],
  ['try { ask(1); throw 7 } catch (e) { 0 } ask(4)', '8'],
  ['let h = launch(4); h.value + 1', '9'],
  ['let h = launch(4); [h.id, h.value]', '["h1", 8]'],
  // A property that cannot be set is read all the same where a method may change what it gives.
  ['let h = launch("a-b"); h.value.to_upper()', '"A-BA-B"'],
  ['let h = launch("a-b"); h.value.split("-")', '["a", "ba", "b"]'],
  ['let h = launch("a"); h.value.append("b"); h.value', '"aa"'],
  ['let h = launch(#{n: 1}); h.value.n = 5; h.value.n', '1'],
  [
    'let h = launch(1); h.value = 2',
    "No writable property 'value' - a setter is not registered for type 'handle' to handle 'i64' (line 1, position 22)",
  ],
  ['[launch(1), launch(2)].map(|h| h.value)', '[2, 4]'],
  ['let f = Fn("ask"); f.call(3)', '6'],
  ['[1, 2].map(Fn("ask"))', '[2, 4]'],
  ['5.ask()', '10'],
  ['eval("ask(2) + 1")', '5'],
  ['let n = 1; let f = || n += ask(n); f.call(); n', '3'],
  ['fn r(n) { if n == 0 { 0 } else { ask(n) + r(n - 1) } } r(5)', '30'],
  ['let m = #{f: |x| ask(x) + this.k, k: 1}; m.f(2)', '5'],
];

test('suspend - the answer takes the place of the call', () => {
  for (const [script, expected] of SCRIPTS) assert.equal(drive(script, double), expected, script);
});

test('suspend - slices change nothing', () => {
  for (const slice of [1, 2, 3, 7, 50]) {
    for (const [script, expected] of SCRIPTS) {
      assert.equal(drive(script, double, slice), expected, `${slice}: ${script}`);
    }
  }
});

test('suspend - a rejected call throws where it stands', () => {
  const engine = suspendingEngine();
  const cases = [
    ['try { ask(1) } catch (e) { return e } 0', 'no'],
    ['let r = 0; try { [1].map(|x| ask(x)) } catch (e) { r = e } r', 'no'],
  ];
  for (const [script = '', expected] of cases) {
    const machine = engine.start(engine.compile(script));
    assert.equal(machine.run().state, 'suspended');
    machine.reject(runtimeError('no'));
    assert.deepEqual(machine.run(), { state: 'done', value: expected });
  }
  const machine = engine.start(engine.compile('fn f() { ask(1) } f()'));
  machine.run();
  machine.reject(runtimeError('no'));
  const outcome = machine.run();
  assert.equal(outcome.state, 'failed');
  if (outcome.state !== 'failed') return;
  assert.equal(
    outcome.error.message,
    "Runtime error: no (line 1, position 10)\nin call to function 'f' (line 1, position 19)",
  );
});

test('suspend - run without an answer says again what it waits for', () => {
  const engine = suspendingEngine();
  const machine = engine.start(engine.compile('\n  ask("q")'));
  const first = machine.run();
  assert.deepEqual(first, { state: 'suspended', payload: 'q', position: { line: 2, column: 3 } });
  assert.deepEqual(machine.run(), first);
  machine.resume('a');
  assert.deepEqual(machine.run(), { state: 'done', value: 'a' });
  assert.deepEqual(machine.run(), { state: 'done', value: 'a' });
});

test('suspend - the same answers give the same trace', () => {
  const trace = (): string => {
    const asked: unknown[] = [];
    const result = drive(
      'let t = []; for i in 0..20 { t.push([i, i * i].map(|x| ask(x + t.len))) } t',
      (payload) => {
        asked.push(payload);
        return ((payload as number) * 7919) % 101;
      },
    );
    return JSON.stringify([asked, result]);
  };
  assert.equal(trace(), trace());
});

test('slices - an endless loop comes back', () => {
  const engine = new Engine();
  const machine = engine.start(engine.compile('loop { }'));
  for (let i = 0; i < 5; i++) assert.equal(machine.run(1000).state, 'sliced');
});

test('host functions - errors, arities, values of any type', () => {
  const engine = new Engine();
  engine.registerFn('fail', 0, 0, () => {
    throw runtimeError('host');
  });
  engine.registerFn('count', 0, 3, (args) => args.length);
  const run = (script: string): string => {
    const outcome = engine.start(engine.compile(script)).run();
    return outcome.state === 'done'
      ? debugText(outcome.value)
      : outcome.state === 'failed'
        ? outcome.error.kind
        : outcome.state;
  };
  assert.equal(run('try { fail() } catch (e) { return e }'), '"host"');
  assert.equal(run('[count(), count(1), count(1, 2), count(1, 2, 3)]'), '[0, 1, 2, 3]');
  assert.equal(run('count(1, 2, 3, 4)'), 'ErrorFunctionNotFound');
  assert.equal(run('1.count(2)'), '2');
  engine.registerFn('crash', 0, 0, () => {
    throw new TypeError('a bug of the host');
  });
  assert.equal(run('crash()'), 'ErrorSystem');
  assert.ok(RhaiError.prototype instanceof Error);
});

test('slices - callbacks of library functions are sliced too', () => {
  const engine = new Engine();
  const script = 'let a = []; a.pad(1000, 1); a.map(|x| x + 1).filter(|x| x == 2).len()';
  const machine = engine.start(engine.compile(script));
  let slices = 0;
  for (;;) {
    const outcome = machine.run(50);
    if (outcome.state !== 'sliced') {
      assert.deepEqual(outcome, { state: 'done', value: 1000 });
      break;
    }
    slices++;
  }
  assert.ok(slices > 50, `${slices} slices`);
});
