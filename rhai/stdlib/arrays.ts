/** Arrays: those that change, those that look, those that call back, and sorting. */
import { equals, order } from '../compare.ts';
import { RhaiError } from '../errors.ts';
import { Callback, type NativeContext, type NativeTable } from '../natives.ts';
import {
  copyValue,
  type FnPtr,
  type Int,
  INT_MAX,
  ownItems,
  RArray,
  type Range,
  typeName,
  type Value,
} from '../values.ts';
import { callMaker, NONE } from './callbacks.ts';
import { property } from './core.ts';
import { clamp, indexIn, startAndCount } from './ranges.ts';

type Process = Generator<Callback, Value, Value>;

const items = (value: Value | undefined): Value[] => (value as RArray).items;
const own = (value: Value | undefined): Value[] => ownItems(value as RArray);

function copies(list: readonly Value[]): RArray {
  return new RArray(list.map(copyValue));
}

/** Gives an array other items, in place. */
function refill(target: Value | undefined, list: Value[]): void {
  const array = target as RArray;
  array.items = list;
  array.shared = false;
}

export function arrayFunctions(t: NativeTable): void {
  property(t, 'len', 'a', (a) => items(a).length);
  property(t, 'is_empty', 'a', (a) => items(a).length === 0);
  t.defDirect('get', '!ai', (a, index) => {
    const [i] = clamp(items(a).length, index as Int, 0);
    return copyValue(items(a)[i] ?? null);
  });
  t.def('set', '!ai*', ([a, index, value]) => {
    const [i] = clamp(items(a).length, index as Int, 0);
    if (i < items(a).length) own(a)[i] = copyValue(value as Value);
    return null;
  });
  t.defDirect('push', '!a*', (a, value) => {
    own(a).push(value);
    return null;
  });
  t.def('append', '!aa', ([a, b]) => {
    const more = items(b).map(copyValue);
    const list = own(a);
    for (const item of more) list.push(item);
    return null;
  });
  t.def('insert', '!ai*', ([a, index, value]) => {
    const [i] = clamp(items(a).length, index as Int, 0);
    own(a).splice(i, 0, value as Value);
    return null;
  });
  t.def('pad', '!ai*', ([a, size, value], context) => {
    const missing = Number(size) - items(a).length;
    if (missing <= 0) return null;
    const max = context.settings.maxArraySize;
    if ((max > 0 && (size as Int) > max) || (size as Int) > 200_000_000) {
      throw new RhaiError('ErrorDataTooLarge', { name: 'Size of array/BLOB' });
    }
    context.charge(missing);
    const list = own(a);
    for (let i = 0; i < missing; i++) list.push(copyValue(value as Value));
    return null;
  });
  t.defDirect('pop', '!a', (a) => own(a).pop() ?? null);
  t.defDirect('shift', '!a', (a) => own(a).shift() ?? null);
  t.def('remove', '!ai', ([a, index]) => {
    const i = indexIn(items(a).length, index as Int);
    return i < 0 ? null : (own(a).splice(i, 1)[0] ?? null);
  });
  t.def('clear', '!a', ([a]) => {
    refill(a, []);
    return null;
  });
  t.def('truncate', '!ai', ([a, size]) => {
    const keep = (size as Int) <= 0 ? 0 : Number(size);
    if (keep < items(a).length) own(a).length = keep;
    return null;
  });
  t.def('chop', '!ai', ([a, size]) => {
    const keep = (size as Int) <= 0 ? 0 : Number(size);
    if (keep < items(a).length) own(a).splice(0, items(a).length - keep);
    return null;
  });
  t.def('reverse', '!a', ([a]) => {
    own(a).reverse();
    return null;
  });
}

function spliceItems(a: Value | undefined, start: Int, count: Int, replace: Value): Value {
  const [from, n] = clamp(items(a).length, start, count);
  const more = items(replace).map(copyValue);
  const list = own(a);
  refill(a, [...list.slice(0, from), ...more, ...list.slice(from + n)]);
  return null;
}

function extractItems(a: Value | undefined, start: Int, count: Int): Value {
  const [from, n] = clamp(items(a).length, start, count);
  return copies(items(a).slice(from, from + n));
}

