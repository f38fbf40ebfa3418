/**
 * JSON. `toJson` and `fromJson` are the project's typed JSON: integers stay i64, exact to 2^63 - 1;
 * numbers written with a point or an exponent are f64, and 2.0 prints as `2.0`; null is unit. What
 * has no JSON form is an error that names the path. `mapToJson` is what scripts see as `to_json`.
 *
 * J1  no number passes through a JavaScript double on its way between text and i64.
 * J2  keys are data: `__proto__` is a key like any other.
 */
import { RhaiError } from './errors.ts';
import {
  debugText,
  floatText,
  nestedText,
  type Opened,
  openedMap,
  quoted,
  sortedKeys,
  type TextStyle,
} from './text.ts';
import {
  Cell,
  Char,
  Float,
  FnPtr,
  INT_MAX,
  INT_MIN,
  isInt,
  makeInt,
  RArray,
  RBlob,
  RMap,
  typeName,
  type Value,
} from './values.ts';

const DEPTH_MAX = 200;

function fail(path: string, what: string): RhaiError {
  return new RhaiError('ErrorRuntime', { value: `${path}: ${what}` });
}

/** A JSON string; what JSON must escape is escaped, all else stays as it is. */
function jsonText(text: string): string {
  return JSON.stringify(text);
}

function write(value: Value, path: string, depth: number): string {
  if (depth > DEPTH_MAX) throw fail(path, `nested deeper than ${DEPTH_MAX}`);
  if (value === null) return 'null';
  if (typeof value === 'boolean' || isInt(value)) return String(value);
  if (typeof value === 'string') return jsonText(value);
  if (value instanceof Char) return jsonText(value.text);
  if (value instanceof Float) {
    if (!Number.isFinite(value.value))
      throw fail(path, `${floatText(value.value)} has no JSON form`);
    if (Object.is(value.value, -0)) return '-0.0';
    return floatText(value.value);
  }
  if (value instanceof RArray) {
    return `[${value.items.map((item, i) => write(item, `${path}[${i}]`, depth + 1)).join(',')}]`;
  }
  if (value instanceof RBlob) return `[${value.bytes.join(',')}]`;
  if (value instanceof RMap) {
    const { items } = value;
    const body = sortedKeys(items.keys()).map(
      (key) => `${jsonText(key)}:${write(items.get(key) as Value, `${path}.${key}`, depth + 1)}`,
    );
    return `{${body.join(',')}}`;
  }
  throw fail(path, `a value of type ${typeName(value)} has no JSON form`);
}

/** The typed JSON text of a value. Throws RhaiError naming the path of what has none. */
export function toJson(value: Value): string {
  return write(value, '$', 0);
}

class Reader {
  private readonly text: string;
  private at = 0;

  constructor(text: string) {
    this.text = text;
  }

  whole(): Value {
    const value = this.value('$', 0);
    this.blanks();
    if (this.at < this.text.length) throw this.error('$', 'text after the value');
    return value;
  }

  private error(path: string, what: string): RhaiError {
    return fail(path, `${what} at offset ${this.at}`);
  }

  private blanks(): void {
    while (/[ \t\r\n]/.test(this.text.charAt(this.at))) this.at++;
  }

  private take(token: string): boolean {
    if (!this.text.startsWith(token, this.at)) return false;
    this.at += token.length;
    return true;
  }

  private value(path: string, depth: number): Value {
    if (depth > DEPTH_MAX) throw this.error(path, `nested deeper than ${DEPTH_MAX}`);
    this.blanks();
    const c = this.text.charAt(this.at);
    if (c === '{') return this.object(path, depth);
    if (c === '[') return this.list(path, depth);
    if (c === '"') return this.string(path);
    if (this.take('null')) return null;
    if (this.take('true')) return true;
    if (this.take('false')) return false;
    return this.number(path);
  }

  private object(path: string, depth: number): Value {
    this.at++;
    const items = new Map<string, Value>();
    this.blanks();
    if (this.take('}')) return new RMap(items);
    for (;;) {
      this.blanks();
      if (this.text.charAt(this.at) !== '"') throw this.error(path, 'a key must be a string');
      const key = this.string(path);
      if (items.has(key)) throw this.error(`${path}.${key}`, 'duplicate key');
      this.blanks();
      if (!this.take(':')) throw this.error(`${path}.${key}`, "expected ':'");
      items.set(key, this.value(`${path}.${key}`, depth + 1));
      this.blanks();
      if (this.take('}')) return new RMap(items);
      if (!this.take(',')) throw this.error(path, "expected ',' or '}'");
    }
  }

  private list(path: string, depth: number): Value {
    this.at++;
    const items: Value[] = [];
    this.blanks();
    if (this.take(']')) return new RArray(items);
    for (;;) {
      items.push(this.value(`${path}[${items.length}]`, depth + 1));
      this.blanks();
      if (this.take(']')) return new RArray(items);
      if (!this.take(',')) throw this.error(path, "expected ',' or ']'");
    }
  }

  private string(path: string): string {
    const end = /"(?:[^"\\]|\\.)*"/y;
    end.lastIndex = this.at;
    const match = end.exec(this.text);
    if (!match) throw this.error(path, 'unterminated string');
    let text: unknown;
    try {
      text = JSON.parse(match[0]);
    } catch {
      throw this.error(path, 'malformed string');
    }
    if (typeof text !== 'string' || !text.isWellFormed())
      throw this.error(path, 'malformed string');
    this.at += match[0].length;
    return text;
  }

  private number(path: string): Value {
    const shape = /-?(?:0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?/y;
    shape.lastIndex = this.at;
    const match = shape.exec(this.text);
    if (!match) throw this.error(path, 'not a value');
    const [text, fraction, exponent] = match;
    if (fraction !== undefined || exponent !== undefined) {
      const value = Number(text);
      if (!Number.isFinite(value)) throw this.error(path, 'number too large for f64');
      this.at += text.length;
      return new Float(value);
    }
    const value = BigInt(text);
    if (value > INT_MAX || value < INT_MIN) throw this.error(path, 'integer too large for i64');
    this.at += text.length;
    return makeInt(value);
  }
}

/** The value of typed JSON text. Throws RhaiError naming the path. */
export function fromJson(text: string): Value {
  return new Reader(text).whole();
}

/** The original's `to_json`: maps only at the top, function pointers as names, nothing refused. */
export function mapToJson(map: RMap): string {
  return nestedText(map, LOOSE_STYLE);
}

const LOOSE_STYLE: TextStyle = {
  separator: ',',
  opened: (value) => {
    if (value instanceof RMap) return openedMap(value, '{', ':');
    if (value instanceof RArray) return list(value.items);
    if (value instanceof RBlob) return list(value.bytes);
    if (!(value instanceof FnPtr) || value.curry.length === 0) return null;
    return list([value.name, ...value.curry.map((c) => (c instanceof Cell ? c.value : c))]);
  },
  leaf: (value) => {
    if (value === null) return 'null';
    if (value instanceof FnPtr) return quoted(value.name);
    return value instanceof Char ? `'${value.text}'` : debugText(value);
  },
};

const list = (values: readonly Value[]): Opened => ({ open: '[', close: ']', values, keys: null });
