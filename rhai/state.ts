/**
 * The state of a machine between instructions: registers, frames, scopes, modules, counters. The
 * dispatch loop is machine.ts, what calls and errors do with frames frames.ts and calls.ts, names
 * and modules names.ts; all of them are functions over this.
 */
import { type FnProto, type Library, positionAt } from './bytecode.ts';
import { NO_POSITION, type Position, RhaiError } from './errors.ts';
import type { Settings } from './limits.ts';
import { MissingReads } from './missing.ts';
import type { Callback, NativeContext, NativeTable } from './natives.ts';
import { dataSizes, Measure, ownSize } from './sizes.ts';
import { functionKey } from './parse-functions.ts';
import { Cell, FnPtr, type HostObject, type Int, type Value } from './values.ts';
import type { Suspend } from './suspend.ts';
import { isIdentifier, isReserved, KEYWORDS } from './tokens.ts';

/** Beyond so many nested values a value is too large without being measured to its end. */
const MEASURED_STEPS_MAX = 16_777_216;

/** A variable that is found by name: of the host's scope, of an eval, of a captured scope. */
export interface ScopeVariable {
  readonly name: string;
  readonly cell: Cell;
  constant: boolean;
  /** Where in the code an eval added it. */
  readonly at?: number;
}

/** Variables by name, the last one wins. New ones of an eval go to `additions` too. */
export class NameScope {
  readonly variables: ScopeVariable[];
  readonly additions: ScopeVariable[] | null;
  constructor(variables: ScopeVariable[], additions: ScopeVariable[] | null = null) {
    this.variables = variables;
    this.additions = additions;
  }

  find(name: string): ScopeVariable | null {
    for (let i = this.variables.length - 1; i >= 0; i--) {
      const variable = this.variables[i] as ScopeVariable;
      if (variable.name === name) return variable;
    }
    return null;
  }
}

export class Module {
  readonly path: string;
  readonly library: Library;
  readonly variables: ReadonlyMap<string, Value>;
  /** The modules it imported itself, in order. */
  readonly imports: readonly Import[];
  constructor(
    path: string,
    library: Library,
    variables: ReadonlyMap<string, Value>,
    imports: readonly Import[],
  ) {
    this.path = path;
    this.library = library;
    this.variables = variables;
    this.imports = imports;
  }
}

export interface Import {
  readonly alias: string;
  readonly module: Module;
}

export type FrameKind = 'main' | 'fn' | 'called' | 'eval' | 'import' | 'native';

export class Frame {
  kind: FrameKind = 'fn';
  proto: FnProto | null = null;
  process: Generator<Callback, Value, Value> | null = null;
  /** The call this process waits for. */
  callback: Callback | null = null;
  pc = 0;
  bp = 0;
  /** The caller's register for the result: relative for plain frames, absolute for the others, -1 none. */
  dst = 0;
  /** Returns into a script frame just below. */
  plain = true;
  outer: NameScope | null = null;
  extras: ScopeVariable[] | null = null;
  imports = 0;
  level = 0;
  /** `this` is a constant. */
  frozen = false;
  exports: { readonly alias: string; readonly register: number }[] | null = null;
  /** Registers to write back from cells when a capture call returns. */
  captures: { readonly register: number; readonly cell: Cell }[] | null = null;
  /** The path of an import, the alias it gets. */
  path = '';
  alias = '';
}

export interface Waiting {
  readonly payload: unknown;
  readonly position: Position;
  /** Absolute register for the answer; -1: it goes to the process on top. */
  readonly dst: number;
}

export interface EngineSide {
  readonly settings: Settings;
  readonly natives: NativeTable;
  getter(
    type: string,
  ): ((self: HostObject, property: string) => Value | Suspend | undefined) | null;
  /** The code of an eval; the original refuses functions in it, closures too. */
  compileEval(
    source: string,
    parent: Library,
    names: Iterable<string>,
    functions: boolean,
  ): FnProto;
  /** `debug`: with stop points, as the script that imports it. */
  compileModule(source: string, path: string, debug: boolean): FnProto;
  parseJson(text: string, hasNull: boolean): Value;
}