function drainItems(a: Value | undefined, start: Int, count: Int): Value {
  if (count <= 0) return new RArray([]);
  const [from, n] = clamp(items(a).length, start, count);
  return new RArray(own(a).splice(from, n));
}

function retainItems(a: Value | undefined, start: Int, count: Int): Value {
  if (items(a).length === 0 || count <= 0) return new RArray([]);
  const [from, n] = clamp(items(a).length, start, count);
  if (n === 0) return new RArray([]);
  const list = own(a);
  const drained = [...list.slice(0, from), ...list.slice(from + n)];
  refill(a, list.slice(from, from + n));
  return new RArray(drained);
}

export function arrayPartFunctions(t: NativeTable): void {
  t.def('splice', '!aiia', ([a, from, n, b]) => spliceItems(a, from as Int, n as Int, b as Value));
  t.def('splice', '!ara', ([a, r, b]) => spliceItems(a, ...startAndCount(r as Range), b as Value));
  t.def('extract', '!aii', ([a, from, n]) => extractItems(a, from as Int, n as Int));
  t.def('extract', '!ai', ([a, from]) => extractItems(a, from as Int, INT_MAX));
  t.def('extract', '!ar', ([a, r]) => extractItems(a, ...startAndCount(r as Range)));
  t.def('split', '!ai', ([a, index]) => {
    const [from] = clamp(items(a).length, index as Int, INT_MAX);
    return new RArray(own(a).splice(from));
  });
  t.def('drain', '!aii', ([a, from, n]) => drainItems(a, from as Int, n as Int));
  t.def('drain', '!ar', ([a, r]) => drainItems(a, ...startAndCount(r as Range)));
  t.def('retain', '!aii', ([a, from, n]) => retainItems(a, from as Int, n as Int));
  t.def('retain', '!ar', ([a, r]) => retainItems(a, ...startAndCount(r as Range)));
  t.defDirect('contains', 'a*', (a, value) => find(items(a), value, 0) >= 0);
  t.defDirect('index_of', 'a*', (a, value) => find(items(a), value, 0));
  t.def('index_of', 'a*i', ([a, value, from]) => {
    const [start] = clamp(items(a).length, from as Int, 0);
    return find(items(a), value as Value, start);
  });
  t.def('dedup', '!a', ([a]) => {
    const kept: Value[] = [];
    for (const item of items(a)) {
      if (kept.length === 0 || equals(kept.at(-1) as Value, item) !== true) kept.push(item);
    }
    refill(a, (a as RArray).shared ? kept.map(copyValue) : kept);
    return null;
  });
}

/** As `==` finds it; comparing what has no `==` is an error. */
function find(list: readonly Value[], value: Value, from: number): number {
  for (let i = from; i < list.length; i++) {
    const same = equals(list[i] as Value, value);
    if (same === undefined) {
      const name = `== (${typeName(list[i] as Value)}, ${typeName(value)})`;
      throw new RhaiError('ErrorFunctionNotFound', { name });
    }
    if (same) return i;
  }
  return -1;
}

const ELEMENT = { plain: 0, extras: 1, elementAt: 0 } as const;

/**
 * What a callback made of its `this` stays in the array. A callback may also reach the array by its
 * name: what it adds is not visited, so that no loop feeds itself.
 */
function keep(a: Value | undefined, i: number, { self, frozen }: Callback): void {
  if (self !== undefined && !frozen && items(a)[i] !== self) own(a)[i] = self;
}

function* mapProcess([a, f]: Value[], context: NativeContext): Process {
  const call = callMaker(context, f as Value, { caller: 'map', ...ELEMENT });
  const out: Value[] = [];
  const end = items(a).length;
  for (let i = 0; i < end && i < items(a).length; i++) {
    const callback = call(copyValue(items(a)[i] as Value), NONE, i);
    out.push(yield callback);
    keep(a, i, callback);
  }
  return new RArray(out);
}

