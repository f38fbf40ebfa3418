/** Object maps. Iteration is always in the order of the keys. */
import type { Callback, NativeContext, NativeTable } from '../natives.ts';
import { mapToJson } from '../json.ts';
import { sortedKeys } from '../text.ts';
import { copyValue, ownEntries, RArray, RMap, type Value } from '../values.ts';
import { callMaker } from './callbacks.ts';

type Process = Generator<Callback, Value, Value>;

const entries = (value: Value | undefined): Map<string, Value> => (value as RMap).items;
const own = (value: Value | undefined): Map<string, Value> => ownEntries(value as RMap);

function refill(target: Value | undefined, items: Map<string, Value>): void {
  const map = target as RMap;
  map.items = items;
  map.shared = false;
}

function mixin(target: Value | undefined, more: Value | undefined): Value {
  const added = [...entries(more)];
  const map = own(target);
  for (const [key, value] of added) map.set(key, copyValue(value));
  return null;
}

const SHAPE = { plain: 1, extras: 0, elementAt: 1 } as const;

/** What a callback made of its `this` stays in the map. */
function keep(m: Value | undefined, key: string, { self, frozen }: Callback): void {
  if (self !== undefined && !frozen && entries(m).get(key) !== self) own(m).set(key, self);
}

function* mapProcess([m, f]: Value[], context: NativeContext): Process {
  const call = callMaker(context, f as Value, { caller: 'filter', ...SHAPE });
  const out = new Map<string, Value>();
  for (const key of sortedKeys(entries(m).keys())) {
    const callback = call(copyValue(entries(m).get(key) as Value), [key]);
    out.set(key, yield callback);
    keep(m, key, callback);
  }
  return new RMap(out);
}

function* filterProcess([m, f]: Value[], context: NativeContext): Process {
  const call = callMaker(context, f as Value, { caller: 'filter', ...SHAPE });
  const out = new Map<string, Value>();
  for (const key of sortedKeys(entries(m).keys())) {
    const callback = call(copyValue(entries(m).get(key) as Value), [key]);
    const yes = (yield callback) === true;
    keep(m, key, callback);
    if (yes) out.set(key, copyValue(entries(m).get(key) as Value));
  }
  return new RMap(out);
}

/** `drain` and `retain`: what was taken out is the result. */
function partProcess(caller: string, takes: boolean) {
  return function* ([m, f]: Value[], context: NativeContext): Process {
    const call = callMaker(context, f as Value, { caller, ...SHAPE });
    const taken = new Map<string, Value>();
    const all = own(m);
    for (const key of sortedKeys(all.keys())) {
      const callback = call(all.get(key) as Value, [key]);
      const yes = (yield callback) === true;
      const value = callback.self === undefined ? (all.get(key) as Value) : callback.self;
      if (yes === takes) {
        taken.set(key, value);
        own(m).delete(key);
      } else own(m).set(key, value);
    }
    return new RMap(taken);
  };
}

export function mapFunctions(t: NativeTable): void {
  t.def('len', 'm', ([m]) => entries(m).size);
  t.def('is_empty', 'm', ([m]) => entries(m).size === 0);
  t.def('contains', 'ms', ([m, key]) => entries(m).has(key as string));
  t.def('get', 'ms', ([m, key]) => copyValue(entries(m).get(key as string) ?? null));
  t.def('set', '!ms*', ([m, key, value]) => {
    own(m).set(key as string, value as Value);
    return null;
  });
  t.def('clear', '!m', ([m]) => {
    refill(m, new Map());
    return null;
  });
  t.def('remove', '!ms', ([m, key]) => {
    const value = entries(m).get(key as string);
    if (value === undefined) return null;
    const map = own(m);
    const kept = map.get(key as string) as Value;
    map.delete(key as string);
    return kept;
  });
  t.def('mixin', '!mm', ([m, more]) => mixin(m, more));
  t.def('fill_with', '!mm', ([m, more]) => {
    const map = own(m);
    for (const [key, value] of entries(more)) if (!map.has(key)) map.set(key, copyValue(value));
    return null;
  });
  t.def('keys', 'm', ([m]) => new RArray(sortedKeys(entries(m).keys())));
  t.def('values', 'm', ([m]) => {
    const map = entries(m);
    return new RArray(sortedKeys(map.keys()).map((key) => copyValue(map.get(key) as Value)));
  });
  t.def('to_json', 'm', ([m]) => mapToJson(m as RMap));
  t.def('parse_json', 's', ([text], context) => context.parseJson(text as string));
  t.defProcess('map', '&mF', mapProcess);
  t.defProcess('filter', '&mF', filterProcess);
  t.defProcess('drain', '!mF', partProcess('drain', true));
  t.defProcess('retain', '!mF', partProcess('retain', false));
}
