/**
 * Typed JSON: how values leave and enter a script as text.
 *
 * Integers are i64 and exact, numbers written with `.` or `e` are f64 (`2.0` stays `2.0`), null is unit. A
 * char leaves as a string, a blob as an array of integers. What has no JSON form, a key that stands twice
 * and an integer beyond i64 are errors that name the place. No Unicode normalisation.
 */
import { mismatch, RhaiError } from './errors.ts';
import { floatText, sortedKeys } from './text.ts';
import {
  Char,
  Float,
  INT_MAX,
  INT_MIN,
  makeInt,
  RArray,
  RBlob,
  RMap,
  typeName,
  type Value,
} from './values.ts';

/** Deeper values neither leave nor enter: reading them back would need as deep a stack. */
export const JSON_DEPTH_MAX = 128;

export function toJson(value: Value): string {
  return write(value, '', 0);
}

function write(value: Value, path: string, depth: number): string {
  if (depth > JSON_DEPTH_MAX) throw unfit(path, `a value nested deeper than ${JSON_DEPTH_MAX}`);
  if (value === null) return 'null';
  switch (typeof value) {
    case 'boolean':
    case 'number':
    case 'bigint':
      return String(value);
    case 'string':
      return JSON.stringify(value);
    default:
  }
  if (value instanceof Float) {
    if (!Number.isFinite(value.value)) throw unfit(path, floatText(value.value));
    const text = Object.is(value.value, -0) ? '-0.0' : floatText(value.value);
    return text;
  }
  if (value instanceof Char) return JSON.stringify(value.text);
  if (value instanceof RBlob) return `[${value.bytes.join(',')}]`;
  if (value instanceof RArray) {
    return `[${value.items.map((item, i) => write(item, `${path}[${i}]`, depth + 1)).join(',')}]`;
  }
  if (value instanceof RMap) {
    const entries = sortedKeys(value.items.keys()).map((key) => {
      const item = value.items.get(key) as Value;
      return `${JSON.stringify(key)}:${write(item, path === '' ? key : `${path}.${key}`, depth + 1)}`;
    });
    return `{${entries.join(',')}}`;
  }
  throw unfit(path, `a value of type ${typeName(value)}`);
}

const unfit = (path: string, what: string): RhaiError =>
  mismatch('a value with a JSON form', `${what}${path === '' ? '' : ` at ${path}`}`);

export function fromJson(text: string): Value {
  const reader = new Reader(text);
  const value = reader.value(0);
  reader.end();
  return value;
}

const NUMBER = /-?(?:0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?/y;
const BLANK = /[ \t\n\r]*/y;
const STRING = /"(?:[^"\\\u0000-\u001f]|\\.)*"/y;

class Reader {
  private readonly text: string;
  private at = 0;
  private readonly path: string[] = [];

  constructor(text: string) {
    this.text = text;
  }

  value(depth: number): Value {
    if (depth > JSON_DEPTH_MAX) throw this.fail(`nested deeper than ${JSON_DEPTH_MAX}`);
    this.blank();
    switch (this.text[this.at]) {
      case '{':
        return this.map(depth);
      case '[':
        return this.array(depth);
      case '"':
        return this.string();
      case 't':
        return this.word('true', true);
      case 'f':
        return this.word('false', false);
      case 'n':
        return this.word('null', null);
      default:
        return this.number();
    }
  }

  end(): void {
    this.blank();
    if (this.at !== this.text.length) throw this.fail('text after the value');
  }

  private map(depth: number): RMap {
    const entries = new Map<string, Value>();
    this.at++;
    if (this.skip('}')) return new RMap(entries);
    do {
      this.blank();
      if (this.text[this.at] !== '"') throw this.fail('a key without quotes');
      const key = this.string();
      this.path.push(key);
      if (entries.has(key)) throw this.fail('the key stands twice');
      if (!this.skip(':')) throw this.fail('no : after a key');
      entries.set(key, this.value(depth + 1));
      this.path.pop();
    } while (this.skip(','));
    if (!this.skip('}')) throw this.fail('neither , nor } after an entry');
    return new RMap(entries);
  }

  private array(depth: number): RArray {
    const items: Value[] = [];
    this.at++;
    if (this.skip(']')) return new RArray(items);
    do {
      items.push(this.value(depth + 1));
    } while (this.skip(','));
    if (!this.skip(']')) throw this.fail('neither , nor ] after an item');
    return new RArray(items);
  }

  private string(): string {
    const match = this.match(STRING);
    if (match === undefined) throw this.fail('a string that does not end');
    try {
      return JSON.parse(match[0]) as string;
    } catch {
      throw this.fail('a string with a wrong escape');
    }
  }

  private number(): Value {
    const match = this.match(NUMBER);
    if (match === undefined) throw this.fail('no value');
    const [digits, fraction, exponent] = match;
    if (fraction !== undefined || exponent !== undefined) {
      const float = Number(digits);
      if (!Number.isFinite(float)) throw this.fail('a number beyond f64');
      return new Float(float);
    }
    const int = Number(digits);
    if (Number.isSafeInteger(int)) return int === 0 ? 0 : int;
    const big = BigInt(digits);
    if (big < INT_MIN || big > INT_MAX) throw this.fail('an integer beyond i64');
    return makeInt(big);
  }

  private word<T extends Value>(word: string, value: T): T {
    if (!this.text.startsWith(word, this.at)) throw this.fail('no value');
    this.at += word.length;
    return value;
  }

  private match(pattern: RegExp): RegExpExecArray | undefined {
    pattern.lastIndex = this.at;
    const match = pattern.exec(this.text);
    if (match === null) return undefined;
    this.at = pattern.lastIndex;
    return match;
  }

  private blank(): void {
    this.match(BLANK);
  }

  private skip(token: string): boolean {
    this.blank();
    if (this.text[this.at] !== token) return false;
    this.at++;
    return true;
  }

  private fail(what: string): RhaiError {
    const where = this.path.length === 0 ? `character ${this.at + 1}` : this.path.join('.');
    return new RhaiError('ErrorRuntime', { value: `not readable as JSON: ${what} (${where})` });
  }
}