function* filterProcess([a, f]: Value[], context: NativeContext): Process {
  const call = callMaker(context, f as Value, { caller: 'filter', ...ELEMENT });
  const out: Value[] = [];
  const end = items(a).length;
  for (let i = 0; i < end && i < items(a).length; i++) {
    const callback = call(copyValue(items(a)[i] as Value), NONE, i);
    const yes = (yield callback) === true;
    keep(a, i, callback);
    if (yes) out.push(copyValue(items(a)[i] as Value));
  }
  return new RArray(out);
}

function* forEachProcess([a, f]: Value[], context: NativeContext): Process {
  const call = callMaker(context, f as Value, { caller: 'for_each', ...ELEMENT, elementAt: -1 });
  const end = items(a).length;
  for (let i = 0; i < end && i < items(a).length; i++) {
    const callback = call(own(a)[i] as Value, NONE, i);
    yield callback;
    keep(a, i, callback);
  }
  return null;
}

function* indexProcess([a, f, from = 0]: Value[], context: NativeContext): Process {
  // A string names a function here, or else is what is looked for.
  if (typeof f === 'string' && !isFunctionName(f, context)) {
    return find(items(a), f, clamp(items(a).length, from as Int, 0)[0]);
  }
  const call = callMaker(context, f as Value, { caller: 'index_of', ...ELEMENT });
  const [start] = clamp(items(a).length, from as Int, 0);
  const end = items(a).length;
  for (let i = start; i < end && i < items(a).length; i++) {
    const callback = call(copyValue(items(a)[i] as Value), NONE, i);
    const yes = (yield callback) === true;
    keep(a, i, callback);
    if (yes) return i;
  }
  return -1;
}

function isFunctionName(name: string, context: NativeContext): boolean {
  return [0, 1, 2].some((argc) => context.isFunction(name, argc, null));
}

function* findProcess(args: Value[], context: NativeContext): Process {
  const at = yield* indexProcess(args, context);
  return (at as number) < 0 ? null : copyValue(items(args[0])[at as number] as Value);
}

function* findMapProcess([a, f, from = 0]: Value[], context: NativeContext): Process {
  const call = callMaker(context, f as Value, { caller: 'find_map', ...ELEMENT });
  const [start] = clamp(items(a).length, from as Int, 0);
  const end = items(a).length;
  for (let i = start; i < end && i < items(a).length; i++) {
    const callback = call(copyValue(items(a)[i] as Value), NONE, i);
    const value = yield callback;
    keep(a, i, callback);
    if (value !== null) return value;
  }
  return null;
}

function testProcess(caller: string, stopOn: boolean) {
  return function* ([a, f]: Value[], context: NativeContext): Process {
    const call = callMaker(context, f as Value, { caller, ...ELEMENT });
    const end = items(a).length;
    for (let i = 0; i < end && i < items(a).length; i++) {
      const callback = call(copyValue(items(a)[i] as Value), NONE, i);
      const yes = (yield callback) === true;
      keep(a, i, callback);
      if (yes === stopOn) return stopOn;
    }
    return !stopOn;
  };
}

function reduceProcess(caller: string, backwards: boolean) {
  return function* ([a, f, initial = null]: Value[], context: NativeContext): Process {
    const call = callMaker(context, f as Value, { caller, plain: 1, extras: 1, elementAt: 1 });
    const { length } = items(a);
    let result: Value = initial;
    for (let n = 0; n < length; n++) {
      const i = backwards ? length - 1 - n : n;
      if (i >= items(a).length) continue;
      const callback = call(copyValue(items(a)[i] as Value), [result], i);
      result = yield callback;
      keep(a, i, callback);
    }
    return result;
  };
}

function partProcess(caller: string, takes: boolean) {
  return function* ([a, f]: Value[], context: NativeContext): Process {
    const call = callMaker(context, f as Value, { caller, ...ELEMENT });
    const kept: Value[] = [];
    const taken: Value[] = [];
    const list = own(a).slice();
    for (let i = 0; i < list.length; i++) {
      const callback = call(list[i] as Value, NONE, i);
      const yes = (yield callback) === true;
      const item = callback.self === undefined ? (list[i] as Value) : callback.self;
      if (yes === takes) taken.push(item);
      else kept.push(item);
      refill(a, [...kept, ...list.slice(i + 1)]);
    }
    refill(a, kept);
    return new RArray(taken);
  };
}

