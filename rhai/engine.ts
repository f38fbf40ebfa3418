/**
 * The door of this folder: an Engine compiles scripts and starts machines that run them.
 * Hosts import from here, json.ts, errors.ts, values.ts and conformance.ts, nothing else.
 */
import type { ImportSite } from './ast.ts';
import type { FnProto, Library } from './bytecode.ts';
import { compileScript } from './compile.ts';
import { NO_POSITION, type Position, RhaiError } from './errors.ts';
import { enterCode } from './frames.ts';
import { asError } from './returns.ts';
import { DEFAULT_SETTINGS, type Settings } from './limits.ts';
import { rejectMachine, resumeMachine, runMachine } from './machine.ts';
import { masksOf, type NativeTable } from './natives.ts';
import { optimise } from './optimise.ts';
import { parseExpression, parseScript } from './parse.ts';
import { parseError } from './parser.ts';
import { WRONG_FN_DEFINITION } from './parse-functions.ts';
import { type EngineSide, MachineState, NameScope, type Stop } from './state.ts';
import { standardLibrary } from './stdlib/standard.ts';
import type { Suspend } from './suspend.ts';
import { Cell, type HostObject, RMap, typeName, type Value } from './values.ts';

export type { ImportSite } from './ast.ts';
export type { Position } from './errors.ts';
export { hintOf, originOf, prettyError, RhaiError, runtimeError } from './errors.ts';
export type { Settings } from './limits.ts';
export type { Value } from './values.ts';
export { HostObject } from './values.ts';
export { Suspend } from './suspend.ts';

export type HostFn = (args: Value[], at: Position) => Value | Suspend;

export interface HostType {
  readonly name: string;
  get?(self: HostObject, property: string): Value | Suspend | undefined;
}

export interface ScopeEntry {
  readonly name: string;
  readonly value: Value;
  readonly constant?: boolean;
}

/** `paused` only comes from scripts compiled for debugging. */
export type Outcome = Stop;

export interface Machine {
  /** Runs about that many operations at most, then {state:'sliced'}: call run again to go on. */
  run(maxOperations?: number): Outcome;
  /** After 'suspended': the call's result; then run(). */
  resume(value: Value): void;
  /** After 'suspended': the call throws. */
  reject(error: RhaiError): void;
}

/** A compiled script. */
export class Program {
  readonly source: string;
  readonly main: FnProto;
  constructor(source: string, main: FnProto) {
    this.source = source;
    this.main = main;
  }
}

export interface CompileOptions {
  /** Scope the script will run on: its names count in strict mode, its constants are folded. */
  readonly scope?: readonly ScopeEntry[];
  /** Stop points before each statement, for a debugger. */
  readonly debug?: boolean;
  /** A single expression instead of a script. */
  readonly expression?: boolean;
}

/** A running script. Everything beyond `Machine` is for hosts that keep a scope or debug. */
export class VirtualMachine implements Machine {
  readonly state: MachineState;
  readonly main: FnProto;

  constructor(state: MachineState, main: FnProto) {
    this.state = state;
    this.main = main;
  }

  run(maxOperations = 0): Outcome {
    return runMachine(this.state, maxOperations);
  }

  resume(value: Value): void {
    resumeMachine(this.state, value);
  }

  reject(error: RhaiError): void {
    rejectMachine(this.state, error);
  }

  /** Operations so far. */
  get operations(): number {
    return this.state.ops;
  }

  /** The scope as the script leaves it: what it was given, then the script's outermost variables. */
  scope(): ScopeEntry[] {
    return this.keepScope().variables.map(({ name, cell, constant }) => ({
      name,
      value: cell.value,
      constant,
    }));
  }

  /** The scope for a following script, captured variables still shared. */
  keepScope(): NameScope {
    const { state, main } = this;
    if (!state.keepsGlobals) return state.scope;
    const frame = state.frames[0];
    const reached = frame?.pc ?? 0;
    const declared = main.globals.filter(
      (g) => g.start <= reached && state.regs[g.slot] !== undefined,
    );
    const own = declared
      .filter((g) => declared.find((other) => other.slot === g.slot) === g)
      .map(({ name, slot, start }) => {
        const constant = declared.findLast((g) => g.slot === slot)?.constant ?? false;
        const value = state.regs[slot] as Value | Cell;
        const cell = value instanceof Cell ? value : new Cell(value);
        return { name, cell, constant, at: start };
      });
    // Variables that evals added stand between the script's own, by where they were added.
    const added = (frame?.extras ?? []).map((v) => ({ ...v, at: v.at ?? 0 }));
    const all = [...own, ...added].toSorted((a, b) => a.at - b.at);
    return new NameScope([...state.scope.variables, ...all]);
  }
}

export class Engine implements EngineSide {
  readonly settings: Settings;
  readonly natives: NativeTable;
  private readonly types = new Map<string, HostType>();

