/**
 * Equality and order of values: what `==`, `<` and friends say for the standard types, and the
 * structural equality that `contains`, `index_of`, `dedup` and switch cases build on.
 */
import { RhaiError } from './errors.ts';
import { compareText } from './text.ts';
import {
  Char,
  Float,
  FnPtr,
  HostObject,
  isInt,
  RArray,
  Range,
  RBlob,
  RMap,
  Timestamp,
  type Value,
} from './values.ts';

const EPSILON = 2.220446049250313e-16;

/** Rhai's float difference: relative, so that 0.1 + 0.2 == 0.3, and NaN for inf and inf. */
function difference(x: number, y: number): number {
  const max = x * y === 0 ? 1 : Math.max(Math.abs(x), Math.abs(y));
  return (x - y) / max;
}

export function floatEquals(x: number, y: number): boolean {
  return Math.abs(difference(x, y)) <= EPSILON;
}
/** Not the negation of equals: NaN is neither. */
export function floatDiffers(x: number, y: number): boolean {
  return Math.abs(difference(x, y)) > EPSILON;
}
export function floatGreater(x: number, y: number): boolean {
  return difference(x, y) > EPSILON;
}
export function floatGreaterEqual(x: number, y: number): boolean {
  return difference(x, y) > -EPSILON;
}
export function floatLess(x: number, y: number): boolean {
  return difference(x, y) < -EPSILON;
}
export function floatLessEqual(x: number, y: number): boolean {
  return difference(y, x) > -EPSILON;
}

/** Strict sameness of type and value, for switch cases and constants: 1 is not 1.0. */
export function sameValue(a: Value, b: Value): boolean {
  if (a === b) return true;
  if (a instanceof Float) return b instanceof Float && Object.is(a.value, b.value);
  if (a instanceof Char) return b instanceof Char && a.text === b.text;
  if (a instanceof RArray) {
    return (
      b instanceof RArray &&
      a.items.length === b.items.length &&
      a.items.every((item, i) => sameValue(item, b.items[i] as Value))
    );
  }
  if (a instanceof RMap) {
    if (!(b instanceof RMap) || a.items.size !== b.items.size) return false;
    for (const [key, value] of a.items) {
      const other = b.items.get(key);
      if (other === undefined || !sameValue(value, other)) return false;
    }
    return true;
  }
  if (a instanceof Range) {
    return (
      b instanceof Range && a.start === b.start && a.end === b.end && a.inclusive === b.inclusive
    );
  }
  if (a instanceof RBlob) {
    return (
      b instanceof RBlob &&
      a.bytes.length === b.bytes.length &&
      a.bytes.every((byte, i) => byte === b.bytes[i])
    );
  }
  if (a instanceof FnPtr) return b instanceof FnPtr && a.name === b.name && a.curry.length === 0;
  return false;
}

/**
 * `==` where it is built in; undefined where no implementation exists.
 * Unlike types are simply unequal, except numbers with numbers and strings with chars.
 */
export function equals(a: Value, b: Value): boolean | undefined {
  if (isInt(a)) {
    if (isInt(b)) return a === b;
    return b instanceof Float ? floatEquals(Number(a), b.value) : false;
  }
  if (typeof a === 'string') {
    return b instanceof Char ? a === b.text : a === b;
  }
  if (typeof a === 'boolean' || a === null) return a === b;
  if (a instanceof Float) {
    if (b instanceof Float) return floatEquals(a.value, b.value);
    return isInt(b) ? floatEquals(a.value, Number(b)) : false;
  }
  if (a instanceof Char) {
    if (b instanceof Char) return a.text === b.text;
    return typeof b === 'string' ? a.text === b : false;
  }
  if (a instanceof RArray) return b instanceof RArray && nestedEqual(a, b);
  if (a instanceof RMap) return b instanceof RMap && nestedEqual(a, b);
  if (a instanceof RBlob) return b instanceof Char ? undefined : sameValue(a, b);
  if (a instanceof Range) {
    // The original has no `==` for ranges of the two kinds, only `!=`.
    if (b instanceof Range && a.inclusive !== b.inclusive) return undefined;
    return sameValue(a, b);
  }
  if (a instanceof Timestamp) return b instanceof Timestamp && a.seconds === b.seconds;
  if (a instanceof FnPtr) return b instanceof FnPtr ? undefined : false;
  if (a instanceof HostObject) {
    if (b instanceof HostObject && b.type === a.type) return a === b || a.data === b.data;
    return false;
  }
  return false;
}

/** Equality inside containers, where no implementation means unequal. */
export function equalsInside(a: Value, b: Value): boolean {
  return equals(a, b) ?? false;
}

/** Pairs that one comparison looks at: values that share parts may branch without end. */
const PAIRS_MAX = 16_777_216;

/**
 * Equality of two arrays or two maps. Has its own stack, so that no nesting is too deep for the host's.
 * The containers that are still to be compared lie in `left` and `right`.
 */
function nestedEqual(a: RArray | RMap, b: RArray | RMap): boolean {
  const left: Value[] = [a];
  const right: Value[] = [b];
  let pairs = 0;
  const differ = (x: Value, y: Value | undefined): boolean => {
    pairs++;
    if (y === undefined) return true;
    if (!(x instanceof RArray) && !(x instanceof RMap)) return !equalsInside(x, y);
    left.push(x);
    right.push(y);
    return false;
  };
  for (let x = left.pop(); x !== undefined; x = left.pop()) {
    const y = right.pop() as Value;
    if (x instanceof RArray) {
      if (!(y instanceof RArray) || x.items.length !== y.items.length) return false;
      for (let i = 0; i < x.items.length; i++) {
        if (differ(x.items[i] as Value, y.items[i])) return false;
      }
    } else if (x instanceof RMap) {
      if (!(y instanceof RMap) || x.items.size !== y.items.size) return false;
      for (const [key, value] of x.items) if (differ(value, y.items.get(key))) return false;
    }
    if (pairs > PAIRS_MAX) throw new RhaiError('ErrorDataTooLarge', { name: 'Size of array/BLOB' });
  }
  return true;
}

/** Order of two values of one orderable type: negative, 0, positive; undefined otherwise. */
export function order(a: Value, b: Value): number | undefined {
  if (isInt(a) && isInt(b)) return a < b ? -1 : a > b ? 1 : 0;
  if (typeof a === 'string' && typeof b === 'string') return compareText(a, b);
  if (a instanceof Char && b instanceof Char) return compareText(a.text, b.text);
  if (a instanceof Float && b instanceof Float) {
    if (a.value === b.value) return 0;
    return a.value < b.value ? -1 : a.value > b.value ? 1 : undefined;
  }
  if (typeof a === 'boolean' && typeof b === 'boolean') return Number(a) - Number(b);
  if (a === null && b === null) return 0;
  if (a instanceof Timestamp && b instanceof Timestamp) return a.seconds - b.seconds;
  return undefined;
}
