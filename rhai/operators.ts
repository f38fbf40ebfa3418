/**
 * The built-in operators on values: exact i64 arithmetic with the original's error texts, floats,
 * strings, arrays, maps, blobs, ranges. The dispatch loop handles numbers that stay safe integers
 * itself and comes here for the rest.
 *
 * A result of `undefined` means that no implementation exists for these types: the caller looks for
 * a registered one and else raises ErrorFunctionNotFound.
 */
import {
  equals,
  floatDiffers,
  floatGreater,
  floatGreaterEqual,
  floatLess,
  floatLessEqual,
  order,
} from './compare.ts';
import { arithmeticError } from './errors.ts';
import { compareText, displayText } from './text.ts';
import {
  Char,
  copyValue,
  Float,
  INT_MAX,
  INT_MIN,
  type Int,
  isInt,
  makeInt,
  ownBytes,
  ownEntries,
  ownItems,
  RArray,
  Range,
  RBlob,
  RMap,
  Timestamp,
  typeName,
  type Value,
} from './values.ts';

/** Operator numbers of the BINARY and OPA instructions. */
export const OPERATORS = [
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
  '<=',
  '>',
  '>=',
  '..',
  '..=',
] as const;
export type Operator = (typeof OPERATORS)[number];

function checked(value: bigint, what: string, x: Int, op: string, y: Int): Int {
  if (value < INT_MIN || value > INT_MAX) {
    throw arithmeticError(`${what} overflow: ${x} ${op} ${y}`);
  }
  return makeInt(value);
}

function power(x: Int, y: Int): Int {
  if (y > 4294967295) throw arithmeticError(`Exponential overflow: ${x} ** ${y}`);
  if (y < 0) throw arithmeticError(`Integer raised to a negative power: ${x} ** ${y}`);
  const small = x === 0 || x === 1 || x === -1;
  if (y > 63 && !small) throw arithmeticError(`Exponential overflow: ${x} ** ${y}`);
  const exponent = small && y > 2 ? 2n + (BigInt(y) & 1n) : BigInt(y);
  const value = BigInt(x) ** exponent;
  if (value < INT_MIN || value > INT_MAX) {
    throw arithmeticError(`Exponential overflow: ${x} ** ${y}`);
  }
  return makeInt(value);
}

export function shiftLeft(x: Int, y: Int): Int {
  if (y < 0) return y === INT_MIN ? shiftRight(x, INT_MAX) : shiftRight(x, -y as Int);
  if (y >= 64) return 0;
  return makeInt(BigInt.asIntN(64, BigInt(x) << BigInt(y)));
}

export function shiftRight(x: Int, y: Int): Int {
  if (y < 0) return y === INT_MIN ? shiftLeft(x, INT_MAX) : shiftLeft(x, -y as Int);
  if (y >= 64) return x < 0 ? -1 : 0;
  return makeInt(BigInt(x) >> BigInt(y));
}

function isInt32(x: Int): x is number {
  return typeof x === 'number' && x === (x | 0);
}

/** Beyond what a JavaScript number holds exactly, and as far within i64 that rounding cannot matter. */
function isWide(estimate: number): boolean {
  const size = Math.abs(estimate);
  return size > 9.1e15 && size < 9.2e18;
}

/** Arithmetic whose operands and result are safe integers; undefined for all other. */
function safeBinary(op: Operator, x: number, y: number): number | undefined {
  let r: number;
  if (op === '+') r = x + y;
  else if (op === '-') r = x - y;
  else if (op === '*') r = x * y + 0;
  else if (y === 0) return undefined;
  else if (op === '/') return Math.trunc(x / y) + 0;
  else if (op === '%') return (x % y) + 0;
  else return undefined;
  return Number.isSafeInteger(r) ? r : undefined;
}

