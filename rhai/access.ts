/**
 * Reading and writing parts of values: elements by index, characters, bits, properties of maps.
 * Reads borrow; `setIndex` and `setProperty` return the base, changed in place when it is a
 * container, new when it is a string or an integer. Getters of registered types and of the standard
 * library (`x.len`) are the machine's.
 */
import { mismatch, NO_POSITION, RhaiError } from './errors.ts';
import type { Settings } from './limits.ts';
import { shiftLeft } from './operators.ts';
import { displayText } from './text.ts';
import {
  Char,
  INT_MAX,
  type Int,
  isInt,
  makeChar,
  makeInt,
  ownBytes,
  ownEntries,
  ownItems,
  RArray,
  Range,
  RBlob,
  RMap,
  typeName,
  type Value,
} from './values.ts';

const INT_BITS = 64;

/** Position in a list of that length; negative counts from the end. -1 when outside. */
export function position(length: number, index: Int): number {
  const i = index < 0 ? Number(index) + length : Number(index);
  return i >= 0 && i < length ? i : -1;
}

function requireInt(index: Value): Int {
  if (isInt(index)) return index;
  throw mismatch('i64', typeName(index));
}

/** A value that cannot be an element: told at the assignment, not at the index. */
function unfit(requested: string, value: Value): RhaiError {
  return mismatch(requested, typeName(value), NO_POSITION, true);
}

function bounds(
  kind: 'ErrorArrayBounds' | 'ErrorStringBounds',
  length: number,
  index: Int,
): RhaiError {
  return new RhaiError(kind, { length, index });
}

function bitBounds(index: Int): RhaiError {
  return new RhaiError('ErrorBitFieldBounds', { length: INT_BITS, index });
}

/** Is every character one UTF-16 unit? */
export function isSimple(text: string): boolean {
  return !/[\ud800-\udfff]/.test(text);
}

let lastText = '';
let lastSimple = true;

/** The characters of a text, as something indexable. */
export function characters(text: string): string | string[] {
  if (text !== lastText) {
    lastText = text;
    lastSimple = isSimple(text);
  }
  return lastSimple ? text : Array.from(text);
}

function charAt(text: string, index: Int): Value {
  const list = characters(text);
  const i = position(list.length, index);
  if (i < 0) throw bounds('ErrorStringBounds', list.length, index);
  return makeChar(list[i] as string);
}

/** Start and end of a range in a text of `length` characters, counted from the front. */
function span(length: number, range: Range): [start: number, end: number] {
  let start = Number(range.start);
  if (range.start < 0) {
    start += length;
    if (start < 0) throw bounds('ErrorStringBounds', length, range.start);
  }
  let end = Number(range.end);
  if (range.end < 0) end = Math.max(end + length, 0);
  return [start, end];
}

function slice(text: string, range: Range): string {
  if (text === '') return text;
  const list = characters(text);
  const [start, end] = span(list.length, range);
  // As in the original: an inclusive range of one character has none, unless it is the whole text.
  const some = end > start || (start === 0 && end >= list.length - 1);
  const part = list.slice(start, range.inclusive ? (some ? end + 1 : start) : Math.max(end, start));
  return typeof part === 'string' ? part : part.join('');
}

/** Shift and width of a bit range. */
function bitSpan(range: Range): [shift: number, bits: number] {
  const open = range.end === INT_MAX;
  const { inclusive } = range;
  const start = position(INT_BITS, range.start);
  if (range.start < 0 || start < 0) throw bitBounds(range.start);
  const last = inclusive ? INT_BITS - 1 : INT_BITS;
  const end = open ? last : Number(range.end);
  if (end < 0 || end > last) throw bitBounds(range.end);
  return [start, Math.max(inclusive ? end - start + 1 : end - start, 0)];
}

function bitMask(bits: number): bigint {
  return bits === 0 ? 0n : (1n << BigInt(bits)) - 1n;
}

function bitsAt(value: Int, range: Range): Value {
  const [shift, bits] = bitSpan(range);
  if (bits === INT_BITS) return value;
  return makeInt(
    BigInt.asIntN(64, (BigInt.asUintN(64, BigInt(value)) >> BigInt(shift)) & bitMask(bits)),
  );
}

function withBits(value: Int, range: Range, field: Int): Value {
  const [shift, bits] = bitSpan(range);
  const mask = bitMask(bits) << BigInt(shift);
  const cleared = BigInt.asUintN(64, BigInt(value)) & ~mask;
  const set = (BigInt.asUintN(64, BigInt(field)) << BigInt(shift)) & mask;
  return makeInt(BigInt.asIntN(64, cleared | set));
}

