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

/** Makes one call: the element, the plain arguments, the extra one (an index). */
type Maker = (element: Value | undefined, plain: readonly Value[], extra?: Value) => Callback;

/** No plain arguments: shared, never changed. */
export const NONE: readonly Value[] = [];

function withElement(plain: readonly Value[], at: number, element: Value): Value[] {
  if (plain.length === 0) return [element];
  if (plain.length === 1) {
    const only = plain[0] as Value;
    return at === 0 ? [element, only] : [only, element];
  }
  return plain.toSpliced(at, 0, element);
}

function withExtra(plain: readonly Value[], extra: Value | undefined): Value[] {
  return extra === undefined ? [...plain] : [...plain, extra];
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
  const { frozen } = context;
  const asThis: Maker = (element, plain) =>
    new Callback(fn, [...plain], element, wrap, false, frozen);
  // One after the other, the calls can share what they are told with.
  const args: Value[] = [];
  const shared = new Callback(fn, args, undefined, wrap);
  const moved: Maker = (element, plain) => {
    if (plain.length > 1) {
      return new Callback(fn, withElement(plain, elementAt, element as Value), undefined, wrap);
    }
    args[elementAt] = element as Value;
    if (plain.length === 1) args[1 - elementAt] = plain[0] as Value;
    shared.self = undefined;
    return shared;
  };
  const movedAll: Maker = (element, plain, extra) => {
    const args = withElement(plain, elementAt, element as Value);
    if (extra !== undefined) args.push(extra);
    return new Callback(fn, args, undefined, wrap);
  };
  const all: Maker = (element, plain, extra) =>
    new Callback(fn, withExtra(plain, extra), element, wrap, false, frozen);
  if (arities.includes(n)) return asThis;
  if (moves && arities.includes(n + 1)) return moved;
  if (moves && arities.includes(n + e + 1)) return movedAll;
  if (arities.includes(n + e)) return all;
  return moves ? movedAll : all;
}
