/**
 * Iteration of `for`: over a snapshot of arrays and blobs, over ranges, and over the iterators that
 * library functions return (`range`, `chars`, `bits`), which are opaque values that make a fresh iteration each time.
 */
import { characters } from './access.ts';
import { RhaiError } from './errors.ts';
import {
  Float,
  HostObject,
  type Int,
  makeChar,
  makeInt,
  copyValue,
  RArray,
  Range,
  RBlob,
  type Value,
} from './values.ts';

/** What an iterator value holds. */
export class Sequence {
  readonly start: () => () => Value | undefined;
  constructor(start: () => () => Value | undefined) {
    this.start = start;
  }
}

/** The types of iterators, as `type_of` tells them in the original. */
const ITERATORS = {
  ints: 'rhai::packages::iter_basic::StepRange<i64>',
  floats: 'rhai::packages::iter_basic::StepRange<f64>',
  chars: 'rhai::packages::iter_basic::CharsStream',
  bits: 'rhai::packages::iter_basic::BitRange',
} as const;

export function sequence(
  kind: keyof typeof ITERATORS,
  start: () => () => Value | undefined,
): HostObject {
  return new HostObject(ITERATORS[kind], new Sequence(start));
}

export class Iteration {
  /** Plain integers from `at` to before `end`, handled inline by the machine. */
  readonly ints: boolean;
  at: number;
  readonly end: number;
  count = 0;
  private readonly pull: (() => Value | undefined) | null;

  constructor(at: number, end: number, pull: (() => Value | undefined) | null) {
    this.ints = pull === null;
    this.at = at;
    this.end = end;
    this.pull = pull;
  }

  next(): Value | undefined {
    if (this.pull !== null) return this.pull();
    return this.at < this.end ? this.at++ : undefined;
  }
}

const SAFE = 9007199254740990;

function overRange(range: Range): Iteration {
  const { start, inclusive } = range;
  const last = inclusive ? BigInt(range.end) : BigInt(range.end) - 1n;
  if (BigInt(start) > last) return new Iteration(0, 0, null);
  if (typeof start === 'number' && last <= SAFE)
    return new Iteration(start, Number(last) + 1, null);
  let next = BigInt(start);
  return new Iteration(0, 0, () => (next <= last ? makeInt(next++) : undefined));
}

function overList(items: readonly Value[]): Iteration {
  let i = 0;
  return new Iteration(0, 0, () => {
    if (i >= items.length) return undefined;
    const item = items[i++] as Value;
    return typeof item === 'object' && item !== null ? copyValue(item) : item;
  });
}

export function startIteration(value: Value): Iteration {
  if (value instanceof Range) return overRange(value);
  if (value instanceof RArray) {
    value.shared = true;
    return overList(value.items);
  }
  if (value instanceof RBlob) {
    value.shared = true;
    return overList(value.bytes);
  }
  if (value instanceof HostObject && value.data instanceof Sequence) {
    return new Iteration(0, 0, value.data.start());
  }
  if (typeof value === 'string') {
    const list = characters(value);
    let i = 0;
    return new Iteration(0, 0, () => (i < list.length ? makeChar(list[i++] as string) : undefined));
  }
  throw new RhaiError('ErrorFor');
}

/** `range(from, to, step)` of integers. */
export function stepRange(from: Int, to: Int, step: Int): HostObject {
  return sequence('ints', () => {
    const last = typeof to === 'number' && typeof step === 'number' ? to + step : Number.NaN;
    if (typeof from === 'number' && Number.isSafeInteger(last)) return safeSteps(from, to, step);
    let next = BigInt(from);
    const end = BigInt(to);
    const by = BigInt(step);
    return () => {
      if (by > 0n ? next >= end : next <= end) return undefined;
      const value = next;
      next += by;
      return makeInt(value);
    };
  });
}

/** Steps that all are safe integers, the one past the end too. */
function safeSteps(from: number, to: Int, step: Int): () => Value | undefined {
  const [end, by] = [Number(to), Number(step)];
  let next = from;
  return () => {
    if (by > 0 ? next >= end : next <= end) return undefined;
    const value = next;
    next += by;
    return value;
  };
}

/** `range(from, to, step)` of floats. */
export function floatRange(from: number, to: number, step: number): HostObject {
  return sequence('floats', () => {
    let next = from;
    return () => {
      if (step > 0 ? next >= to : next <= to) return undefined;
      const value = next;
      next += step;
      return new Float(value);
    };
  });
}
