/**
 * The compiler's frame: registers, constants, jumps and positions of one function, and the entrance
 * that compiles a whole script. What code an expression, a chain or a statement becomes is
 * compile-expressions.ts, compile-chains.ts, compile-statements.ts; folding constants and dropping
 * dead code has happened before, in optimise.ts.
 *
 * C1  a register below `next` is taken; temporaries are freed in the order they were taken.
 * C2  a value that is stored (variable, argument, element, result) is compiled as owned: containers
 *     are copied. Everything else may be borrowed from a variable.
 * C3  a captured variable lives in a cell from its declaration on.
 */
import type { ChainExpr, Declaration, FnDef, Script, Stmt } from './ast.ts';
import { FnProto, Library, OP } from './bytecode.ts';
import { compileChain } from './compile-chains.ts';
import { compileStatement, compileTail } from './compile-statements.ts';
import type { Position } from './errors.ts';
import type { Settings } from './limits.ts';
import type { NativeTable } from './natives.ts';
import { functionKey } from './parse-functions.ts';

export interface LoopContext {
  readonly result: number;
  readonly breaks: number[];
  readonly continues: number[];
}

/** Code for what expressions contain; the files that make it build on the one for expressions. */
export interface Emitter {
  chain(c: FnCompiler, expr: ChainExpr, dst: number, owned: boolean): void;
  statement(c: FnCompiler, stmt: Stmt, dst: number): void;
}

const EMITTER: Emitter = { chain: compileChain, statement: compileStatement };

/** What does not change between the functions of a script. */
export interface Unit {
  readonly settings: Settings;
  readonly natives: NativeTable;
  readonly library: Library;
  /** The names of script functions, for methods that may be theirs. */
  readonly names: ReadonlySet<string>;
  /** Functions restricted to a type of `this`, by name and arity. */
  readonly typed: ReadonlyMap<string, ReadonlyMap<string, FnProto>>;
  /** Emits a STEP before each statement. */
  readonly debug: boolean;
  readonly emit: Emitter;
}

export class FnCompiler {
  readonly unit: Unit;
  readonly proto: FnProto;
  readonly code: number[] = [];
  readonly loops: LoopContext[] = [];
  /** Variables that may be shadowed by eval at run time are looked up by name first. */
  readonly dynamic: boolean;
  /** An eval: its outermost variables go into the scope around it. */
  readonly declares: boolean;
  readonly isMain: boolean;
  readonly captured = new Map<string, number>();
  next = 1;
  cost = 0;
  depth = 0;
  private readonly constIndex = new Map<unknown, number>();

  constructor(unit: Unit, proto: FnProto, dynamic: boolean, mode: 'main' | 'eval' | 'fn') {
    this.unit = unit;
    this.proto = proto;
    this.dynamic = dynamic;
    this.declares = mode === 'eval';
    this.isMain = mode !== 'fn';
  }

  get pc(): number {
    return this.code.length;
  }

  emit(op: number, ...operands: number[]): void {
    this.code.push(op, ...operands);
  }

  /** The next instruction is at this place of the source. */
  at(pos: Position): void {
    const table = this.proto.positions;
    const { pc } = this;
    if (table.length > 0 && table[table.length - 3] === pc) table.length -= 3;
    table.push(pc, pos.line, pos.column);
  }

  constant(value: unknown): number {
    const known = this.constIndex.get(value);
    if (known !== undefined) return known;
    const index = this.proto.consts.length;
    this.proto.consts.push(value);
    this.constIndex.set(value, index);
    return index;
  }

  /** A fresh register. */
  take(): number {
    const register = this.next++;
    if (this.next > this.proto.registers) this.proto.registers = this.next;
    return register;
  }

  /** Emits a jump whose target (the last operand) is not known yet. */
  jump(op: number, ...operands: number[]): number {
    this.emit(op, ...operands, -1);
    return this.pc - 1;
  }

