/** Functions of every type: text, print and debug, type_of, tags, exit; function pointers; time. */
import { arithmeticError, mismatch, RhaiError } from '../errors.ts';
import type { NativeTable } from '../natives.ts';
import { ExitSignal } from '../state.ts';
import { debugText, displayText } from '../text.ts';
import {
  Char,
  copyValue,
  Float,
  type Int,
  type FnPtr,
  FnPtr as FnPtrClass,
  RArray,
  Range,
  Timestamp,
  typeName,
  type Value,
} from '../values.ts';

export function property(
  t: NativeTable,
  name: string,
  signatures: string,
  get: (self: Value) => Value,
): void {
  t.defDirect(name, signatures, get);
  t.defDirect(`get$${name}`, signatures, get);
}

/**
 * What `set_tag` put on a value: on the value of one variable, not on all that are equal to it.
 * Units, booleans, integers and strings keep none, since their values here are JavaScript's own.
 */
const TAGS = new WeakMap<object, Int>();

function tagOf(value: Value): Int {
  return typeof value === 'object' && value !== null ? (TAGS.get(value) ?? 0) : 0;
}

/** The value as one of its own: what cannot change may be in many places at once. */
function apart(value: Value & object): Value & object {
  if (value instanceof Float) return new Float(value.value);
  if (value instanceof Char) return new Char(value.text);
  if (value instanceof Range) return new Range(value.start, value.end, value.inclusive);
  if (value instanceof Timestamp) return new Timestamp(value.seconds);
  if (value instanceof FnPtrClass) {
    return new FnPtrClass(value.name, value.curry, value.fn, value.library);
  }
  return value;
}

function setTag(args: Value[]): Value {
  const [value, tag] = args as [Value, Int];
  if (tag < -2147483648 || tag > 2147483647) {
    const size = tag < 0 ? 'small' : 'large';
    throw arithmeticError(
      `${tag} is too ${size} to fit into a tag (must be between -2147483648 and 2147483647)`,
    );
  }
  if (typeof value === 'object' && value !== null) {
    const tagged = apart(value);
    TAGS.set(tagged, tag);
    args[0] = tagged;
  }
  return null;
}

/** What the original cannot do without: there even in a raw engine. */
export function coreFunctions(t: NativeTable): void {
  t.def('type_of', '*', ([value]) => typeName(value as Value));
  t.def('is_shared', '*', () => false);
  t.def('Fn', '*', ([name]) => {
    throw mismatch('string', typeName(name as Value));
  });
  t.def('is_def_fn', '** ***', (args) => {
    const wrong = args.slice(0, -1).find((arg) => typeof arg !== 'string');
    if (wrong !== undefined) throw mismatch('string', typeName(wrong));
    throw mismatch('i64', typeName(args.at(-1) as Value));
  });
  t.def('is_def_fn', 'si', ([name, argc], context) =>
    context.isFunction(name as string, argc as Int, null),
  );
  t.def('is_def_fn', 'ssi', ([type, name, argc], context) =>
    context.isFunction(name as string, argc as Int, type as string),
  );
  t.def('Fn', 's', ([name], context) => context.functionPointer(name as string));
  for (let extra = 1; extra <= 16; extra++) {
    t.def('curry', '*'.repeat(extra + 1), ([fn]) => {
      throw mismatch('Fn', typeName(fn as Value));
    });
    t.def('curry', `F${'*'.repeat(extra)}`, ([fn, ...more]) => {
      const { name, curry, fn: proto, library } = fn as FnPtr;
      return new FnPtrClass(name, [...curry, ...more.map(copyValue)], proto, library);
    });
  }
  t.def('curry', 'F', ([fn]) => fn as Value);
  t.def('!', 'b', ([value]) => !value);
}

export function textFunctions(t: NativeTable): void {
  t.def('to_string', '*', ([value]) => displayText(value as Value));
  t.def('to_debug', '*', ([value]) => debugText(value as Value));
  t.def('print', '* -', ([value = ''], context) => {
    context.settings.onPrint(displayText(value), context.position);
    return null;
  });
  t.def('debug', '* -', (args, context) => {
    const [value] = args;
    const text = args.length === 0 ? '' : debugText(value as Value);
    context.settings.onDebug(text, context.position);
    return null;
  });
}

export function languageFunctions(t: NativeTable): void {
  t.def('exit', '* -', ([value = null]) => {
    throw new ExitSignal(value);
  });
  t.def('take', '!*', (args) => {
    const value = args[0] as Value;
    args[0] = null;
    return value;
  });
  property(t, 'tag', '*', tagOf);
  t.def('set_tag set$tag', '!*i', setTag);
  t.def('sleep', 'n', () => {
    throw new RhaiError('ErrorRuntime', { value: 'sleep is not available' });
  });
  t.def('get_fn_metadata_list', '- s si', () => new RArray([]));
  property(t, 'name', 'F', (fn) => (fn as FnPtr).name);
  property(t, 'is_anonymous', 'F', (fn) => (fn as FnPtr).name.startsWith('anon$'));
}

export function timeFunctions(t: NativeTable): void {
  const now = (clock: (() => number) | undefined): number => {
    if (!clock) {
      throw new RhaiError('ErrorRuntime', { value: 'timestamp: this engine has no clock' });
    }
    return clock();
  };
  t.def('timestamp', '-', (_args, { settings }) => new Timestamp(now(settings.clock)));
  for (const name of ['elapsed', 'get$elapsed']) {
    t.def(name, 't', ([time], { settings }) => {
      const seconds = now(settings.clock) - (time as Timestamp).seconds;
      if (seconds < 0) throw arithmeticError('Time-stamp is later than now');
      return new Float(seconds);
    });
  }
}