export type Stop =
  | { readonly state: 'done'; readonly value: Value }
  | { readonly state: 'failed'; readonly error: RhaiError }
  | { readonly state: 'suspended'; readonly payload: unknown; readonly position: Position }
  | { readonly state: 'paused'; readonly position: Position; readonly reason: string }
  | { readonly state: 'sliced' };

/** Ends the whole script with a value. */
export class ExitSignal {
  readonly value: Value;
  constructor(value: Value) {
    this.value = value;
  }
}

/** Asked at each statement of a script compiled for debugging; true pauses. */
export type StatementHook = (line: number, depth: number) => string | null;

export class MachineState implements NativeContext {
  readonly engine: EngineSide;
  readonly settings: Settings;
  readonly natives: NativeTable;
  readonly checksSize: boolean;
  readonly regs: Value[] = [];
  readonly frames: Frame[] = [];
  /** Index of the top frame. */
  depth = -1;
  ops = 0;
  /** Operations at which the loop must look up. */
  stopAt = Number.POSITIVE_INFINITY;
  sliceEnd = Number.POSITIVE_INFINITY;
  progressAt = Number.POSITIVE_INFINITY;
  outcome: Stop | null = null;
  finished: Stop | null = null;
  waiting: Waiting | null = null;
  frozen = false;
  pendingError: RhaiError | null = null;
  faultPc = 0;
  faultFrame: Frame | null = null;
  /** Where values that are missing came from, for hints. */
  readonly missing = new MissingReads();
  /** Texts appended to since one was last laid out anew. */
  appends = 0;
  readonly scope: NameScope;
  imports: Import[] = [];
  readonly modules = new Map<string, Module>();
  readonly moduleOf = new Map<Library, Module>();
  readonly globals = new Map<Library, Map<string, Value>>();
  readonly locks: { readonly cell: Cell; readonly depth: number }[] = [];
  /** A function of the script to call when its body has run. */
  afterMain: { readonly name: string; readonly args: readonly Value[] } | null = null;
  /** False once the script's outermost variables no longer belong to the scope. */
  keepsGlobals = true;
  moduleCount = 0;
  hook: StatementHook | null = null;
  /** Statement the debugger has already stopped at. */
  steppedAt = -1;
  private total = 0;
  private readonly measure = new Measure();

  constructor(engine: EngineSide, scope: NameScope) {
    this.engine = engine;
    this.settings = engine.settings;
    this.natives = engine.natives;
    this.scope = scope;
    const { maxStringSize, maxArraySize, maxMapSize, maxTotalSize, onProgress } = engine.settings;
    this.checksSize = maxStringSize + maxArraySize + maxMapSize + maxTotalSize > 0;
    if (onProgress) this.progressAt = 1;
  }

  get top(): Frame {
    return this.frames[this.depth] as Frame;
  }

  /** Where the call being executed stands. */
  get position(): Position {
    for (let i = this.depth; i >= 0; i--) {
      const frame = this.frames[i] as Frame;
      if (frame.proto !== null) return positionAt(frame.proto, Math.max(frame.pc - 1, 0));
    }
    return NO_POSITION;
  }

  updateStop(): void {
    const { maxOperations } = this.settings;
    const limit = maxOperations > 0 ? maxOperations : Number.POSITIVE_INFINITY;
    // The loop looks up when `ops > stopAt`; a slice ends at the first look after its length.
    this.stopAt = Math.min(limit, this.sliceEnd - 1, this.progressAt - 1);
  }

  charge(operations: number): void {
    this.ops += operations;
    if (this.ops > this.stopAt) this.overBudget();
  }

