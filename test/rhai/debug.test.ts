/** The debugger's seam: stops, frames, variables, evaluation; and nothing when it is not used. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Debugger } from '../../rhai/debug.ts';
import { Engine } from '../../rhai/engine.ts';
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