/** i64 arithmetic, checked. */
export function intBinary(op: Operator, x: Int, y: Int): Value | undefined {
  if (typeof x === 'number' && typeof y === 'number') {
    const safe = safeBinary(op, x, y);
    if (safe !== undefined) return safe;
  }
  switch (op) {
    case '+':
      if (isWide(Number(x) + Number(y))) return BigInt(x) + BigInt(y);
      return checked(BigInt(x) + BigInt(y), 'Addition', x, '+', y);
    case '-':
      return checked(BigInt(x) - BigInt(y), 'Subtraction', x, '-', y);
    case '*':
      if (isWide(Number(x) * Number(y))) return BigInt(x) * BigInt(y);
      return checked(BigInt(x) * BigInt(y), 'Multiplication', x, '*', y);
    case '/':
      if (y === 0) throw arithmeticError(`Division by zero: ${x} / ${y}`);
      return checked(BigInt(x) / BigInt(y), 'Division', x, '/', y);
    case '%':
      if (y === 0 || (y === -1 && x === INT_MIN)) {
        throw arithmeticError(`Modulo division by zero or overflow: ${x} % ${y}`);
      }
      // Smaller than the divisor.
      if (typeof y === 'number') return Number(BigInt(x) % BigInt(y));
      return makeInt(BigInt(x) % BigInt(y));
    case '**':
      return power(x, y);
    case '<<':
      return shiftLeft(x, y);
    case '>>':
      return shiftRight(x, y);
    case '&':
      if (isInt32(x) && isInt32(y)) return x & y;
      // A mask that is not negative leaves no more than itself.
      if (typeof y === 'number' && y >= 0) return Number(BigInt(x) & BigInt(y));
      return makeInt(BigInt.asIntN(64, BigInt(x) & BigInt(y)));
    case '|':
      if (isInt32(x) && isInt32(y)) return x | y;
      return makeInt(BigInt.asIntN(64, BigInt(x) | BigInt(y)));
    case '^':
      if (isInt32(x) && isInt32(y)) return x ^ y;
      return makeInt(BigInt.asIntN(64, BigInt(x) ^ BigInt(y)));
    case '..':
      return new Range(x, y, false);
    case '..=':
      return new Range(x, y, true);
    default:
      return undefined;
  }
}

/** powf of C: JavaScript differs where |x| is 1 and y infinite or NaN. */
export function floatPower(x: number, y: number): number {
  if (x === 1 || y === 0) return 1;
  if (x === -1 && !Number.isFinite(y) && !Number.isNaN(y)) return 1;
  return x ** y;
}

function floatBinary(op: Operator, x: number, y: number): Value | undefined {
  switch (op) {
    case '+':
      return new Float(x + y);
    case '-':
      return new Float(x - y);
    case '*':
      return new Float(x * y);
    case '/':
      return new Float(x / y);
    case '%':
      return new Float(x % y);
    case '**':
      return new Float(floatPower(x, y));
    case '!=':
      return floatDiffers(x, y);
    case '<':
      return floatLess(x, y);
    case '<=':
      return floatLessEqual(x, y);
    case '>':
      return floatGreater(x, y);
    case '>=':
      return floatGreaterEqual(x, y);
    default:
      return undefined;
  }
}

function ordered(op: Operator, difference: number): boolean | undefined {
  switch (op) {
    case '<':
      return difference < 0;
    case '<=':
      return difference <= 0;
    case '>':
      return difference > 0;
    case '>=':
      return difference >= 0;
    default:
      return undefined;
  }
}

/** The order of two values of unlike or unordered types, as the comparison operators see it. */
function compareAny(op: Operator, a: Value, b: Value): boolean | undefined {
  if (a === null && b === null) return false;
  if (a instanceof RBlob && b instanceof Char) return undefined;
  if (a instanceof Range && b instanceof Range) return undefined;
  const difference = order(a, b);
  if (difference !== undefined) return ordered(op, difference);
  const at = a instanceof Char ? a.text : a;
  const bt = b instanceof Char ? b.text : b;
  if (typeof at === 'string' && typeof bt === 'string') return ordered(op, compareText(at, bt));
  return typeName(a) === typeName(b) ? undefined : false;
}

function concat(a: Value, b: Value): Value | undefined {
  if (typeof a === 'string' || typeof b === 'string') {
    if (a instanceof RBlob || b instanceof RBlob) return undefined;
    return displayText(a) + displayText(b);
  }
  if (a instanceof Char && b instanceof Char) return a.text + b.text;
  if (a instanceof RArray && b instanceof RArray) {
    return new RArray([...a.items.map(copyValue), ...b.items.map(copyValue)]);
  }
  if (a instanceof RMap && b instanceof RMap) {
    const items = new Map<string, Value>();
    for (const [key, value] of a.items) items.set(key, copyValue(value));
    for (const [key, value] of b.items) items.set(key, copyValue(value));
    return new RMap(items);
  }
  if (a instanceof RBlob && b instanceof RBlob) return new RBlob([...a.bytes, ...b.bytes]);
  if (a instanceof RBlob && b instanceof Char) return new RBlob([...a.bytes, ...utf8(b.text)]);
  return undefined;
}