  /** Operations went past `stopAt`: a limit, the host's progress hook, or only a slice. */
  overBudget(): void {
    const { maxOperations, onProgress } = this.settings;
    if (maxOperations > 0 && this.ops > maxOperations) {
      throw new RhaiError('ErrorTooManyOperations');
    }
    if (onProgress && this.ops >= this.progressAt) {
      this.progressAt = this.ops + 4096;
      this.updateStop();
      if (onProgress(this.ops)) throw new RhaiError('ErrorTerminated', { value: null });
    }
  }

  checkSize(value: Value): void {
    const { maxStringSize, maxArraySize, maxMapSize, maxTotalSize } = this.settings;
    // UTF-8 takes at most three bytes a unit: most strings need no count.
    if (typeof value === 'string' && maxTotalSize === 0) {
      if (maxStringSize === 0 || value.length * 3 <= maxStringSize) return;
    }
    if (typeof value !== 'string' && (typeof value !== 'object' || value === null)) return;
    const measured = this.measure.of(value, this.ops);
    const sizes = measured ?? ownSize(value);
    const tooLarge = (name: string): RhaiError => new RhaiError('ErrorDataTooLarge', { name });
    if (maxStringSize > 0 && sizes.text > maxStringSize) throw tooLarge('Length of string');
    if (maxArraySize > 0 && sizes.items > maxArraySize) throw tooLarge('Size of array/BLOB');
    if (maxMapSize > 0 && sizes.entries > maxMapSize) throw tooLarge('Size of object map');
    if (maxTotalSize > 0 && measured !== undefined) {
      this.total += sizes.text + (sizes.items + sizes.entries) * 16;
      if (this.total > maxTotalSize) this.countTotal(tooLarge);
    }
  }

  /** What all live values amount to: counted again only when the running sum passes the limit. */
  private countTotal(tooLarge: (name: string) => RhaiError): void {
    let total = 0;
    const top = this.top;
    const end = top.bp + (top.proto?.registers ?? 0);
    for (let i = 0; i < end && i < this.regs.length; i++) {
      const value = this.regs[i] as Value | Cell | undefined;
      const inner = value instanceof Cell ? value.value : value;
      if (typeof inner === 'string' || (typeof inner === 'object' && inner !== null)) {
        const sizes = dataSizes(inner as Value, MEASURED_STEPS_MAX);
        if (sizes === undefined) throw tooLarge('Data of the script');
        total += sizes.text + (sizes.items + sizes.entries) * 16;
      }
    }
    this.total = total;
    if (total > this.settings.maxTotalSize) throw tooLarge('Data of the script');
  }

  arities(fn: FnPtr): number[] {
    const curried = fn.curry.length;
    if (fn.fn) return [fn.fn.arity - curried];
    const found = new Set<number>();
    for (let l = fn.library; l; l = l.parent) {
      for (const proto of l.functions.values()) {
        if (proto.name === fn.name) found.add(proto.arity - curried);
      }
    }
    // A native function takes `this` as its first argument.
    for (const n of this.natives.arities(fn.name)) found.add(n - 1 - curried);
    return [...found];
  }

  isFunction(name: string, argc: Int, thisType: string | null): boolean {
    const type = thisType === 'int' ? 'i64' : thisType === 'float' ? 'f64' : thisType;
    const key = functionKey(name, Number(argc), type);
    return this.frames.slice(0, this.depth + 1).some((f) => f.proto?.library.find(key));
  }

  parseJson(text: string): Value {
    return this.engine.parseJson(text, true);
  }

  functionPointer(name: string): FnPtr {
    if (!isIdentifier(name) || isReserved(name) || KEYWORDS.has(name)) {
      if (isReserved(name) || KEYWORDS.has(name)) {
        const message = `'${name}' is a reserved keyword`;
        throw new RhaiError('ErrorParsing', { name: message, parse: 'Reserved' });
      }
      throw new RhaiError('ErrorFunctionNotFound', { name });
    }
    for (let i = this.depth; i >= 0; i--) {
      const { proto } = this.frames[i] as Frame;
      if (proto !== null) return new FnPtr(name, [], null, proto.library);
    }
    return new FnPtr(name);
  }
}
