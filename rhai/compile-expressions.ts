/**
 * Code for expressions: into a given register (`compileInto`), or as an operand that may be a
 * variable's own register (`operand`). Conditions become fused compare-and-jump instructions.
 * Chains (`a.b[c].d()`) are compile-chains.ts, statements in expressions compile-statements.ts.
 */
import type { CallExpr, ClosureExpr, Expr, LogicExpr, VariableExpr } from './ast.ts';
import { type CallSite, type FnProto, OP } from './bytecode.ts';
import type { FnCompiler } from './compile.ts';
import { NO_POSITION } from './errors.ts';
import { OPERATORS, type Operator } from './operators.ts';
import { functionKey } from './parse-functions.ts';
import { startOf } from './parse-expressions.ts';
import type { Value } from './values.ts';

const RR: Partial<Record<string, number>> = {
  '+': OP.ADD,
  '-': OP.SUB,
  '*': OP.MUL,
  '/': OP.DIV,
  '%': OP.MOD,
  '<': OP.LT,
  '<=': OP.LE,
  '>': OP.GT,
  '>=': OP.GE,
  '==': OP.EQ,
  '!=': OP.NE,
};
const RI: Partial<Record<string, number>> = {
  '+': OP.ADDI,
  '-': OP.SUBI,
  '*': OP.MULI,
  '/': OP.DIVI,
  '%': OP.MODI,
};
const JUMP_RR: Partial<Record<string, number>> = {
  '<': OP.JLTF,
  '<=': OP.JLEF,
  '>': OP.JGTF,
  '>=': OP.JGEF,
  '==': OP.JEQF,
  '!=': OP.JNEF,
};
const JUMP_RI: Partial<Record<string, number>> = {
  '<': OP.JLTIF,
  '<=': OP.JLEIF,
  '>': OP.JGTIF,
  '>=': OP.JGEIF,
  '==': OP.JEQIF,
  '!=': OP.JNEIF,
};

export function operatorNumber(op: string): number {
  return OPERATORS.indexOf(op as Operator);
}

/** The value of a small integer literal, as an immediate operand. */
function immediate(expr: Expr): number | undefined {
  if (expr.kind !== 'const' || typeof expr.value !== 'number') return undefined;
  return expr.value === (expr.value | 0) ? expr.value : undefined;
}

/** The register of a variable that needs no look-up: -1 for all others. */
export function plainSlot(c: FnCompiler, expr: Expr): number {
  if (expr.kind !== 'variable' || c.dynamic) return -1;
  const { decl } = expr;
  return decl !== null && decl.slot >= 0 && !decl.captured ? decl.slot : -1;
}

/** The register of a captured variable's cell: -1 for all others. */
export function cellSlot(c: FnCompiler, expr: VariableExpr): number {
  if (c.dynamic) return -1;
  const { decl, name } = expr;
  if (decl === null) return c.captured.get(name) ?? -1;
  return decl.slot >= 0 && decl.captured ? decl.slot : -1;
}

/** Where a name lives, cell or not; -1 when it is not known here. */
export function anySlot(c: FnCompiler, expr: VariableExpr): number {
  const { decl, name } = expr;
  return decl === null ? (c.captured.get(name) ?? -1) : decl.slot;
}

/** Could evaluating it change a local variable? */
export function mayChangeLocals(expr: Expr): boolean {
  switch (expr.kind) {
    case 'const':
    case 'variable':
    case 'this':
    case 'closure':
      return false;
    case 'interpolated':
      return expr.segments.some(mayChangeLocals);
    case 'array':
      return expr.items.some(mayChangeLocals);
    case 'map':
      return expr.entries.some((e) => mayChangeLocals(e.value));
    case 'and':
    case 'or':
    case 'coalesce':
      return expr.items.some(mayChangeLocals);
    case 'call':
      if (!expr.operator && (expr.capture || expr.name === 'eval')) return true;
      // A native function changes its first argument when that is a variable.
      if (!expr.operator && expr.args[0]?.kind === 'variable') return true;
      return expr.args.some(mayChangeLocals);
    case 'chain':
      return (
        mayChangeLocals(expr.base) ||
        expr.steps.some(
          (s) => s.kind === 'method' || (s.kind === 'index' && mayChangeLocals(s.index)),
        )
      );
    default:
      return true;
  }
}

