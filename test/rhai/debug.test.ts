/** The debugger's seam: stops, frames, variables, evaluation; and nothing when it is not used. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { FnProto } from '../../rhai/bytecode.ts';
import { Debugger } from '../../rhai/debug.ts';
import { Engine, Suspend } from '../../rhai/engine.ts';
import { debugText } from '../../rhai/text.ts';

const SOURCE = `fn add(a, b) {
  let c = a + b;
  c
}
let x = 1;
let y = add(x, 2);
for i in 0..2 {
  y += i;
}
let f = |v| v + x;
y = f.call(y);
y`;

function open(source = SOURCE): Debugger {
  const engine = new Engine();
  return new Debugger(engine, engine.start(engine.compile(source, { debug: true })));
}

function names(debug: Debugger, frame = 0): string {
  return debug
    .variables(frame)
    .map((v) => `${v.name}=${debugText(v.value)}`)
    .join(' ');
}

test('debug - lines where a breakpoint can hit', () => {
  assert.deepEqual(open().possibleLines(), [2, 3, 5, 6, 7, 8, 10, 11, 12]);
});

test('debug - a breakpoint stops with frames and variables', () => {
  const debug = open();
  debug.setBreakpoints([3]);
  const stop = debug.continue();
  assert.equal(stop.state, 'paused');
  assert.deepEqual(
    debug.frames().map((f) => `${f.fn}:${f.position.line}`),
    ['add:3', ':6'],
  );
  assert.equal(names(debug), 'a=1 b=2 c=3');
  assert.equal(names(debug, 1), 'x=1');
  assert.deepEqual(debug.continue(), { state: 'done', value: 5 });
});

test('debug - step, next, out', () => {
  const debug = open();
  const lines: string[] = [];
  const note = (state: string): void => {
    if (state === 'paused')
      lines.push(`${debug.frames()[0]?.fn}:${debug.frames()[0]?.position.line}`);
  };
  note(debug.step().state);
  note(debug.step().state);
  note(debug.step().state);
  note(debug.out().state);
  note(debug.next().state);
  note(debug.next().state);
  note(debug.next().state);
  note(debug.next().state);
  note(debug.next().state);
  assert.deepEqual(lines, [':5', ':6', 'add:2', ':7', ':8', ':8', ':10', ':11', ':12']);
  assert.deepEqual(debug.continue(), { state: 'done', value: 5 });
});

test('debug - steps go into closures', () => {
  const debug = open();
  debug.setBreakpoints([11]);
  debug.continue();
  debug.step();
  assert.match(debug.frames()[0]?.fn ?? '', /^anon\$/);
  assert.equal(names(debug), 'x=1 v=4');
});

test('debug - evaluation sees and changes the frame', () => {
  const debug = open();
  debug.setBreakpoints([3]);
  debug.continue();
  assert.deepEqual(debug.evaluate('a * 100 + b'), { state: 'done', value: 102 });
  assert.deepEqual(debug.evaluate('x', 1), { state: 'done', value: 1 });
  assert.equal(debug.evaluate('nope').state, 'failed');
  assert.equal(debug.evaluate('loop {}').state, 'sliced');
  debug.evaluate('c = 40');
  assert.deepEqual(debug.continue(), { state: 'done', value: 42 });
});

test('debug - pause stops at the next statement', () => {
  const debug = open('let i = 0;\nloop {\n  i += 1;\n}');
  assert.equal(debug.continue(1000).state, 'sliced');
  debug.pause();
  assert.equal(debug.continue().state, 'paused');
  assert.equal(debug.frames()[0]?.position.line, 3);
});

test('debug - a script compiled for debugging gives the same result', () => {
  const engine = new Engine();
  const plain = engine.start(engine.compile(SOURCE)).run();
  const debug = engine.start(engine.compile(SOURCE, { debug: true })).run();
  assert.deepEqual(plain, debug);
});

/** Where a stop is: the innermost function and its line; the state when it is no pause. */
function where(debug: Debugger, stop: { readonly state: string }): string {
  const top = debug.frames()[0];
  return stop.state === 'paused'
    ? `${top?.fn.replace(/\$.*/, '')}:${top?.position.line}`
    : stop.state;
}

test('debug - a breakpoint in a callback of a library function stops for each element', () => {
  const debug = open(
    'let list = [3, 1, 2];\nlist.map(|v| {\n  v * 2\n});\nlist.sort(|a, b| {\n  a - b\n});\nlist',
  );
  debug.setBreakpoints([3]);
  const seen: string[] = [];
  for (let stop = debug.continue(); stop.state === 'paused'; stop = debug.continue()) {
    seen.push(`${where(debug, stop)} ${names(debug)}`);
  }
  assert.deepEqual(seen, ['anon:3 v=3', 'anon:3 v=1', 'anon:3 v=2']);
});

