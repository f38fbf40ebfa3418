/**
 * The values of Rhai, and copying them.
 *
 * An i64 is a JS number while it is a safe integer and a bigint beyond (never a bigint that would
 * be safe: `makeInt` normalises), so that arithmetic in loops stays on machine integers. An f64 is
 * a box (`Float`), so that 1 and 1.0 differ. Unit is null. Strings are JS strings without lone
 * surrogates. Arrays, maps and blobs have value semantics by copy on write: `copyValue` makes a new
 * head on the same storage and marks both, `own*` gives a head its own storage before a change.
 *
 * Printing is in text.ts, equality and order in compare.ts, arithmetic in operators.ts.
 *
 * V1  a bigint is never a safe integer; an int number is never -0, NaN, infinite or fractional.
 * V2  storage marked `shared` is never changed in place.
 * V3  a Cell (a shared variable) lives in variables and curried arguments only, never in containers.
 */
import type { FnProto, Library } from './bytecode.ts';

export type Int = number | bigint;
export type Value =
  | null
  | boolean
  | Int
  | string
  | Float
  | Char
  | RArray
  | RMap
  | RBlob
  | Range
  | FnPtr
  | Timestamp
  | HostObject;

export const INT_MIN = -(2n ** 63n);
export const INT_MAX = 2n ** 63n - 1n;

/** An f64. Immutable. */
export class Float {
  readonly value: number;
  constructor(value: number) {
    this.value = value;
  }
}

/** One Unicode scalar value, kept as the string that holds it. Immutable; `makeChar` interns ASCII. */
export class Char {
  readonly text: string;
  constructor(text: string) {
    this.text = text;
  }
}

export class RArray {
  items: Value[];
  shared: boolean;
  constructor(items: Value[], shared = false) {
    this.items = items;
    this.shared = shared;
  }
}

export class RMap {
  items: Map<string, Value>;
  shared: boolean;
  constructor(items: Map<string, Value> = new Map(), shared = false) {
    this.items = items;
    this.shared = shared;
  }
}

export class RBlob {
  bytes: number[];
  shared: boolean;
  constructor(bytes: number[], shared = false) {
    this.bytes = bytes;
    this.shared = shared;
  }
}

/** `start..end` or `start..=end`. Immutable. */
export class Range {
  readonly start: Int;
  readonly end: Int;
  readonly inclusive: boolean;
  constructor(start: Int, end: Int, inclusive: boolean) {
    this.start = start;
    this.end = end;
    this.inclusive = inclusive;
  }
}

/**
 * A function pointer: a name, arguments bound in front (cells when they are captured variables),
 * and, when it was made from a known script function, that function and where it lives. Immutable.
 */
export class FnPtr {
  readonly name: string;
  readonly curry: readonly (Value | Cell)[];
  readonly fn: FnProto | null;
  readonly library: Library | null;
  constructor(
    name: string,
    curry: readonly (Value | Cell)[] = [],
    fn: FnProto | null = null,
    library: Library | null = null,
  ) {
    this.name = name;
    this.curry = curry;
    this.fn = fn;
    this.library = library;
  }
}

/** Seconds of the clock the settings gave. Immutable. */
export class Timestamp {
  readonly seconds: number;
  constructor(seconds: number) {
    this.seconds = seconds;
  }
}

/** A value of a type the host registered: opaque to scripts, passed by reference. */
export class HostObject {
  readonly type: string;
  readonly data: unknown;
  constructor(type: string, data: unknown) {
    this.type = type;
    this.data = data;
  }
}

/** A variable that closures share. `shared` is false until a closure has captured it. */
export class Cell {
  value: Value;
  shared = false;
  locked = false;
  constructor(value: Value) {
    this.value = value;
  }
}

export function isInt(value: Value): value is Int {
  return typeof value === 'number' || typeof value === 'bigint';
}

/** The normal form of an integer that is known to be within i64. */
export function makeInt(value: bigint): Int {
  return value >= -9007199254740991n && value <= 9007199254740991n ? Number(value) : value;
}

const ASCII_CHARS: Char[] = Array.from({ length: 128 }, (_, i) => new Char(String.fromCharCode(i)));

export function makeChar(text: string): Char {
  const code = text.charCodeAt(0);
  return code < 128 ? (ASCII_CHARS[code] as Char) : new Char(text);
}

/** A copy as assignment makes it: cheap, storage is shared until one side changes. */
export function copyValue(value: Value): Value {
  if (typeof value !== 'object' || value === null) return value;
  if (value instanceof RArray) {
    if (value.items.length === 0) return new RArray([]);
    value.shared = true;
    return new RArray(value.items, true);
  }
  if (value instanceof RMap) {
    if (value.items.size === 0) return new RMap();
    value.shared = true;
    return new RMap(value.items, true);
  }
  if (value instanceof RBlob) {
    value.shared = true;
    return new RBlob(value.bytes, true);
  }
  return value;
}

/** The items of an array that is about to be changed. */
export function ownItems(array: RArray): Value[] {
  if (array.shared) {
    const items = array.items;
    const own = items.slice();
    for (let i = 0; i < own.length; i++) {
      const item = own[i] as Value;
      if (typeof item === 'object' && item !== null) own[i] = copyValue(item);
    }
    array.items = own;
    array.shared = false;
  }
  return array.items;
}

/** The entries of a map that is about to be changed. */
export function ownEntries(map: RMap): Map<string, Value> {
  if (map.shared) {
    const own = new Map<string, Value>();
    for (const [key, value] of map.items) own.set(key, copyValue(value));
    map.items = own;
    map.shared = false;
  }
  return map.items;
}

/** The bytes of a blob that is about to be changed. */
export function ownBytes(blob: RBlob): number[] {
  if (blob.shared) {
    blob.bytes = blob.bytes.slice();
    blob.shared = false;
  }
  return blob.bytes;
}

/** What `type_of` says. */
export function typeName(value: Value): string {
  switch (typeof value) {
    case 'number':
    case 'bigint':
      return 'i64';
    case 'string':
      return 'string';
    case 'boolean':
      return 'bool';
    default:
  }
  if (value === null) return '()';
  if (value instanceof Float) return 'f64';
  if (value instanceof RArray) return 'array';
  if (value instanceof RMap) return 'map';
  if (value instanceof Char) return 'char';
  if (value instanceof RBlob) return 'blob';
  if (value instanceof Range) return value.inclusive ? 'range=' : 'range';
  if (value instanceof FnPtr) return 'Fn';
  if (value instanceof Timestamp) return 'timestamp';
  // The original maps its iterators to the name of ranges.
  return value.type.startsWith('rhai::packages::iter_basic::') ? 'range' : value.type;
}