/** A register that holds the value for reading only; it may be a variable's own. */
export function operand(c: FnCompiler, expr: Expr, stable = false): number {
  const slot = plainSlot(c, expr);
  if (slot >= 0 && !stable) {
    c.cost++;
    return slot;
  }
  const register = c.take();
  compileInto(c, expr, register, false);
  return register;
}

/** Two operands, safe against the second changing the first. */
function operands(c: FnCompiler, left: Expr, right: Expr): [number, number] {
  const a = operand(c, left, mayChangeLocals(right));
  return [a, operand(c, right)];
}

/** Compiles into a register; `owned` values are independent of where they came from. */
export function compileInto(c: FnCompiler, expr: Expr, dst: number, owned: boolean): void {
  c.cost++;
  const mark = c.next;
  switch (expr.kind) {
    case 'const':
      loadConstant(c, expr.value, dst);
      break;
    case 'variable':
      compileVariable(c, expr, dst, owned);
      break;
    case 'this':
      c.at(expr.pos);
      c.emit(OP.THIS, dst);
      if (owned) c.emit(OP.COPY, dst, dst);
      break;
    case 'interpolated':
      compileList(c, expr.segments, OP.INTERP, dst, expr);
      break;
    case 'array':
      compileList(c, expr.items, OP.ARRAY, dst, expr);
      break;
    case 'map': {
      const first = c.next;
      for (const { value } of expr.entries) compileInto(c, value, c.take(), true);
      c.at(expr.pos);
      c.emit(OP.MAP, dst, c.constant(expr.entries.map((e) => e.key.name)), first);
      break;
    }
    case 'and':
    case 'or':
    case 'coalesce':
      compileLogic(c, expr, dst, owned);
      break;
    case 'call':
      compileCall(c, expr, dst);
      break;
    case 'chain':
      c.unit.emit.chain(c, expr, dst, owned);
      break;
    case 'block':
      c.unit.emit.statement(c, expr.stmt, dst);
      break;
    case 'closure':
      compileClosure(c, expr, dst);
      break;
    default:
  }
  c.drop(mark);
}

export function loadConstant(c: FnCompiler, value: Value, dst: number): void {
  if (typeof value === 'number' && value === (value | 0)) c.emit(OP.INT, dst, value);
  else if (typeof value === 'object' && value !== null) {
    c.emit(OP.CONST, dst, c.constant(value));
    c.emit(OP.COPY, dst, dst);
  } else c.emit(OP.CONST, dst, c.constant(value));
}

export function compileVariable(
  c: FnCompiler,
  expr: VariableExpr,
  dst: number,
  owned: boolean,
): void {
  c.at(expr.pos);
  if (expr.namespace.length > 0) {
    const path = expr.namespace.map((n) => n.name);
    if (path.length === 1 && path[0] === 'global') {
      c.emit(OP.GLOBALGET, dst, c.constant(expr.name));
    } else {
      c.at(expr.namespace[0]?.pos ?? expr.pos);
      c.emit(OP.MODULEGET, dst, c.constant([...path, expr.name]));
    }
    if (owned) c.emit(OP.COPY, dst, dst);
    return;
  }
  const slot = plainSlot(c, expr);
  if (slot >= 0) {
    c.emit(owned ? OP.COPY : OP.MOVE, dst, slot);
    return;
  }
  const cell = cellSlot(c, expr);
  if (cell >= 0) c.emit(OP.LOADCELL, dst, cell);
  else if (expr.isFn && expr.decl === null) c.emit(OP.FNREF, dst, c.constant(expr.name));
  else c.emit(OP.NAMEGET, dst, c.constant(expr.name), anySlot(c, expr));
  if (owned) c.emit(OP.COPY, dst, dst);
}

