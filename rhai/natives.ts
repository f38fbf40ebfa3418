/**
 * Native functions: how the standard library declares them, how hosts' functions join them, and how
 * a call finds the one whose parameter types fit.
 *
 * A signature is one letter a parameter: u unit, b bool, i int, f float, c char, s string, a array,
 * m map, B blob, r range, F function pointer, t timestamp, h host object, n int or float, * any.
 * A leading `!` says that the function changes its first argument (`args[0]` is the new value), a
 * leading `&` that its callbacks may change the elements in place.
 */
import type { Position } from './errors.ts';
import type { Settings } from './limits.ts';
import {
  Char,
  type Cell,
  Float,
  FnPtr,
  type Int,
  RArray,
  Range,
  RBlob,
  RMap,
  Timestamp,
  type Value,
} from './values.ts';

/** What a native function may use of the machine that runs it. */
export interface NativeContext {
  readonly settings: Settings;
  readonly position: Position;
  /** The receiver is a constant: callbacks must not change its elements. */
  readonly frozen: boolean;
  /** Fails with ErrorDataTooLarge when the value is over a limit. */
  checkSize(value: Value): void;
  /** A function pointer to what the name means where the call stands. */
  functionPointer(name: string): FnPtr;
  /** How many arguments, besides the curried ones and `this`, a function pointer could take. */
  arities(fn: FnPtr): number[];
  /** Is there a script function of that name and arity? */
  isFunction(name: string, argc: Int, thisType: string | null): boolean;
  /** The value of JSON text, as parse_json gives it. */
  parseJson(text: string): Value;
  /** Counts work a native function does. */
  charge(operations: number): void;
}

/** Asks the machine to call a function; what comes back is in `result` and `self`. */
export class Callback {
  readonly fn: FnPtr;
  readonly args: (Value | Cell)[];
  /** The receiver, when there is one; afterwards its possibly changed value. */
  self: Value | undefined;
  /** Errors come back wrapped as errors in this function. */
  readonly wrap: string | null;
  /** Errors count as the result unit. */
  readonly swallow: boolean;
  /** The receiver must not be changed. */
  readonly frozen: boolean;
  constructor(
    fn: FnPtr,
    args: (Value | Cell)[],
    self: Value | undefined,
    wrap: string | null = null,
    swallow = false,
    frozen = false,
  ) {
    this.fn = fn;
    this.args = args;
    this.self = self;
    this.wrap = wrap;
    this.swallow = swallow;
    this.frozen = frozen;
  }
}

export type NativeCode = (args: Value[], context: NativeContext) => Value;
/** A native function that calls back: it yields the calls and gets their results. */
export type NativeProcess = (
  args: Value[],
  context: NativeContext,
) => Generator<Callback, Value, Value>;

/** The code of a function of one or two arguments that needs no more than them, spared the list. */
export type DirectCode = (self: Value, arg: Value) => Value;

export interface NativeFn {
  readonly name: string;
  readonly masks: readonly number[];
  readonly mutates: boolean;
  /** Its callbacks may change the elements of its first argument. */
  readonly lends: boolean;
  readonly code: NativeCode | null;
  /** Where it is there: the same as `code`; the receiver is changed in place. */
  readonly direct: DirectCode | null;
  readonly process: NativeProcess | null;
  /** Registered by the host: may suspend. */
  readonly host: boolean;
}

const LETTERS: Record<string, number> = {
  u: 1,
  b: 2,
  i: 4,
  f: 8,
  n: 12,
  c: 16,
  s: 32,
  a: 64,
  m: 128,
  B: 256,
  r: 512,
  F: 1024,
  t: 2048,
  h: 4096,
  '*': 8191,
};

export function masksOf(signature: string): number[] {
  return Array.from(signature).map((letter) => {
    const mask = LETTERS[letter];
    if (mask === undefined) throw new TypeError(`no such type letter: ${letter}`);
    return mask;
  });
}

const TYPE_NAMES: readonly (readonly [letter: string, name: string])[] = [
  ['u', '()'],
  ['b', 'bool'],
  ['i', 'i64'],
  ['f', 'f64'],
  ['c', 'char'],
  ['s', 'string'],
  ['a', 'array'],
  ['m', 'map'],
  ['B', 'blob'],
  ['r', 'range'],
  ['F', 'Fn'],
  ['t', 'timestamp'],
];

/** A parameter's types as type_of names them, `i64|f64`; `any` for all. */
export function typesOfMask(mask: number): string {
  if (mask === LETTERS['*']) return 'any';
  return TYPE_NAMES.filter(([letter]) => (mask & (LETTERS[letter] as number)) !== 0)
    .map(([, name]) => name)
    .join('|');
}

export function maskOf(value: Value): number {
  switch (typeof value) {
    case 'number':
    case 'bigint':
      return 4;
    case 'string':
      return 32;
    case 'boolean':
      return 2;
    default:
  }
  if (value === null) return 1;
  if (value instanceof Float) return 8;
  if (value instanceof RArray) return 64;
  if (value instanceof RMap) return 128;
  if (value instanceof Char) return 16;
  if (value instanceof RBlob) return 256;
  if (value instanceof Range) return 512;
  if (value instanceof FnPtr) return 1024;
  if (value instanceof Timestamp) return 2048;
  return 4096;
}

