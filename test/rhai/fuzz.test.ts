/**
 * Random scripts from a seeded grammar: no crash, no hang, no exception but RhaiError, the same
 * trace on replay, in slices and without the optimiser's help to hide behind. `RHAI_FUZZ_MS` sets
 * how long (default two seconds), `RHAI_FUZZ_SEED` where to begin.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Engine, RhaiError, Suspend } from '../../rhai/engine.ts';
import { debugText } from '../../rhai/text.ts';

/** A small generator with a good spread (mulberry32). */
function randomFrom(seed: number): (below: number) => number {
  let state = seed >>> 0;
  return (below) => {
    state = (state + 0x6d2b79f5) >>> 0;
    let t = state;
    t = Math.imul(t ^ (t >>> 15), t | 1);
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
    return ((t ^ (t >>> 14)) >>> 0) % below;
  };
}

const NAMES = ['a', 'b', 'c', 'x', 'y', 'f', 'g', 'm', 'constructor'];
const LITERALS = [
  '0',
  '1',
  '-1',
  '42',
  '9223372036854775807',
  '9007199254740993',
  '1.5',
  '0.1',
  '1e300',
  '"s"',
  '"é😀"',
  "'c'",
  'true',
  'false',
  '()',
  '[]',
  '[1, 2, 3]',
  '#{}',
  '#{a: 1, b: [2]}',
  '0..3',
  '1..=2',
  'blob(3, 7)',
  '`t${1}`',
  '|v| v',
  '|v, i| v + i',
  '|| this',
];
const OPERATORS = [
  '+',
  '-',
  '*',
  '/',
  '%',
  '**',
  '<<',
  '>>',
  '&',
  '|',
  '^',
  '==',
  '!=',
  '<',
  '>=',
  '&&',
  '||',
  '??',
  '..',
  'in',
];
const ASSIGN = ['=', '+=', '-=', '*=', '/=', '%=', '<<=', '|='];
const METHODS = [
  'len()',
  'push(1)',
  'pop()',
  'map(|v| v)',
  'filter(|v| v > 1)',
  'reduce(|s, v| s + v, 0)',
  'sort()',
  'sort(|p, q| q - p)',
  'to_string()',
  'type_of()',
  'keys()',
  'insert(1, 2)',
  'splice(0, 1, [5])',
  'drain(|v| v == 1)',
  'sub_string(1)',
  'split()',
  'abs()',
  'call(1)',
  'curry(2)',
  'for_each(|| this += 1)',
  'is_shared()',
  'f(1)',
  'extract(0..2)',
  'chars()',
  'reverse()',
  'clear()',
  'contains(1)',
  'index_of(2)',
  'ask()',
];

class Generator {
  private readonly random: (below: number) => number;
  private depth = 0;
  constructor(seed: number) {
    this.random = randomFrom(seed);
  }

  private pick(list: readonly string[]): string {
    return list[this.random(list.length)] as string;
  }

  script(): string {
    const parts: string[] = [];
    for (let i = this.random(3); i > 0; i--) {
      parts.push(
        `fn ${this.pick(['f', 'g'])}${this.random(2)}(${this.pick(['', 'a', 'a, b'])}) { ${this.block()} }`,
      );
    }
    for (let i = 1 + this.random(8); i > 0; i--) parts.push(this.statement());
    parts.push(this.expression());
    // Now and then something that is no script at all.
    const text = parts.join('\n');
    if (this.random(20) > 0) return text;
    const at = this.random(text.length + 1);
    return (
      text.slice(0, at) +
      this.pick(['}', '(', '"', '`', '#{', '${', '/*', '=>', '\u{1f600}']) +
      text.slice(at)
    );
  }

  private block(): string {
    const parts: string[] = [];
    for (let i = this.random(3); i >= 0; i--) parts.push(this.statement());
    return parts.join(' ');
  }

  private place(): string {
    const name = this.pick(NAMES);
    const tail = ['', '', '[0]', '[-1]', '.a', '["b"]', '[1..2]', '.a.b', '[0][1]', '?.a', '?[0]'];
    return name + this.pick(tail);
  }

  private statement(): string {
    if (this.depth > 4) return `${this.expression()};`;
    this.depth++;
    const text = this.deepStatement();
    this.depth--;
    return text;
  }

