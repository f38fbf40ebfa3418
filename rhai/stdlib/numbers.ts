/** Integers, floats, bit fields and numeric ranges. */
import { arithmeticError, RhaiError } from '../errors.ts';
import { floatRange, sequence, stepRange } from '../iterate.ts';
import type { NativeTable } from '../natives.ts';
import { shiftRight } from '../operators.ts';
import { plainFloat } from '../text.ts';
import {
  type Char,
  Float,
  INT_MAX,
  INT_MIN,
  type Int,
  makeInt,
  Range,
  type Value,
} from '../values.ts';
import { property } from './core.ts';
import { bitBounds, indexIn, startAndCountOrEmpty } from './ranges.ts';

const num = (value: Value | undefined): number =>
  value instanceof Float ? value.value : Number(value);

/** Hexadecimal and friends: negative numbers as 64-bit patterns. */
function radix(base: number): (args: Value[]) => Value {
  return ([value]) => BigInt.asUintN(64, BigInt(value as Int)).toString(base);
}

function parseInteger(text: string, base: Int): Int {
  if (base < 2 || base > 36) throw arithmeticError(`Invalid radix: '${base}'`);
  const failed = (why: string): Error =>
    arithmeticError(`Error parsing integer number '${text}': ${why}`);
  const trimmed = text.trim();
  if (trimmed === '') throw failed('cannot parse integer from empty string');
  const negative = trimmed.startsWith('-');
  const digits = /^[+-]/.test(trimmed) ? trimmed.slice(1) : trimmed;
  if (digits === '') throw failed('invalid digit found in string');
  let value = 0n;
  const by = BigInt(base);
  for (const c of digits) {
    const digit = /[0-9a-zA-Z]/.test(c) ? Number.parseInt(c, 36) : 99;
    if (digit >= Number(base)) throw failed('invalid digit found in string');
    value = value * by + BigInt(digit);
  }
  if (negative) value = -value;
  if (value > INT_MAX) throw failed('number too large to fit in target type');
  if (value < INT_MIN) throw failed('number too small to fit in target type');
  return makeInt(value);
}