export class NativeTable {
  private readonly base: NativeTable | undefined;
  /** By name and arity; what is here stands for what the base has of them, too. */
  private readonly byKey = new Map<string, readonly NativeFn[]>();
  private readonly getters = new Map<string, readonly NativeFn[]>();
  private readonly mutating = new Set<string>();
  private readonly lending = new Set<string>();
  private readonly names = new Set<string>();

  /** Holds what another table holds, which what is added here does not reach; nothing is copied. */
  constructor(base?: NativeTable) {
    this.base = base;
  }

  /** The functions of a name and arity, the last registered first. */
  find(name: string, arity: number): readonly NativeFn[] {
    return this.atKey(`${name}/${arity}`);
  }

  private atKey(key: string): readonly NativeFn[] {
    return this.byKey.get(key) ?? this.base?.atKey(key) ?? NONE;
  }

  private *allNames(): Iterable<string> {
    if (this.base !== undefined) yield* this.base.allNames();
    for (const name of this.names) if (this.base?.has(name) !== true) yield name;
  }

  /** The getters of a property. */
  getter(property: string): readonly NativeFn[] {
    let found = this.getters.get(property);
    if (found === undefined) {
      found = this.find(`get$${property}`, 1);
      this.getters.set(property, found);
    }
    return found;
  }

  has(name: string): boolean {
    return this.names.has(name) || this.base?.has(name) === true;
  }

  /** The numbers of parameters functions of that name have. */
  arities(name: string): number[] {
    const found: number[] = [];
    for (let n = 0; n <= 20; n++) if (this.find(name, n).length > 0) found.push(n);
    return found;
  }

  /** All functions of a name, by their number of parameters. */
  formsOf(name: string): NativeFn[] {
    return this.arities(name).flatMap((n) => this.find(name, n));
  }

  /** The names that can be called. */
  callable(): string[] {
    return [...this.allNames()].filter((name) => /^[a-z]\w*$/i.test(name));
  }

  /** The properties that can be read of a type. */
  gettersOf(type: string): string[] {
    return [...this.allNames()]
      .filter((name) => name.startsWith('get$'))
      .filter((name) =>
        this.find(name, 1).some(({ masks }) => {
          const types = typesOfMask(masks[0] as number);
          return types === 'any' || types.split('|').includes(type);
        }),
      )
      .map((name) => name.slice('get$'.length));
  }

  /** Could a call change its first argument? */
  mayMutate(name: string, arity: number): boolean {
    return this.mutating.has(`${name}/${arity}`) || this.base?.mayMutate(name, arity) === true;
  }

  /** Could a call change what its first argument holds, by its callbacks? */
  mayLend(name: string, arity: number): boolean {
    return this.lending.has(`${name}/${arity}`) || this.base?.mayLend(name, arity) === true;
  }

  add(fn: NativeFn): void {
    const key = `${fn.name}/${fn.masks.length}`;
    this.getters.clear();
    this.byKey.set(key, [fn, ...this.atKey(key)]);
    this.names.add(fn.name);
    if (fn.mutates) this.mutating.add(key);
    if (fn.lends) this.lending.add(key);
  }

  /** A plain function. */
  def(names: string, signatures: string, code: NativeCode): void {
    this.each(names, signatures, (shape) =>
      this.add({ ...shape, code, direct: null, process: null, host: false }),
    );
  }

  /** A plain function that is called often, and changes its receiver at most in place. */
  defDirect(names: string, signatures: string, direct: DirectCode): void {
    const code: NativeCode = (args) => direct(args[0] as Value, args[1] as Value);
    this.each(names, signatures, (shape) =>
      this.add({ ...shape, code, direct, process: null, host: false }),
    );
  }

  /** A function that calls back. */
  defProcess(names: string, signatures: string, process: NativeProcess): void {
    this.each(names, signatures, (shape) =>
      this.add({ ...shape, code: null, direct: null, process, host: false }),
    );
  }

  private each(
    names: string,
    signatures: string,
    add: (shape: Pick<NativeFn, 'name' | 'masks' | 'mutates' | 'lends'>) => void,
  ): void {
    for (const name of names.split(' ')) {
      for (const signature of signatures.split(' ')) {
        const mutates = signature.startsWith('!');
        const lends = signature.startsWith('&');
        const letters = mutates || lends ? signature.slice(1) : signature;
        add({ name, masks: masksOf(letters === '-' ? '' : letters), mutates, lends });
      }
    }
  }
}

const NONE: readonly NativeFn[] = [];

export function fits(fn: NativeFn, args: readonly Value[]): boolean {
  const { masks } = fn;
  for (let i = 0; i < masks.length; i++) {
    if ((maskOf(args[i] as Value) & (masks[i] as number)) === 0) return false;
  }
  return true;
}