  private deepStatement(): string {
    switch (this.random(16)) {
      case 0:
      case 1:
      case 2:
        return `let ${this.pick(NAMES)} = ${this.expression()};`;
      case 3:
        return `const ${this.pick(NAMES)} = ${this.expression()};`;
      case 4:
      case 5:
      case 6:
        return `${this.place()} ${this.pick(ASSIGN)} ${this.expression()};`;
      case 7:
        return `if ${this.condition()} { ${this.block()} } else { ${this.block()} }`;
      case 8:
        return `for ${this.pick(['i', '(i, n)', 'x'])} in ${this.expression()} { ${this.block()} }`;
      case 9:
        return `while ${this.condition()} { ${this.block()} ${this.pick(['break;', 'continue;', ''])} }`;
      case 10:
        return `try { ${this.block()} } catch (e) { ${this.pick(['throw;', 'throw e;', ''])} ${this.block()} }`;
      case 11:
        return `switch ${this.expression()} { 1 => ${this.expression()}, "s" | 2 => ${this.expression()}, 0..5 if ${this.condition()} => ${this.expression()}, _ => ${this.expression()} }`;
      case 12:
        return `${this.pick(['throw', 'return'])} ${this.expression()};`;
      case 13:
        return `{ ${this.block()} }`;
      case 14:
        return `eval(${JSON.stringify(this.expression()).replaceAll('\\u', 'u')});`;
      default:
        return `${this.expression()};`;
    }
  }

  private condition(): string {
    return this.random(2) === 0
      ? this.pick(['true', 'false'])
      : `${this.expression()} ${this.pick(['==', '<', '!='])} ${this.expression()}`;
  }

  private expression(): string {
    if (this.depth > 5) return this.pick(this.random(2) === 0 ? LITERALS : NAMES);
    this.depth++;
    const text = this.deepExpression();
    this.depth--;
    return text;
  }

  private deepExpression(): string {
    switch (this.random(13)) {
      case 0:
      case 1:
        return this.pick(LITERALS);
      case 2:
      case 3:
        return this.place();
      case 4:
      case 5:
        return `(${this.expression()} ${this.pick(OPERATORS)} ${this.expression()})`;
      case 6:
      case 7:
        return `${this.place()}.${this.pick(METHODS)}`;
      case 8:
        return `${this.pick(['f0', 'f1', 'g0', 'print', 'type_of', 'push', 'ask', 'abs', 'Fn', 'call', 'max', 'range'])}(${this.expression()})`;
      case 9:
        return `[${this.expression()}, ${this.expression()}]`;
      case 10:
        return `#{a: ${this.expression()}, b: ${this.expression()}}`;
      case 11:
        return `|${this.pick(['', 'v', 'v, w'])}| { ${this.statement()} ${this.expression()} }`;
      default:
        return `if ${this.condition()} { ${this.expression()} } else { ${this.expression()} }`;
    }
  }
}

/** Everything that can be seen of a run. */
function trace(script: string, slice: number): string {
  const seen: string[] = [];
  const engine = new Engine({
    maxOperations: 20_000,
    maxArraySize: 2000,
    maxMapSize: 2000,
    maxStringSize: 20_000,
    onPrint: (text) => seen.push(text),
  });
  engine.registerFn('ask', 0, 2, (args) => new Suspend(args.length));
  try {
    const machine = engine.start(engine.compile(script));
    for (let round = 0; round < 100_000; round++) {
      const outcome = machine.run(slice);
      if (outcome.state === 'done') return JSON.stringify([seen, debugText(outcome.value)]);
      if (outcome.state === 'failed') return JSON.stringify([seen, outcome.error.message]);
      if (outcome.state === 'suspended') machine.resume(outcome.payload as number);
    }
    return 'hang';
  } catch (error) {
    if (error instanceof RhaiError) return error.message;
    throw error;
  }
}

test('fuzz - random scripts end as scripts, the same way each time', () => {
  const until = Date.now() + Number(process.env['RHAI_FUZZ_MS'] ?? 2000);
  let seed = Number(process.env['RHAI_FUZZ_SEED'] ?? 1);
  let count = 0;
  while (Date.now() < until || count < 200) {
    const script = new Generator(seed).script();
    const where = `seed ${seed}:\n${script}`;
    const first = trace(script, 0);
    assert.ok(
      !/is not a function|Cannot read|undefined|is not iterable|hang|unknown instruction/.test(
        first,
      ) || /undefined/i.test(script),
      `${where}\n${first}`,
    );
    assert.equal(trace(script, 0), first, where);
    assert.equal(trace(script, 13), first, where);
    seed++;
    count++;
  }
  assert.ok(count >= 200);
});