test('debug - next goes over a library function with its callbacks, out leaves a callback', () => {
  const debug = open('let n = 0;\n[1, 2].for_each(|v| {\n  n += v;\n});\nn');
  debug.setBreakpoints([2]);
  debug.continue();
  assert.equal(where(debug, debug.next()), ':5');
  const again = open('let n = 0;\n[1, 2].for_each(|v| {\n  n += v;\n});\nn');
  again.setBreakpoints([3]);
  again.continue();
  again.setBreakpoints([]);
  assert.equal(where(again, again.out()), ':5');
});

test('debug - a breakpoint in a loop stops in every round, with that round in sight', () => {
  const debug = open('let sum = 0;\nfor i in 0..3 {\n  let sq = i * i;\n  sum += sq;\n}\nsum');
  debug.setBreakpoints([4]);
  const seen: string[] = [];
  for (let stop = debug.continue(); stop.state === 'paused'; stop = debug.continue()) {
    seen.push(names(debug));
  }
  assert.deepEqual(seen, ['sum=0 i=0 sq=0', 'sum=0 i=1 sq=1', 'sum=1 i=2 sq=4']);
});

test('debug - of variables that shadow each other, all are told and the last one counts', () => {
  const debug = open('let x = 1;\n{\n  let x = "inner";\n  print(x);\n}\nx');
  debug.setBreakpoints([4]);
  debug.continue();
  assert.equal(names(debug), 'x=1 x="inner"');
  assert.deepEqual(debug.evaluate('x'), { state: 'done', value: 'inner' });
  debug.evaluate('x = "changed"');
  assert.equal(names(debug), 'x=1 x="changed"');
  assert.deepEqual(debug.continue(), { state: 'done', value: 1 });
});

test('debug - next goes over a throw that is caught, into its handler', () => {
  const source =
    'fn bad() {\n  throw "no";\n}\nlet r = 0;\ntry {\n  bad();\n} catch (e) {\n  r = e;\n}\nr';
  const debug = open(source);
  debug.setBreakpoints([6]);
  debug.continue();
  assert.equal(where(debug, debug.next()), ':8');
  assert.equal(names(debug), 'r=0 e="no"');
  assert.deepEqual(debug.continue(), { state: 'done', value: 'no' });
});

test('debug - an evaluation that fails leaves the script where it was', () => {
  const debug = open();
  debug.setBreakpoints([3]);
  debug.continue();
  assert.equal(debug.evaluate('throw 1').state, 'failed');
  assert.equal(debug.evaluate('let c = 9; c', 0).state, 'done');
  assert.equal(names(debug), 'a=1 b=2 c=3');
  debug.evaluate('x = 50', 1);
  assert.equal(names(debug, 1), 'x=50');
  assert.equal(debug.continue().state, 'done');
});

test('debug - next goes over a host call that suspends', () => {
  const engine = new Engine();
  engine.registerFn('ask', 0, 0, () => new Suspend('question'));
  const program = engine.compile('let a = 1;\nlet b = ask();\na + b', { debug: true });
  const machine = engine.start(program);
  const debug = new Debugger(engine, machine);
  debug.setBreakpoints([2]);
  debug.continue();
  assert.equal(debug.next().state, 'suspended');
  machine.resume(41);
  assert.equal(where(debug, debug.next()), ':3');
  assert.equal(names(debug), 'a=1 b=41');
  assert.deepEqual(debug.continue(), { state: 'done', value: 42 });
});

test('debug - steps go into the functions of a module that was compiled for debugging', () => {
  const engine = new Engine({ resolveModule: () => 'fn twice(n) {\n  n * 2\n}' });
  const program = engine.compile('import "m" as m;\nlet r = m::twice(4);\nr', { debug: true });
  const debug = new Debugger(engine, engine.start(program));
  debug.setBreakpoints([2]);
  debug.continue();
  debug.step();
  assert.equal(debug.frames()[0]?.fn, 'twice');
  assert.deepEqual(debug.continue(), { state: 'done', value: 8 });
});

test('debug - code that is not compiled for debugging carries nothing of it', () => {
  const engine = new Engine();
  const plain = engine.compile(SOURCE).main;
  const debug = engine.compile(SOURCE, { debug: true }).main;
  const count = (proto: FnProto): number => {
    const all = [proto, ...proto.library.functions.values()];
    return all.reduce((sum, { statements }) => sum + statements.length, 0);
  };
  assert.equal(count(plain), 0);
  assert.ok(count(debug) > 0);
  assert.ok(plain.code.length < debug.code.length);
});