  patch(jumps: number | readonly number[], target = this.pc): void {
    if (typeof jumps === 'number') this.code[jumps] = target;
    else for (const jump of jumps) this.code[jump] = target;
  }

  /** Gives a declaration its register. */
  declare(decl: Declaration): number {
    const slot = this.take();
    decl.slot = slot;
    this.note(decl, slot);
    return slot;
  }

  /** Notes a variable for the debugger, eval and capture calls. */
  note(decl: Declaration, slot: number): void {
    const { name, constant, captured } = decl;
    const end = Number.MAX_SAFE_INTEGER;
    this.proto.variables.push({ name, slot, constant, cell: captured, start: this.pc, end });
  }

  /** Frees the registers from `mark` on, and with them the variables there. */
  release(mark: number): void {
    for (const info of this.proto.variables) {
      if (info.slot >= mark && info.end === Number.MAX_SAFE_INTEGER) info.end = this.pc;
    }
    this.next = mark;
  }

  /** Frees temporaries only. */
  drop(mark: number): void {
    this.next = mark;
  }

  finish(): void {
    const { proto } = this;
    proto.code = Int32Array.from(this.code);
    proto.cost = this.cost;
  }
}

function makeProto(def: FnDef, library: Library): FnProto {
  const params = def.params.map((p) => p.name);
  const proto = new FnProto(def.name, params, library, def.isPrivate, def.thisType, def.pos);
  proto.empty = def.body.kind === 'blockStmt' && def.body.body.length === 0;
  def.proto = proto;
  return proto;
}

function compileFunction(unit: Unit, def: FnDef): void {
  const proto = def.proto as FnProto;
  const c = new FnCompiler(unit, proto, def.usesEval, 'fn');
  def.params.forEach((param, i) => {
    const slot = c.declare(param);
    if (i < def.captured) c.captured.set(param.name, slot);
    else if (param.captured) c.emit(OP.NEWCELL, slot);
  });
  c.depth = def.params.length;
  compileTail(c, def.body);
  c.finish();
}

/** The functions with a type of `this` in a library and those around it; the nearest wins. */
function typedMethods(library: Library): Map<string, Map<string, FnProto>> {
  const found = new Map<string, Map<string, FnProto>>();
  for (let l: Library | null = library; l; l = l.parent) {
    for (const proto of l.functions.values()) {
      if (proto.thisType === null) continue;
      const key = functionKey(proto.name, proto.arity, null);
      const byType = found.get(key) ?? new Map<string, FnProto>();
      if (!byType.has(proto.thisType)) byType.set(proto.thisType, proto);
      found.set(key, byType);
    }
  }
  return found;
}

/** Compiles a parsed and optimised script; the result is its outermost code. */
export function compileScript(
  script: Script,
  settings: Settings,
  natives: NativeTable,
  options: {
    readonly path?: string;
    readonly parent?: Library | null;
    readonly debug?: boolean;
    readonly mode?: 'main' | 'eval';
  } = {},
): FnProto {
  const { path = '', parent = null, debug = false, mode = 'main' } = options;
  const library = new Library(script.source, path, parent);
  const names = new Set<string>();
  for (let l: Library | null = parent; l; l = l.parent) {
    for (const proto of l.functions.values()) names.add(proto.name);
  }
  for (const def of script.functions) {
    names.add(def.name);
    library.functions.set(
      functionKey(def.name, def.params.length, def.thisType),
      makeProto(def, library),
    );
  }
  const typed = typedMethods(library);
  const unit: Unit = { settings, natives, library, names, typed, debug, emit: EMITTER };
  for (const def of script.functions) compileFunction(unit, def);
  const main = new FnProto('', [], library, false, null, { line: 0, column: 0 });
  const c = new FnCompiler(unit, main, script.usesEval, mode);
  compileTail(c, { kind: 'blockStmt', body: script.body, pos: main.pos, end: main.pos });
  c.finish();
  return main;
}
