/**
 * The compiled form: opcodes, function prototypes, libraries.
 *
 * Code is a flat list of int32: an opcode, then its operands. An operand is a register of the frame
 * (r), an index into the constants (k), an absolute code position (→) or a plain number (n).
 * Register 0 is `this`; parameters follow, then locals and temporaries.
 *
 * The dispatch loop (machine.ts) switches on literal numbers, because V8 makes a jump table of
 * those only; `test/rhai/opcodes.test.ts` holds the two together.
 */
import type { NativeFn } from './natives.ts';
import type { Position } from './errors.ts';
import type { Value } from './values.ts';

export const OP = {
  MOVE: 0, // r r
  COPY: 1, // r r
  CONST: 2, // r k
  INT: 3, // r n
  ADD: 4, // r r r
  SUB: 5,
  MUL: 6,
  DIV: 7,
  MOD: 8,
  ADDI: 9, // r r n
  SUBI: 10,
  MULI: 11,
  DIVI: 12,
  MODI: 13,
  LT: 14, // r r r
  LE: 15,
  GT: 16,
  GE: 17,
  EQ: 18,
  NE: 19,
  BINARY: 20, // operator r r r
  NOT: 21, // r r
  NEG: 22,
  PLUS: 23,
  JUMP: 24, // →
  JF: 25, // r →
  JT: 26,
  JLTF: 27, // r r →   jump when not (a < b)
  JLEF: 28,
  JGTF: 29,
  JGEF: 30,
  JEQF: 31,
  JNEF: 32,
  JLTIF: 33, // r n →
  JLEIF: 34,
  JGTIF: 35,
  JGEIF: 36,
  JEQIF: 37,
  JNEIF: 38,
  LOOP: 39, // → n     a backward jump that costs n operations
  CALL: 40, // k r r   function, window, destination
  CALLN: 41, // k r r   site, window, destination
  METHOD: 42, // k r r   site, window, destination
  CALLFN: 43, // n r r   argument count, window (window+1 is the Fn), destination
  CALLON: 44, // n r r   as CALLFN with `this` in the window
  RET: 45, // r
  RETUNIT: 46,
  GETIDX: 47, // r r r
  SETIDX: 48, // r r r   base, index, value; writes the base when it changes
  REFIDX: 49, // r r r   as GETIDX, of storage that is about to be changed
  GETPROP: 50, // r r k
  SETPROP: 51, // r k r
  REFPROP: 52, // r r k
  ADDA: 53, // r r      op-assignment on a register
  ADDAI: 54, // r n
  SUBA: 55,
  SUBAI: 56,
  OPA: 57, // operator r r
  NEWCELL: 58, // r       wraps the register
  LOADCELL: 59, // r r
  STORECELL: 60, // r r
  SHARE: 61, // r
  NAMEGET: 62, // r k n   name, slot or -1
  NAMESET: 63, // k n r
  NAMEREF: 64, // r k n   as NAMEGET without copying
  DECLARE: 65, // k r n   name, value, constant
  ARRAY: 66, // r r n
  MAP: 67, // r k r      keys, first value
  INTERP: 68, // r r n
  BACKPROP: 69, // r k r  as SETPROP, of what was read there; nothing where it cannot be set
  CLOSURE: 70, // r k r n function, first captured cell, count
  FORINIT: 71, // r r
  FORNEXT: 72, // r r →   iterator, item
  FORNEXT2: 73, // r r r → iterator, item, counter
  SWITCH: 74, // k r r   table, subject, state
  SWITCHNEXT: 75, // k r   table, state
  JUNIT: 76, // r →
  JNUNIT: 77, // r →
  THROW: 78, // r
  THIS: 79, // r
  BOOLCHECK: 80, // r
  EVAL: 81, // r r r     text, window, destination
  IMPORT: 82, // k r r    alias, path, window
  EXPORT: 83, // k r k n  name, value register, alias, flags
  GLOBALGET: 84, // r k
  MODULEGET: 85, // r k   qualified name
  GLOBALSET: 86, // k r
  ISDEF: 87, // r r       name text
  ISSHARED: 88, // r r
  CONSTCHECK: 89, // k r    assignment to a constant that may be undefined
  VARCHECK: 90, // n
  FNREF: 92, // r k       a function pointer by name
  CALLCAP: 93, // k r r   function or site, window, destination, with the caller's scope
  IMPORTEND: 94, // n      leaves a block with n imports
  STEP: 95, // breakpoint
  EXTRAS: 96, // r n    notes (0) or cuts back to (1) the variables evals have added
  LOCKCELL: 97, // r n
  LINREM: 98, // r r k →  result, x, [factor, addend, modulus]; jumps over the code for the rest
  THISW: 99, // r       as THIS, which is about to be changed
} as const;