  constructor(settings: Partial<Settings> = {}) {
    this.settings = { ...DEFAULT_SETTINGS, ...settings };
    if (!this.settings.allowEval) {
      const disabledSymbols = new Set([...this.settings.disabledSymbols, 'eval']);
      this.settings = { ...this.settings, disabledSymbols };
    }
    this.natives = standardLibrary(this.settings);
  }

  /** A function of the host, for any types; methods are functions of their first argument. */
  registerFn(name: string, minArgs: number, maxArgs: number, fn: HostFn): void {
    for (let argc = minArgs; argc <= maxArgs; argc++) {
      this.natives.add({
        name,
        masks: masksOf('*'.repeat(argc)),
        mutates: false,
        lends: false,
        code: (args, context) => fn(args, context.position) as Value,
        direct: null,
        process: null,
        host: true,
      });
    }
  }

  registerType(type: HostType): void {
    this.types.set(type.name, type);
  }

  getter(
    type: string,
  ): ((self: HostObject, property: string) => Value | Suspend | undefined) | null {
    const known = this.types.get(type);
    return known?.get ? (self, property) => known.get?.(self, property) : null;
  }

  /** Throws RhaiError of kind ErrorParsing. */
  compile(source: string, options: CompileOptions | readonly ScopeEntry[] = {}): Program {
    const known: CompileOptions = 'length' in options ? { scope: options } : options;
    return new Program(source, this.compileMain(source, known));
  }

  start(program: Program, scope: readonly ScopeEntry[] = []): VirtualMachine {
    const variables = scope.map(({ name, value, constant = false }) => ({
      name,
      cell: new Cell(value),
      constant,
    }));
    return this.startOn(program, new NameScope(variables));
  }

  startOn(program: Program, scope: NameScope): VirtualMachine {
    const state = new MachineState(this, scope);
    const { main } = program;
    try {
      state.updateStop();
      const frame = enterCode(state, main, 'main', 0, -1);
      frame.outer = scope;
    } catch (thrown) {
      state.pendingError = asError(thrown);
    }
    return new VirtualMachine(state, main);
  }

  /** A call of one script function on a scope, as the host's `call_fn`; the script's body runs first. */
  startCall(
    program: Program,
    scope: NameScope,
    name: string,
    args: readonly Value[],
  ): VirtualMachine {
    const machine = this.startOn(program, scope);
    machine.state.afterMain = { name, args };
    return machine;
  }

  private compileMain(source: string, options: CompileOptions): FnProto {
    const { scope, debug = false, expression = false } = options;
    try {
      const variables = new Map<string, Value | undefined>();
      for (const { name, value, constant } of scope ?? []) {
        variables.set(name, constant ? value : undefined);
      }
      const outer = scope ? { variables } : null;
      const parse = expression ? parseExpression : parseScript;
      const script = parse(source, this.settings, outer);
      optimise(script, this.settings, outer);
      return compileScript(script, this.settings, this.natives, { debug });
    } catch (thrown) {
      throw asError(thrown);
    }
  }

  compileEval(
    source: string,
    parent: Library,
    names: Iterable<string>,
    functions: boolean,
  ): FnProto {
    const { settings } = this;
    const outer = { variables: new Map([...names].map((name) => [name, undefined])) };
    const script = parseScript(source, settings, outer);
    if (!functions && script.functions.length > 0) {
      throw parseError('WrongFnDefinition', WRONG_FN_DEFINITION, NO_POSITION);
    }
    optimise(script, settings, null);
    return compileScript(script, settings, this.natives, { parent, mode: 'eval' });
  }

  compileModule(source: string, path: string, debug: boolean): FnProto {
    const script = parseScript(source, this.settings, null);
    optimise(script, this.settings, null);
    return compileScript(script, this.settings, this.natives, { path, debug });
  }

  /** The imports of a source whose paths are written out, in its order. Throws as `compile` does. */
  importsOf(source: string): readonly ImportSite[] {
    try {
      return parseScript(source, { ...this.settings, strictVariables: false }, null).importSites;
    } catch (thrown) {
      throw asError(thrown);
    }
  }

  /** Throws what a module of this source would fail with before it runs. */
  checkModule(source: string, path: string): void {
    try {
      this.compileModule(source, path, false);
    } catch (thrown) {
      throw asError(thrown);
    }
  }

  parseJson(text: string, hasNull: boolean): Value {
    const settings = { ...this.settings, optimizationLevel: 'None' as const };
    const script = parseExpression(text, settings, null, hasNull ? 'null' : 'strict');
    const main = compileScript(script, settings, this.natives);
    const outcome = this.startOn(new Program(text, main), new NameScope([])).run();
    if (outcome.state === 'failed') throw outcome.error;
    const value = outcome.state === 'done' ? outcome.value : null;
    if (value instanceof RMap) return value;
    throw new RhaiError('ErrorMismatchOutputType', { name: 'map', second: typeName(value) });
  }
}