function* zipProcess([a, b, f]: Value[], context: NativeContext): Process {
  const call = callMaker(context, f as Value, {
    caller: 'zip',
    plain: 2,
    extras: 1,
    elementAt: -1,
  });
  const out: Value[] = [];
  const n = Math.min(items(a).length, items(b).length);
  for (let i = 0; i < n; i++) {
    const pair = [copyValue(items(a)[i] as Value), copyValue(items(b)[i] as Value)];
    out.push(yield call(undefined, pair, i));
  }
  return new RArray(out);
}

function* dedupProcess([a, f]: Value[], context: NativeContext): Process {
  const fn = typeof f === 'string' ? context.functionPointer(f) : (f as FnPtr);
  const kept: Value[] = [];
  for (const item of own(a)) {
    const last = kept.at(-1);
    if (last !== undefined) {
      const pair = [copyValue(last), copyValue(item)];
      if ((yield new Callback(fn, pair, undefined, null, true)) === true) continue;
    }
    kept.push(item);
  }
  refill(a, kept);
  return null;
}

export function arrayCallbackFunctions(t: NativeTable): void {
  // As in the original: on constants, these two take no function by its name.
  t.defProcess('map', '&aF !as', mapProcess);
  t.defProcess('filter', '&aF !as', filterProcess);
  t.defProcess('for_each', '!aF', forEachProcess);
  t.defProcess('index_of', '&aF &aFi &as &asi', indexProcess);
  t.defProcess('find', '&aF &aFi', findProcess);
  t.defProcess('find_map', '&aF &aFi', findMapProcess);
  t.defProcess('some', '&aF &as', testProcess('some', true));
  t.defProcess('all', '&aF &as', testProcess('all', false));
  t.defProcess('reduce', '&aF &aF* &as &as*', reduceProcess('reduce', false));
  t.defProcess('reduce_rev', '&aF &aF* &as &as*', reduceProcess('reduce_rev', true));
  t.defProcess('drain', '!aF', partProcess('drain', true));
  t.defProcess('retain', '!aF', partProcess('retain', false));
  t.defProcess('zip', 'aaF', zipProcess);
  t.defProcess('dedup', '!aF !as', dedupProcess);
  t.defProcess('sort sort_by', '!aF', function* ([a, f]) {
    refill(a, yield* stableSort(own(a), f as FnPtr));
    return null;
  });
  t.defProcess('order order_by', '!aF', function* ([a, f]) {
    return new RArray(yield* stableSort(items(a).map(copyValue), f as FnPtr));
  });
  t.def('sort', '!a', ([a]) => {
    refill(a, sortPlain(own(a), 1));
    return null;
  });
  t.def('sort_desc', '!a', ([a]) => {
    refill(a, sortPlain(own(a), -1));
    return null;
  });
  t.def('order', '!a', ([a]) => new RArray(sortPlain(items(a).map(copyValue), 1)));
  t.def('order_desc', '!a', ([a]) => new RArray(sortPlain(items(a).map(copyValue), -1)));
}

/** What a comparer said: positive means the first belongs behind. */
function verdict(result: Value): number {
  if (typeof result === 'number' || typeof result === 'bigint') return Number(result);
  if (typeof result === 'boolean') return result ? -1 : 1;
  return 0;
}

type Sorting = Generator<Callback, Value[], Value>;

/** Up to here the original inserts; how often and about what it asks can be seen. */
const INSERTED_MAX = 20;

/** Stable, stops at each comparison, and ends whatever the comparer says. */
function stableSort(list: readonly Value[], fn: FnPtr): Sorting {
  return list.length <= INSERTED_MAX ? insertionSort(list, fn) : mergeSort(list, fn);
}

/** Does the first belong before the second? */
function* isBefore(fn: FnPtr, a: Value, b: Value): Generator<Callback, boolean, Value> {
  const pair = [copyValue(a), copyValue(b)];
  return verdict(yield new Callback(fn, pair, undefined, null, true)) < 0;
}