export function utf8(text: string): number[] {
  const bytes: number[] = [];
  for (const c of text) {
    const code = c.codePointAt(0) as number;
    if (code < 0x80) bytes.push(code);
    else if (code < 0x800) bytes.push(0xc0 | (code >> 6), 0x80 | (code & 63));
    else if (code < 0x10000) {
      bytes.push(0xe0 | (code >> 12), 0x80 | ((code >> 6) & 63), 0x80 | (code & 63));
    } else {
      bytes.push(0xf0 | (code >> 18), 0x80 | ((code >> 12) & 63));
      bytes.push(0x80 | ((code >> 6) & 63), 0x80 | (code & 63));
    }
  }
  return bytes;
}

function rangeWithUnit(op: Operator, a: Value, b: Value): Value | undefined {
  const inclusive = op === '..=';
  if (isInt(a) && b === null) return new Range(a, makeInt(INT_MAX), inclusive);
  if (a === null && isInt(b)) return new Range(0, b, inclusive);
  return undefined;
}

function timeArithmetic(op: Operator, a: Timestamp, b: Value): Value | undefined {
  if (op === '-' && b instanceof Timestamp) {
    const seconds = a.seconds - b.seconds;
    return new Float(seconds);
  }
  const seconds = b instanceof Float ? b.value : isInt(b) ? Number(b) : undefined;
  if (seconds === undefined) return undefined;
  if (op === '+') return new Timestamp(a.seconds + seconds);
  return op === '-' ? new Timestamp(a.seconds - seconds) : undefined;
}

/** A binary operator on any values. */
export function binary(op: Operator, a: Value, b: Value): Value | undefined {
  if (op === '==') return equals(a, b);
  const intA = isInt(a);
  const intB = isInt(b);
  if (op === '!=') {
    if ((intA || a instanceof Float) && (intB || b instanceof Float) && !(intA && intB)) {
      return floatDiffers(numberOf(a), numberOf(b));
    }
    const same = equals(a, b);
    if (same === undefined) return a instanceof Range ? true : undefined;
    return !same;
  }
  if (intA && intB) return intBinary(op, a, b) ?? ordered(op, a < b ? -1 : a > b ? 1 : 0);
  if ((intA || a instanceof Float) && (intB || b instanceof Float)) {
    return floatBinary(op, numberOf(a), numberOf(b));
  }
  switch (op) {
    case '<':
    case '<=':
    case '>':
    case '>=':
      return compareAny(op, a, b);
    case '..':
    case '..=':
      return rangeWithUnit(op, a, b);
    default:
  }
  if (a instanceof Timestamp) return timeArithmetic(op, a, b);
  if (op === '+') return concat(a, b);
  if (op === '-' && typeof a === 'string') {
    const remove = b instanceof Char ? b.text : b;
    if (typeof remove === 'string') return remove === '' ? a : a.split(remove).join('');
  }
  if (typeof a === 'boolean' && typeof b === 'boolean') {
    if (op === '&') return a && b;
    if (op === '|') return a || b;
    if (op === '^') return a !== b;
  }
  return undefined;
}

function numberOf(value: Value): number {
  return value instanceof Float ? value.value : Number(value);
}

/**
 * `target op= value` where the target is changed in place or replaced: the result is the new value.
 * Undefined where only `target = target op value` is left to try.
 */
export function assignOperator(op: Operator, target: Value, value: Value): Value | undefined {
  if (op === '+') {
    if (target instanceof RArray) {
      if (value instanceof RArray) {
        const more = value.items.map(copyValue);
        const items = ownItems(target);
        for (const item of more) items.push(item);
      } else ownItems(target).push(copyValue(value));
      return target;
    }
    if (target instanceof Char && value === '') return target;
    if (target instanceof RMap && value instanceof RMap) {
      const items = ownEntries(target);
      for (const [key, item] of value.items) items.set(key, copyValue(item));
      return target;
    }
    if (target instanceof RBlob) {
      if (value instanceof RBlob) ownBytes(target).push(...value.bytes.slice());
      else if (isInt(value)) ownBytes(target).push(Number(BigInt.asUintN(8, BigInt(value))));
      else if (value instanceof Char) ownBytes(target).push(...utf8(value.text));
      else if (typeof value === 'string') ownBytes(target).push(...utf8(value));
      else return undefined;
      return target;
    }
  }
  return undefined;
}

export function negate(value: Value): Value | undefined {
  if (isInt(value)) {
    if (value === INT_MIN) throw arithmeticError(`Negation overflow: -${value}`);
    return typeof value === 'number' ? 0 - value : makeInt(-value);
  }
  return value instanceof Float ? new Float(-value.value) : undefined;
}