function bitIndex(index: Int): number {
  const i = position(INT_BITS, index);
  if (i < 0) throw bitBounds(index);
  return i;
}

function unavailable(base: Value, index: Value, assigned = ''): RhaiError {
  const name = `${typeName(base)} [${typeName(index)}]${assigned}`;
  return new RhaiError('ErrorIndexingType', { name });
}

export function missingProperty(name: string): RhaiError {
  return new RhaiError('ErrorPropertyNotFound', { name });
}

/** `base[index]`, borrowed. */
export function getIndex(base: Value, index: Value, settings: Settings): Value {
  if (base instanceof RArray) {
    const at = requireInt(index);
    const i = position(base.items.length, at);
    if (i < 0) throw bounds('ErrorArrayBounds', base.items.length, at);
    return base.items[i] as Value;
  }
  if (base instanceof RMap) {
    if (typeof index !== 'string') throw mismatch('string', typeName(index));
    const value = base.items.get(index);
    if (value !== undefined) return value;
    if (settings.failOnInvalidMapProperty) throw missingProperty(index);
    return null;
  }
  if (typeof base === 'string') {
    if (index instanceof Range) return slice(base, index);
    return charAt(base, requireInt(index));
  }
  if (base instanceof RBlob) {
    const at = requireInt(index);
    const i = position(base.bytes.length, at);
    if (i < 0) throw bounds('ErrorArrayBounds', base.bytes.length, at);
    return base.bytes[i] as number;
  }
  if (isInt(base)) {
    if (index instanceof Range) return bitsAt(base, index);
    const bit = bitIndex(requireInt(index));
    return (BigInt.asUintN(64, BigInt(base)) >> BigInt(bit)) % 2n === 1n;
  }
  throw unavailable(base, index);
}

/** `base[index] = value`. */
export function setIndex(base: Value, index: Value, value: Value): Value {
  if (base instanceof RArray) {
    const at = requireInt(index);
    const i = position(base.items.length, at);
    if (i < 0) throw bounds('ErrorArrayBounds', base.items.length, at);
    ownItems(base)[i] = value;
    return base;
  }
  if (base instanceof RMap) {
    if (typeof index !== 'string') throw mismatch('string', typeName(index));
    ownEntries(base).set(index, value);
    return base;
  }
  if (typeof base === 'string') return setText(base, index, value);
  if (base instanceof RBlob) {
    const at = requireInt(index);
    const i = position(base.bytes.length, at);
    if (i < 0) throw bounds('ErrorArrayBounds', base.bytes.length, at);
    if (!isInt(value)) throw unfit('INT', value);
    ownBytes(base)[i] = Number(BigInt.asUintN(8, BigInt(value)));
    return base;
  }
  if (isInt(base)) {
    if (index instanceof Range) {
      if (!isInt(value)) throw unfit('integer', value);
      return withBits(base, index, value);
    }
    const bit = bitIndex(requireInt(index));
    if (typeof value !== 'boolean') throw unfit('bool', value);
    const mask = shiftLeft(1, bit);
    return value ? orInt(base, mask) : andNot(base, mask);
  }
  throw unavailable(base, index, ` = ${typeName(value)}`);
}

function orInt(a: Int, b: Int): Int {
  return makeInt(BigInt.asIntN(64, BigInt(a) | BigInt(b)));
}
function andNot(a: Int, b: Int): Int {
  return makeInt(BigInt.asIntN(64, BigInt(a) & ~BigInt(b)));
}

function setText(text: string, index: Value, value: Value): Value {
  const list = characters(text);
  if (index instanceof Range) {
    const part = displayText(value);
    const [start, end] = span(list.length, index);
    const rest = index.inclusive ? end + 1 : end;
    if (typeof list === 'string') return list.slice(0, start) + part + list.slice(rest);
    return [...list.slice(0, start), part, ...list.slice(rest)].join('');
  }
  const at = requireInt(index);
  const i = position(list.length, at);
  if (i < 0) throw bounds('ErrorStringBounds', list.length, at);
  if (!(value instanceof Char)) throw unfit('char', value);
  // The original writes a negative index counted from the front: `s[-1] = c` changes s[1].
  const to = at < 0 ? Math.abs(Number(at)) : i;
  if (to >= list.length) return text;
  if (typeof list === 'string') return list.slice(0, to) + value.text + list.slice(to + 1);
  const copy = list.slice();
  copy[to] = value.text;
  return copy.join('');
}