function compileList(c: FnCompiler, items: Expr[], op: number, dst: number, at: Expr): void {
  const first = c.next;
  for (const item of items) compileInto(c, item, c.take(), op === OP.ARRAY);
  c.at(at.pos);
  c.emit(op, dst, first, items.length);
}

function compileLogic(c: FnCompiler, expr: LogicExpr, dst: number, owned: boolean): void {
  const work = c.take();
  const ends: number[] = [];
  expr.items.forEach((item, i) => {
    compileInto(c, item, work, owned);
    const last = i === expr.items.length - 1;
    if (expr.kind === 'coalesce') {
      if (!last) ends.push(c.jump(OP.JNUNIT, work));
      return;
    }
    c.at(startOf(item));
    if (last) c.emit(OP.BOOLCHECK, work);
    else ends.push(c.jump(expr.kind === 'and' ? OP.JF : OP.JT, work));
  });
  c.patch(ends);
  c.emit(OP.MOVE, dst, work);
}

/** Jumps to the returned places when the condition is false. */
export function jumpIfFalse(c: FnCompiler, cond: Expr): number[] {
  const mark = c.next;
  c.cost++;
  if (cond.kind === 'const' && cond.value === true) return [];
  if (cond.kind === 'and') {
    const jumps = cond.items.flatMap((item) => jumpIfFalse(c, item));
    c.drop(mark);
    return jumps;
  }
  if (cond.kind === 'call' && cond.operator && c.unit.settings.fastOperators) {
    const [left, right] = cond.args;
    if (cond.args.length === 2 && left && right) {
      const small = immediate(right);
      const ri = JUMP_RI[cond.name];
      const rr = JUMP_RR[cond.name];
      if (rr !== undefined && ri !== undefined) {
        let jump: number;
        if (small !== undefined) {
          const a = operand(c, left);
          c.cost++;
          c.at(cond.pos);
          jump = c.jump(ri, a, small);
        } else {
          const [a, b] = operands(c, left, right);
          c.at(cond.pos);
          jump = c.jump(rr, a, b);
        }
        c.drop(mark);
        return [jump];
      }
    }
  }
  const value = operand(c, cond);
  c.at(startOf(cond));
  const jump = c.jump(OP.JF, value);
  c.drop(mark);
  return [jump];
}

function isCall(expr: Expr | undefined, name: string): expr is CallExpr {
  return expr?.kind === 'call' && expr.operator && expr.name === name && expr.args.length === 2;
}

/** The value of an integer literal that is no larger than 32 bits. */
function word(expr: Expr | undefined): number {
  if (expr?.kind !== 'const' || typeof expr.value !== 'number') return -1;
  return expr.value <= 0xffff_ffff ? expr.value : -1;
}

/**
 * `(x * factor + addend) % modulus`, as random number generators are written: the product needs more
 * than 53 bits, the result does not. Emits what computes it for the usual operands; -1 for other code.
 */
function linearRemainder(c: FnCompiler, expr: CallExpr, dst: number): number {
  if (!c.unit.settings.fastOperators || !(isCall(expr, '%') || isCall(expr, '&'))) return -1;
  const last = word(expr.args[1]);
  const modulus = expr.name === '%' ? last : last + 1;
  if (modulus <= 0 || (expr.name === '&' && (last & modulus) !== 0)) return -1;
  const sum = expr.args[0];
  const product = isCall(sum, '+') ? sum.args[0] : sum;
  const addend = isCall(sum, '+') ? word(sum.args[1]) : 0;
  if (!isCall(product, '*') || addend < 0) return -1;
  const [x, factor] = [product.args[0] as Expr, word(product.args[1])];
  const slot = plainSlot(c, x);
  if (slot < 0 || factor <= 0) return -1;
  return c.jump(OP.LINREM, dst, slot, c.constant([factor, addend, modulus]));
}

