/**
 * Typed JSON (INTERFACES 3 and 4): strict reading and writing, with integers and floats kept apart.
 *
 * One reader for everything that was signed or comes from a script: a key twice in one object is refused
 * at any depth, because two readers could pick different ones. Integers are i64 and exact (`number` while
 * safe, `bigint` beyond); a number written with `.` or `e` is a float, and keeps being one: as a plain
 * `number` when it has a fraction, as `JsonFloat` when it does not. What the values mean is left to zod
 * schemas and to the script engine.
 */
import { HeroError, type ErrorCode } from './errors.ts';

/** A float whose value happens to be whole: `1.0` is not the integer `1`. */
export class JsonFloat {
  readonly value: number;
  constructor(value: number) {
    this.value = value;
  }
}

export type JsonValue =
  | null
  | boolean
  | number
  | bigint
  | string
  | JsonFloat
  | JsonValue[]
  | { [key: string]: JsonValue };

/** Deeper nesting has no use here, and a recursive reader needs a bound. */
export const JSON_DEPTH_MAX = 128;
const I64_MIN = -(2n ** 63n);
const I64_MAX = 2n ** 63n - 1n;

const NUMBER = /-?(?:0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?/y;
const BLANK = /[ \t\n\r]*/y;
const QUOTE = 0x22;
const BACKSLASH = 0x5c;

type Reader = { text: string; at: number; invalid: ErrorCode };

/**
 * Reads one JSON value. A duplicate key throws `duplicate_key` naming its path; everything else that is
 * wrong throws `invalid`.
 */
export function parseStrict(text: string, invalid: ErrorCode = 'bad_request'): JsonValue {
  const reader: Reader = { text, at: 0, invalid };
  const value = readValue(reader, []);
  skipBlank(reader);
  if (reader.at !== text.length) fail(reader, 'text after the value');
  return value;
}

/** Reads the value of UTF-8 bytes; what is not UTF-8, or opens with a byte order mark, is invalid. */
export function parseStrictBytes(bytes: Uint8Array, invalid: ErrorCode = 'bad_request'): JsonValue {
  let text: string;
  try {
    text = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(bytes);
  } catch (cause) {
    throw new HeroError(invalid, 'not UTF-8', { cause });
  }
  return parseStrict(text, invalid);
}

/** A message of the bus as plain data; undefined for what is no JSON, which every schema refuses. */
export function readJson(bytes: Uint8Array): unknown {
  try {
    return JSON.parse(new TextDecoder().decode(bytes));
  } catch {
    return undefined;
  }
}

/** Writes a value so that `parseStrict` gives the same one back. Keys keep their order. */
export function stringifyTyped(value: JsonValue): string {
  if (typeof value === 'bigint') return value.toString();
  if (value instanceof JsonFloat) return floatText(value.value);
  if (typeof value === 'number') {
    if (!Number.isFinite(value)) throw new HeroError('bad_request', `${value} has no JSON form`);
    return Number.isSafeInteger(value) ? String(value) : floatText(value);
  }
  if (Array.isArray(value)) return `[${value.map(stringifyTyped).join(',')}]`;
  if (value === null || typeof value !== 'object') return JSON.stringify(value);
  const members = Object.entries(value).map(
    ([key, member]) => `${JSON.stringify(key)}:${stringifyTyped(member)}`,
  );
  return `{${members.join(',')}}`;
}

function floatText(value: number): string {
  if (!Number.isFinite(value)) throw new HeroError('bad_request', `${value} has no JSON form`);
  if (Object.is(value, -0)) return '-0.0';
  const text = String(value);
  return /[.e]/.test(text) ? text : `${text}.0`;
}

function fail(reader: Reader, what: string): never {
  throw new HeroError(reader.invalid, `not valid JSON: ${what} at offset ${reader.at}`);
}

function skipBlank(reader: Reader): void {
  BLANK.lastIndex = reader.at;
  BLANK.exec(reader.text);
  reader.at = BLANK.lastIndex;
}

function readValue(reader: Reader, path: (string | number)[]): JsonValue {
  if (path.length > JSON_DEPTH_MAX) fail(reader, `more than ${JSON_DEPTH_MAX} levels`);
  skipBlank(reader);
  switch (reader.text[reader.at]) {
    case '{':
      return readObject(reader, path);
    case '[':
      return readArray(reader, path);
    case '"':
      return readString(reader);
    case 't':
      return readWord(reader, 'true', true);
    case 'f':
      return readWord(reader, 'false', false);
    case 'n':
      return readWord(reader, 'null', null);
    default:
      return readNumber(reader);
  }
}

function readWord<T>(reader: Reader, word: string, value: T): T {
  if (!reader.text.startsWith(word, reader.at)) fail(reader, 'an unknown word');
  reader.at += word.length;
  return value;
}

function readNumber(reader: Reader): JsonValue {
  NUMBER.lastIndex = reader.at;
  const match = NUMBER.exec(reader.text);
  if (!match) fail(reader, reader.at >= reader.text.length ? 'an early end' : 'an odd character');
  const source = match[0];
  if (match[1] !== undefined || match[2] !== undefined) {
    const float = Number(source);
    if (!Number.isFinite(float)) fail(reader, `${source.slice(0, 40)} is too large for a float`);
    reader.at = NUMBER.lastIndex;
    return Number.isInteger(float) ? new JsonFloat(float) : float;
  }
  // i64 has 19 digits; a longer text is not worth turning into a bigint to refuse it.
  const integer = source.length > 20 ? I64_MAX + 1n : BigInt(source);
  if (integer > I64_MAX || integer < I64_MIN) fail(reader, `${source.slice(0, 40)} is not an i64`);
  reader.at = NUMBER.lastIndex;
  const small = Number(integer);
  return Number.isSafeInteger(small) ? small : integer;
}

function readString(reader: Reader): string {
  const { text } = reader;
  const start = reader.at;
  let plain = true;
  let at = start + 1;
  for (; ; at++) {
    const code = text.charCodeAt(at);
    if (code === QUOTE) break;
    if (code === BACKSLASH) {
      plain = false;
      at++;
    } else if (!(code >= 0x20)) {
      // NaN (past the end) is caught here too.
      reader.at = at;
      fail(reader, at >= text.length ? 'an unfinished string' : 'a control character in a string');
    }
  }
  reader.at = at + 1;
  if (plain) return text.slice(start + 1, at);
  try {
    return JSON.parse(text.slice(start, at + 1)) as string;
  } catch {
    reader.at = start;
    return fail(reader, 'a bad escape in the string');
  }
}

function readArray(reader: Reader, path: (string | number)[]): JsonValue[] {
  const items: JsonValue[] = [];
  reader.at++;
  skipBlank(reader);
  if (reader.text[reader.at] === ']') {
    reader.at++;
    return items;
  }
  for (;;) {
    path.push(items.length);
    items.push(readValue(reader, path));
    path.pop();
    skipBlank(reader);
    const next = reader.text[reader.at++];
    if (next === ']') return items;
    if (next !== ',') {
      reader.at--;
      fail(reader, 'neither , nor ] after an item');
    }
  }
}

function readObject(reader: Reader, path: (string | number)[]): { [key: string]: JsonValue } {
  const members: { [key: string]: JsonValue } = {};
  reader.at++;
  skipBlank(reader);
  if (reader.text[reader.at] === '}') {
    reader.at++;
    return members;
  }
  for (;;) {
    skipBlank(reader);
    if (reader.text[reader.at] !== '"') fail(reader, 'a key without quotes');
    const key = readString(reader);
    path.push(key);
    if (Object.hasOwn(members, key)) {
      throw new HeroError('duplicate_key', `the key ${path.join('.').slice(0, 200)} stands twice`);
    }
    skipBlank(reader);
    if (reader.text[reader.at] !== ':') fail(reader, 'no : after a key');
    reader.at++;
    const value = readValue(reader, path);
    path.pop();
    // Assigning `__proto__` would set the prototype instead of a member.
    Object.defineProperty(members, key, {
      value,
      enumerable: true,
      writable: true,
      configurable: true,
    });
    skipBlank(reader);
    const next = reader.text[reader.at++];
    if (next === '}') return members;
    if (next !== ',') {
      reader.at--;
      fail(reader, 'neither , nor } after a member');
    }
  }
}

/**
 * Reads JSON as plain data that prints as it was written: a number JavaScript would print otherwise (`2.0`,
 * integers beyond 2^53) stays its own text. For values that are passed on and shown, never computed with.
 */
export function exactJson(text: string): unknown {
  return parseWithSource(text, (_key, value, { source }) =>
    typeof value === 'number' && source !== undefined && String(value) !== source
      ? rawJson(source)
      : value,
  );
}

/** Both are of ECMAScript 2026: the packaged Node has them, TypeScript's libraries do not yet. */
type SourceReviver = (key: string, value: unknown, context: { source?: string }) => unknown;
const { parse: parseWithSource, rawJSON: rawJson } = JSON as unknown as {
  parse: (text: string, reviver: SourceReviver) => unknown;
  rawJSON: (text: string) => unknown;
};
