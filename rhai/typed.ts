/** Typed values of the conformance protocol: `{"type", "value"}` to values and back. */
import { plainFloat, sortedKeys } from './text.ts';
import {
  Cell,
  Char,
  Float,
  FnPtr,
  HostObject,
  isInt,
  makeInt,
  RArray,
  Range,
  RBlob,
  RMap,
  Timestamp,
  type Value,
} from './values.ts';

export interface Typed {
  readonly type: string;
  readonly value?: unknown;
  readonly curry?: readonly Typed[];
}

function floatJson(value: number): number | string {
  if (Object.is(value, -0)) return '-0';
  return Number.isFinite(value) ? value : plainFloat(value);
}

/** Nesting that is still written; a closure may hold itself. */
const DEPTH_MAX = 100;

export function toTyped(value: Value, depth = 0): Typed {
  if (depth > DEPTH_MAX) return { type: 'other', value: '…' };
  if (value === null) return { type: 'unit' };
  if (typeof value === 'boolean') return { type: 'bool', value };
  if (isInt(value)) return { type: 'i64', value: String(value) };
  if (typeof value === 'string') return { type: 'string', value };
  if (value instanceof Float) return { type: 'f64', value: floatJson(value.value) };
  if (value instanceof Char) return { type: 'char', value: value.text };
  if (value instanceof RArray)
    return { type: 'array', value: value.items.map((v) => toTyped(v, depth + 1)) };
  if (value instanceof RMap) {
    const { items } = value;
    const entries = sortedKeys(items.keys()).map((k) => [
      k,
      toTyped(items.get(k) ?? null, depth + 1),
    ]);
    return { type: 'map', value: entries };
  }
  if (value instanceof RBlob) {
    const hex = value.bytes.map((byte) => byte.toString(16).padStart(2, '0')).join('');
    return { type: 'blob', value: hex };
  }
  if (value instanceof Range) {
    const type = value.inclusive ? 'range_inclusive' : 'range';
    return { type, value: [String(value.start), String(value.end)] };
  }
  if (value instanceof FnPtr) {
    const curry = value.curry.map((c) => toTyped(c instanceof Cell ? c.value : c, depth + 20));
    return { type: 'Fn', value: value.name, curry };
  }
  if (value instanceof Timestamp) return { type: 'other', value: 'timestamp' };
  return { type: 'other', value: value instanceof HostObject ? value.type : 'unknown' };
}

function list(value: unknown): unknown[] {
  return Array.isArray(value) ? value : [];
}

function asTyped(value: unknown): Typed {
  if (typeof value === 'object' && value !== null && 'type' in value) return value as Typed;
  throw new TypeError('a typed value is an object with a type');
}

/** Throws TypeError on what is no typed value. */
export function fromTyped(given: unknown): Value {
  const { type, value, curry = [] } = asTyped(given);
  switch (type) {
    case 'unit':
      return null;
    case 'bool':
      return value === true;
    case 'i64':
      return makeInt(BigInt(String(value)));
    case 'f64':
      if (value === 'NaN') return new Float(Number.NaN);
      if (value === 'inf') return new Float(Number.POSITIVE_INFINITY);
      if (value === '-inf') return new Float(Number.NEGATIVE_INFINITY);
      return new Float(Number(value));
    case 'char':
      return new Char(String(value));
    case 'string':
      return String(value);
    case 'array':
      return new RArray(list(value).map(fromTyped));
    case 'map':
      return new RMap(
        new Map(list(value).map((entry) => [String(list(entry)[0]), fromTyped(list(entry)[1])])),
      );
    case 'blob':
      return new RBlob((String(value).match(/../g) ?? []).map((hex) => Number.parseInt(hex, 16)));
    case 'range':
    case 'range_inclusive': {
      const [start, end] = list(value).map((n) => makeInt(BigInt(String(n))));
      return new Range(start ?? 0, end ?? 0, type === 'range_inclusive');
    }
    case 'Fn':
      return new FnPtr(String(value), curry.map(fromTyped));
    default:
      throw new TypeError(`no such type: ${type}`);
  }
}