/** A call that is resolved when it runs: by name, arity and the types of its arguments. */
export interface CallSite {
  readonly name: string;
  readonly argc: number;
  /** Qualifying names, for calls into modules. */
  readonly namespace: readonly string[];
  /** Where the qualifying names begin, for modules that are missing. */
  readonly root: Position;
  readonly overloads: readonly NativeFn[];
  /** A script function of that name and arity. */
  readonly plain: FnProto | null;
  /** Script functions of that name restricted to a type of `this`. */
  readonly typed: ReadonlyMap<string, FnProto> | null;
  /** The receiver is a constant. */
  readonly constant: boolean;
  /** The receiver is `this`, or a part of it: a constant where the function was called on one. */
  readonly onThis: boolean;
  readonly operator: boolean;
  /** The receiver is a place that can change. */
  readonly byRef: boolean;
}

export interface SwitchTable {
  readonly ints: Map<number, number[]>;
  readonly strings: Map<string, number[]>;
  readonly others: { readonly value: Value; readonly arms: number[] }[];
  readonly ranges: {
    readonly start: Value;
    readonly end: Value;
    readonly inclusive: boolean;
    readonly arm: number;
  }[];
  /** Code positions of the arms; the last one is the default. */
  readonly targets: number[];
  guarded: boolean;
}

export interface Handler {
  readonly start: number;
  readonly end: number;
  readonly target: number;
  readonly register: number;
}

export interface VariableInfo {
  readonly name: string;
  readonly slot: number;
  readonly constant: boolean;
  readonly cell: boolean;
  readonly start: number;
  end: number;
}

export class FnProto {
  readonly name: string;
  readonly arity: number;
  readonly isPrivate: boolean;
  readonly thisType: string | null;
  readonly library: Library;
  readonly params: readonly string[];
  code: Int32Array = new Int32Array(0);
  consts: unknown[] = [];
  registers = 1;
  /** Triples of code position, line, column, ascending. */
  positions: number[] = [];
  /** Where the bracket of an index stands, by code position. */
  readonly brackets = new Map<number, Position>();
  /** Where the operator of an assignment to an index stands, by code position. */
  readonly assignments = new Map<number, Position>();
  handlers: Handler[] = [];
  variables: VariableInfo[] = [];
  /** Code positions where a statement begins, with the line: for the debugger. */
  statements: number[] = [];
  readonly pos: Position;
  /** Operations one call costs, loops apart. */
  cost = 0;
  /** An empty body: calling it costs no level. */
  empty = false;
  /** Variables of the outermost block, for scopes that outlive the run; declared again, once more. */
  globals: {
    readonly name: string;
    readonly slot: number;
    readonly constant: boolean;
    readonly start: number;
  }[] = [];

  constructor(
    name: string,
    params: readonly string[],
    library: Library,
    isPrivate: boolean,
    thisType: string | null,
    pos: Position,
  ) {
    this.name = name;
    this.params = params;
    this.arity = params.length;
    this.library = library;
    this.isPrivate = isPrivate;
    this.thisType = thisType;
    this.pos = pos;
  }
}

/** The functions of one script, and of the scripts around it (for eval). */
export class Library {
  readonly functions = new Map<string, FnProto>();
  readonly parent: Library | null;
  readonly source: string;
  /** The path of the module this is, '' for the main script. */
  readonly path: string;
  constructor(source: string, path: string, parent: Library | null) {
    this.source = source;
    this.path = path;
    this.parent = parent;
  }

  find(key: string): FnProto | null {
    return this.functions.get(key) ?? this.parent?.find(key) ?? null;
  }
}

export function positionAt(proto: FnProto, pc: number): Position {
  const table = proto.positions;
  let low = 0;
  let high = table.length / 3;
  while (low < high) {
    const mid = (low + high) >> 1;
    if ((table[mid * 3] as number) <= pc) low = mid + 1;
    else high = mid;
  }
  const i = (low - 1) * 3;
  return i < 0
    ? { line: 0, column: 0 }
    : { line: table[i + 1] as number, column: table[i + 2] as number };
}