function parseFloatText(text: string): Float {
  const trimmed = text.trim();
  const lower = trimmed.toLowerCase().replace(/^[+-]/, '');
  const sign = trimmed.startsWith('-') ? -1 : 1;
  if (lower === 'inf' || lower === 'infinity') return new Float(sign * Number.POSITIVE_INFINITY);
  if (lower === 'nan') return new Float(Number.NaN);
  if (!/^[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?$/i.test(trimmed)) {
    const why = trimmed === '' ? 'cannot parse float from empty string' : 'invalid float literal';
    throw arithmeticError(`Error parsing floating-point number '${text}': ${why}`);
  }
  return new Float(Number(trimmed));
}

function toInt(value: number): Int {
  if (value > 9223372036854775808 || value < -9223372036854775808) {
    throw arithmeticError(`Integer overflow: to_int(${plainFloat(value)})`);
  }
  if (Number.isNaN(value)) return 0;
  const whole = BigInt(Math.trunc(value));
  return makeInt(whole > INT_MAX ? INT_MAX : whole);
}

/** Half away from zero. */
function round(value: number): number {
  const whole = Math.trunc(value);
  return Math.abs(value - whole) >= 0.5 ? whole + Math.sign(value) : whole;
}

export function integerFunctions(t: NativeTable): void {
  t.def('abs', 'i', ([value]) => {
    const x = value as Int;
    if (x === INT_MIN) throw arithmeticError(`Negation overflow: -${x}`);
    return x < 0 ? makeInt(-BigInt(x)) : x;
  });
  t.def('sign', 'i', ([x]) => ((x as Int) > 0 ? 1 : (x as Int) < 0 ? -1 : 0));
  property(t, 'is_zero', 'i', (x) => x === 0);
  const isEven = (x: Value): boolean =>
    typeof x === 'number' ? x % 2 === 0 : (x as bigint) % 2n === 0n;
  property(t, 'is_odd', 'i', (x) => !isEven(x));
  property(t, 'is_even', 'i', isEven);
  t.def('max', 'ii', ([x, y]) => ((x as Int) >= (y as Int) ? (x as Int) : (y as Int)));
  t.def('min', 'ii', ([x, y]) => ((x as Int) <= (y as Int) ? (x as Int) : (y as Int)));
  t.def('to_int', 'i', ([x]) => x as Value);
  t.def('to_float', 'i', ([x]) => new Float(Number(x)));
  t.def('to_float', 'f', ([x]) => x as Value);
  t.def('to_hex', 'i', radix(16));
  t.def('to_octal', 'i', radix(8));
  t.def('to_binary', 'i', radix(2));
  t.def('parse_int', 's', ([text]) => parseInteger(text as string, 10));
  t.def('parse_int', 'si', ([text, base]) => parseInteger(text as string, base as Int));
  t.def('to_int', 'c', ([c]) => (c as Char).text.codePointAt(0) as number);
}

const UNARY: Record<string, (x: number) => number> = {
  sin: Math.sin,
  cos: Math.cos,
  tan: Math.tan,
  sinh: Math.sinh,
  cosh: Math.cosh,
  tanh: Math.tanh,
  asin: Math.asin,
  acos: Math.acos,
  atan: Math.atan,
  asinh: Math.asinh,
  acosh: Math.acosh,
  atanh: Math.atanh,
  to_radians: (x) => x * (Math.PI / 180),
  to_degrees: (x) => x * (180 / Math.PI),
  sqrt: Math.sqrt,
  exp: Math.exp,
  ln: Math.log,
  log: Math.log10,
  abs: Math.abs,
};

export function floatFunctions(t: NativeTable): void {
  for (const [name, fn] of Object.entries(UNARY)) t.def(name, 'f', ([x]) => new Float(fn(num(x))));
  const rounding: Record<string, (x: number) => number> = {
    floor: Math.floor,
    ceiling: Math.ceil,
    round,
    int: Math.trunc,
    fraction: (x) => x - Math.trunc(x),
  };
  for (const [name, fn] of Object.entries(rounding)) {
    property(t, name, 'f', (x) => new Float(fn(num(x))));
  }
  property(t, 'is_nan', 'f', (x) => Number.isNaN(num(x)));
  property(t, 'is_finite', 'f', (x) => Number.isFinite(num(x)));
  property(t, 'is_infinite', 'f', (x) => Math.abs(num(x)) === Number.POSITIVE_INFINITY);
  property(t, 'is_zero', 'f', (x) => num(x) === 0);
  t.def('atan', 'ff', ([x, y]) => new Float(Math.atan2(num(x), num(y))));
  t.def('hypot', 'ff', ([x, y]) => new Float(Math.hypot(num(x), num(y))));
  t.def('log', 'ff', ([x, y]) => new Float(Math.log(num(x)) / Math.log(num(y))));
  t.def('E', '-', () => new Float(Math.E));
  t.def('PI', '-', () => new Float(Math.PI));
  t.def('sign', 'f', ([x]) => {
    if (Number.isNaN(num(x))) throw arithmeticError('Sign of NaN is undefined');
    return Math.sign(num(x)) + 0;
  });
  t.def('to_int', 'f', ([x]) => toInt(num(x)));
  t.def('parse_float', 's', ([text]) => parseFloatText(text as string));
  for (const signature of ['ff', 'if', 'fi']) {
    t.def('max', signature, ([x, y]) => new Float(num(x) >= num(y) ? num(x) : num(y)));
    t.def('min', signature, ([x, y]) => new Float(num(x) <= num(y) ? num(x) : num(y)));
  }
}

/** Shift and width, clamped; the width of nothing is 0. */
function bitSpan(bit: Int, bits: Int): [shift: number, width: number] {
  if (bits <= 0) return [0, 0];
  const shift = indexIn(64, bit);
  if (shift < 0) throw bitBounds(bit);
  return [shift, Math.min(Number(bits), 64 - shift)];
}

function rangeBits(range: Range): [bit: Int, bits: Int] {
  const [bit, bits] = startAndCountOrEmpty(range);
  if (range.inclusive && range.end >= 64) throw bitBounds(range.end);
  return [bit, bits];
}

function getBits(value: Int, bit: Int, bits: Int): Int {
  const [shift, width] = bitSpan(bit, bits);
  if (width === 0) return 0;
  if (width === 64) return value;
  const field = BigInt.asUintN(64, BigInt(value)) >> BigInt(shift);
  return makeInt(BigInt.asIntN(64, field & ((1n << BigInt(width)) - 1n)));
}

function setBits(value: Int, bit: Int, bits: Int, field: Int): Int {
  const [shift, width] = bitSpan(bit, bits);
  if (width === 0) return value;
  if (width === 64) return field;
  const mask = ((1n << BigInt(width)) - 1n) << BigInt(shift);
  const set = (BigInt.asUintN(64, BigInt(field)) << BigInt(shift)) & mask;
  return makeInt(BigInt.asIntN(64, (BigInt.asUintN(64, BigInt(value)) & ~mask) | set));
}

function bitSequence(value: Int, bit: Int, bits: Int): Value {
  const from = indexIn(64, bit);
  if (from < 0) throw bitBounds(bit);
  const count = bits < 0 ? 0 : Math.min(Number(bits), 64 - from);
  return sequence('bits', () => {
    let rest = BigInt(shiftRight(value, from));
    let left = count;
    return () => {
      if (left-- <= 0) return undefined;
      const set = (rest & 1n) === 1n;
      rest >>= 1n;
      return set;
    };
  });
}

export function bitFunctions(t: NativeTable): void {
  t.def('get_bit', 'ii', ([value, bit]) => {
    const shift = indexIn(64, bit as Int);
    if (shift < 0) throw bitBounds(bit as Int);
    return ((BigInt(value as Int) >> BigInt(shift)) & 1n) === 1n;
  });
  t.def('set_bit', '!iib', (args) => {
    const [value, bit, on] = args as [Int, Int, boolean];
    const shift = indexIn(64, bit);
    if (shift < 0) throw bitBounds(bit);
    args[0] = setBits(value, bit, 1, on ? 1 : 0);
    return null;
  });
  t.def('get_bits', 'iii', ([v, bit, bits]) => getBits(v as Int, bit as Int, bits as Int));
  t.def('get_bits', 'ir', ([v, range]) => getBits(v as Int, ...rangeBits(range as Range)));
  t.def('set_bits', '!iiii', (args) => {
    const [value, bit, bits, field] = args as [Int, Int, Int, Int];
    args[0] = setBits(value, bit, bits, field);
    return null;
  });
  t.def('set_bits', '!iri', (args) => {
    const [value, range, field] = args as [Int, Range, Int];
    args[0] = setBits(value, ...rangeBits(range), field);
    return null;
  });
  property(t, 'bits', 'i', (v) => bitSequence(v as Int, 0, 64));
  t.def('bits', 'ii', ([v, bit]) => bitSequence(v as Int, bit as Int, 64));
  t.def('bits', 'iii', ([v, bit, bits]) => bitSequence(v as Int, bit as Int, bits as Int));
  t.def('bits', 'ir', ([v, range]) =>
    bitSequence(v as Int, ...startAndCountOrEmpty(range as Range)),
  );
}

function zeroStep(): RhaiError {
  const inner = arithmeticError('step value cannot be zero');
  return new RhaiError('ErrorInFunctionCall', { name: 'range', inner });
}

function integerSteps(from: Int, to: Int, step: Int): Value {
  if (step === 0) throw zeroStep();
  return stepRange(from, to, step);
}

export function rangeFunctions(t: NativeTable): void {
  t.def('range', 'ii', ([from, to]) => new Range(from as Int, to as Int, false));
  t.def('range', 'iii', ([from, to, step]) => integerSteps(from as Int, to as Int, step as Int));
  t.def('range', 'ri', (args) => {
    const [range, step] = args as [Range, Int];
    const { start, end, inclusive } = range;
    // The original has it for exclusive ranges only.
    if (inclusive) {
      throw new RhaiError('ErrorFunctionNotFound', { name: 'range (range=, i64)' });
    }
    return integerSteps(start, end, step);
  });
  t.def('range', 'fff', ([from, to, step]) => {
    if (num(from) + num(step) === num(from)) throw zeroStep();
    return floatRange(num(from), num(to), num(step));
  });
  property(t, 'start', 'r', (r) => (r as Range).start);
  property(t, 'end', 'r', (r) => (r as Range).end);
  property(t, 'is_inclusive', 'r', (r) => (r as Range).inclusive);
  property(t, 'is_exclusive', 'r', (r) => !(r as Range).inclusive);
  property(t, 'is_empty', 'r', (r) => {
    const { start, end, inclusive } = r as Range;
    return inclusive ? start > end : start >= end;
  });
  t.def('contains', 'ri', ([r, value]) => {
    const { start, end, inclusive } = r as Range;
    const x = value as Int;
    return x >= start && (inclusive ? x <= end : x < end);
  });
}
