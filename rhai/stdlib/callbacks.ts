/**
 * How library functions call the functions scripts give them. A callback that takes fewer
 * parameters than there are values gets the element as `this`; one that takes more gets the element
 * in front, then the extras.
 */
import { Callback, type NativeContext } from '../natives.ts';
import { FnPtr, type Value } from '../values.ts';

export interface CallShape {
  /** The library function, for errors. */
  readonly caller: string;
  /** How many plain arguments and extras there are. */
  readonly plain: number;
  readonly extras: number;
  /** Where the element goes among the arguments; -1: it only ever is `this`. */
  readonly elementAt: number;
}

type Maker = (
  element: Value | undefined,
  plain: readonly Value[],
  extras: readonly Value[],
) => Callback;

function insert(list: readonly Value[], at: number, value: Value): Value[] {
  if (list.length === 0) return [value];
  if (list.length === 1) return at === 0 ? [value, list[0] as Value] : [list[0] as Value, value];
  return list.toSpliced(at, 0, value);
}

/** Decides once how the callback is to be called, then makes the calls. */
export function callMaker(context: NativeContext, given: Value, shape: CallShape): Maker {
  const { caller, plain: n, extras: e, elementAt } = shape;
  const fn = given instanceof FnPtr ? given : context.functionPointer(given as string);
  const moves = elementAt >= 0;
  const arities = context.arities(fn);
  const known = fn.fn !== null;
  const wrap =
    known &&
    arities.some((a) => a === n || a === n + e || (moves && (a === n + 1 || a === n + e + 1)))
      ? null
      : caller;
  const asThis: Maker = (element, plain) => new Callback(fn, [...plain], element, wrap);
  const moved: Maker = (element, plain) =>
    new Callback(fn, insert(plain, elementAt, element as Value), undefined, wrap);
  const movedAll: Maker = (element, plain, extras) =>
    new Callback(fn, insert([...plain, ...extras], elementAt, element as Value), undefined, wrap);
  const all: Maker = (element, plain, extras) =>
    new Callback(fn, [...plain, ...extras], element, wrap);
  if (arities.includes(n)) return asThis;
  if (moves && arities.includes(n + 1)) return moved;
  if (moves && arities.includes(n + e + 1)) return movedAll;
  if (arities.includes(n + e)) return all;
  return moves ? movedAll : all;
}