function compileOperator(c: FnCompiler, expr: CallExpr, dst: number): void {
  const skip = linearRemainder(c, expr, dst);
  compileAnyOperator(c, expr, dst);
  if (skip >= 0) c.patch(skip);
}

function compileAnyOperator(c: FnCompiler, expr: CallExpr, dst: number): void {
  const [left, right] = expr.args as [Expr, Expr | undefined];
  if (right === undefined) {
    const value = operand(c, left);
    c.at(expr.pos);
    c.emit(expr.name === '!' ? OP.NOT : expr.name === '-' ? OP.NEG : OP.PLUS, dst, value);
    return;
  }
  const small = immediate(right);
  const fast = c.unit.settings.fastOperators;
  const ri = fast ? RI[expr.name] : undefined;
  if (small !== undefined && ri !== undefined) {
    const a = operand(c, left);
    c.cost++;
    c.at(expr.pos);
    c.emit(ri, dst, a, small);
    return;
  }
  const [a, b] = operands(c, left, right);
  c.at(expr.pos);
  const rr = fast ? RR[expr.name] : undefined;
  if (rr !== undefined) c.emit(rr, dst, a, b);
  else c.emit(OP.BINARY, operatorNumber(expr.name), dst, a, b);
}

export function makeSite(
  c: FnCompiler,
  name: string,
  argc: number,
  extra: Partial<CallSite>,
): CallSite {
  const { natives } = c.unit;
  return {
    name,
    argc,
    namespace: [],
    root: NO_POSITION,
    overloads: natives.find(name, argc),
    plain: null,
    typed: null,
    constant: false,
    onThis: false,
    operator: false,
    byRef: false,
    ...extra,
  };
}

/** Arguments into the registers after the window's first. */
function compileArgs(c: FnCompiler, args: readonly Expr[]): void {
  for (const arg of args) compileInto(c, arg, c.take(), true);
}

function compileCall(c: FnCompiler, expr: CallExpr, dst: number): void {
  if (expr.operator && operatorCallable(expr)) {
    compileOperator(c, expr, dst);
    return;
  }
  if (expr.namespace.length > 0) {
    compileQualified(c, expr, dst);
    return;
  }
  if (!expr.operator && !expr.capture) {
    if (compileKeyword(c, expr, dst)) return;
  }
  const argc = expr.args.length;
  const fn = expr.operator ? null : c.unit.library.find(functionKey(expr.name, argc, null));
  const window = c.take();
  if (expr.capture) {
    compileArgs(c, expr.args);
    c.at(expr.pos);
    const target: FnProto | CallSite = fn ?? makeSite(c, expr.name, argc, {});
    c.emit(OP.CALLCAP, c.constant(target), window, dst);
    return;
  }
  if (fn) {
    compileArgs(c, expr.args);
    c.at(expr.pos);
    c.emit(OP.CALL, c.constant(fn), window, dst);
    return;
  }
  compileNative(c, expr, window, dst);
}

function operatorCallable(expr: CallExpr): boolean {
  if (expr.args.length === 2) return OPERATORS.includes(expr.name as Operator);
  return expr.name === '!' || expr.name === '-' || expr.name === '+';
}