function* insertionSort(list: readonly Value[], fn: FnPtr): Sorting {
  const out = list.slice();
  for (let i = 1; i < out.length; i++) {
    const item = out[i] as Value;
    let at = i;
    while (at > 0 && (yield* isBefore(fn, item, out[at - 1] as Value))) {
      out[at] = out[at - 1] as Value;
      at--;
    }
    out[at] = item;
  }
  return out;
}

function* mergeSort(list: readonly Value[], fn: FnPtr): Sorting {
  let from = list.slice();
  let to = list.slice();
  for (let width = 1; width < from.length; width *= 2) {
    for (let start = 0; start < from.length; start += 2 * width) {
      const middle = Math.min(start + width, from.length);
      const end = Math.min(start + 2 * width, from.length);
      let i = start;
      let j = middle;
      for (let k = start; k < end; k++) {
        // Asked this way round, as the original does: it shows with comparers that are no order.
        const left =
          j >= end || (i < middle && !(yield* isBefore(fn, from[j] as Value, from[i] as Value)));
        to[k] = (left ? from[i++] : from[j++]) as Value;
      }
    }
    [from, to] = [to, from];
  }
  return from;
}

/** In place: equal integers cannot be told apart, so that the order need not be stable. */
function sortNumbers(list: Value[], direction: 1 | -1): Value[] {
  let min = Number.POSITIVE_INFINITY;
  let max = Number.NEGATIVE_INFINITY;
  for (let i = 0; i < list.length; i++) {
    const n = list[i] as number;
    if (n < min) min = n;
    if (n > max) max = n;
  }
  const narrow = max - min <= 0xffff_ffff;
  // Near each other, their distances from the least are sorted instead, digit by digit.
  const offset = narrow ? min : 0;
  let numbers: Float64Array | Uint32Array = new (narrow ? Uint32Array : Float64Array)(list.length);
  for (let i = 0; i < list.length; i++) numbers[i] = (list[i] as number) - offset;
  if (narrow) numbers = radixSort(numbers as Uint32Array, max - min);
  else numbers.sort();
  const last = list.length - 1;
  for (let i = 0; i <= last; i++) {
    list[direction > 0 ? i : last - i] = (numbers[i] as number) + offset;
  }
  return list;
}

const DIGIT_BITS = 11;
const DIGITS = 1 << DIGIT_BITS;

function radixSort(numbers: Uint32Array, max: number): Uint32Array {
  let from: Uint32Array = numbers;
  let to: Uint32Array = new Uint32Array(numbers.length);
  for (let shift = 0; shift < 32 && 2 ** shift <= max; shift += DIGIT_BITS) {
    const ends = new Uint32Array(DIGITS + 1);
    for (let i = 0; i < from.length; i++) {
      const next = (((from[i] as number) >>> shift) & (DIGITS - 1)) + 1;
      ends[next] = (ends[next] as number) + 1;
    }
    for (let d = 1; d < DIGITS; d++) ends[d] = (ends[d] as number) + (ends[d - 1] as number);
    for (let i = 0; i < from.length; i++) {
      const n = from[i] as number;
      const digit = (n >>> shift) & (DIGITS - 1);
      const at = ends[digit] as number;
      to[at] = n;
      ends[digit] = at + 1;
    }
    [from, to] = [to, from];
  }
  return from;
}

/** The built-in order, for arrays of one orderable type. The list is the caller's own. */
function sortPlain(list: Value[], direction: 1 | -1): Value[] {
  if (list.length <= 1) return list;
  if (list.every((item) => typeof item === 'number')) return sortNumbers(list, direction);
  const type = typeName(list[0] as Value);
  if (list.some((item) => typeName(item) !== type)) {
    const name = 'elements of different types cannot be sorted';
    throw new RhaiError('ErrorFunctionNotFound', { name });
  }
  if (!['i64', 'char', 'f64', 'string', 'bool', '()'].includes(type)) {
    const name = `elements of ${type} cannot be sorted`;
    throw new RhaiError('ErrorFunctionNotFound', { name });
  }
  return list.toSorted((x, y) => direction * (order(x, y) ?? 0));
}