/** A native function; a variable in front is passed by reference, as in `push(list, 1)`. */
function compileNative(c: FnCompiler, expr: CallExpr, window: number, dst: number): void {
  const { name, args } = expr;
  const argc = args.length;
  const [first, ...rest] = args;
  const changes = c.unit.natives.mayMutate(name, argc);
  // Shared variables and constants are copied instead.
  const byRef =
    changes &&
    first !== undefined &&
    (first.kind === 'this' ||
      (first.kind === 'variable' && first.decl?.constant !== true && cellSlot(c, first) < 0));
  const constant = first?.kind === 'variable' && first.decl?.constant === true;
  const site = makeSite(c, name, argc, {
    operator: expr.operator,
    byRef: byRef && !constant,
    constant,
  });
  if (first === undefined) {
    c.at(expr.pos);
    c.emit(OP.CALLN, c.constant(site), window, dst);
    return;
  }
  const register = c.take();
  const late = first.kind === 'variable' || first.kind === 'this';
  if (!late) compileInto(c, first, register, true);
  compileArgs(c, rest);
  if (late) compileInto(c, first, register, !byRef && changes);
  // These two tell at their first argument what is wrong with it.
  const toldAtFirst = (name === 'Fn' && argc === 1) || (name === 'curry' && argc > 1);
  c.at(toldAtFirst ? startOf(first) : expr.pos);
  c.emit(OP.CALLN, c.constant(site), window, dst);
  if (byRef && !constant && first.kind === 'variable') storeVariable(c, first, register);
  else if (byRef && first.kind === 'this') c.emit(OP.MOVE, 0, register);
}

/** Writes a register back to the variable it was read from. */
export function storeVariable(c: FnCompiler, target: VariableExpr, register: number): void {
  const slot = plainSlot(c, target);
  if (slot >= 0) {
    if (slot !== register) c.emit(OP.MOVE, slot, register);
    return;
  }
  const cell = cellSlot(c, target);
  c.at(target.pos);
  if (cell >= 0) c.emit(OP.STORECELL, cell, register);
  else c.emit(OP.NAMESET, c.constant(target.name), anySlot(c, target), register);
}

function compileQualified(c: FnCompiler, expr: CallExpr, dst: number): void {
  const window = c.take();
  compileArgs(c, expr.args);
  c.at(expr.pos);
  const namespace = expr.namespace.map((n) => n.name);
  const root = expr.namespace[0]?.pos ?? expr.pos;
  const site = makeSite(c, expr.name, expr.args.length, { namespace, root });
  c.emit(OP.CALLN, c.constant(site), window, dst);
}

/** Functions that are part of the language. True when it was one. */
function compileKeyword(c: FnCompiler, expr: CallExpr, dst: number): boolean {
  const { name, args } = expr;
  const [first] = args;
  if (name === 'call' && first) {
    const window = c.take();
    compileArgs(c, args);
    c.at(expr.pos);
    c.emit(OP.CALLFN, args.length - 1, window, dst);
    return true;
  }
  if (args.length !== 1 || !first) return false;
  if (name === 'eval') {
    const text = operand(c, first);
    const window = c.take();
    c.at(startOf(first));
    c.emit(OP.EVAL, text, window, dst);
    return true;
  }
  if (name === 'is_def_var') {
    const text = operand(c, first);
    c.at(startOf(first));
    c.emit(OP.ISDEF, dst, text);
    return true;
  }
  if (name === 'is_shared') {
    if (first.kind === 'variable') {
      const cell = cellSlot(c, first);
      if (cell >= 0) {
        c.emit(OP.ISSHARED, dst, cell);
        return true;
      }
    }
    operand(c, first);
    c.emit(OP.CONST, dst, c.constant(false));
    return true;
  }
  return false;
}

function compileClosure(c: FnCompiler, expr: ClosureExpr, dst: number): void {
  const proto = expr.fn.proto as FnProto;
  const first = c.next;
  for (const variable of expr.externals) {
    const register = c.take();
    const slot = anySlot(c, variable);
    c.at(variable.pos);
    if (slot >= 0 && !variable.isFn) {
      c.emit(OP.SHARE, slot);
      c.emit(OP.MOVE, register, slot);
    } else if (variable.isFn) {
      c.emit(OP.FNREF, register, c.constant(variable.name));
      c.emit(OP.NEWCELL, register);
    } else {
      // A variable of the scope around the script, or none: shared by name.
      c.emit(OP.NAMEREF, register, c.constant(variable.name), -1);
    }
  }
  c.at(expr.pos);
  c.emit(OP.CLOSURE, dst, c.constant(proto), first, expr.externals.length);
}
