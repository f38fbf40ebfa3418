/**
 * Code for statements and blocks. `compileStatement` leaves the statement's value in a register
 * (-1: nobody wants it); `compileTail` ends the function with it.
 */
import type {
  AssignStmt,
  BlockStmt,
  BreakStmt,
  ExportStmt,
  Expr,
  ForStmt,
  IfStmt,
  ImportStmt,
  LetStmt,
  ReturnStmt,
  Stmt,
  SwitchStmt,
  TryStmt,
  WhileStmt,
  DoStmt,
} from './ast.ts';
import { OP, type SwitchTable } from './bytecode.ts';
import type { FnCompiler, LoopContext } from './compile.ts';
import { assignChain } from './compile-chains.ts';
import {
  cellSlot,
  compileInto,
  jumpIfFalse,
  operand,
  operatorNumber,
  plainSlot,
  storeVariable,
} from './compile-expressions.ts';
import { sameValue } from './compare.ts';
import type { Position } from './errors.ts';
import { startOf } from './parse-expressions.ts';
import { Range, type Value } from './values.ts';

function unit(c: FnCompiler, dst: number): void {
  if (dst >= 0) c.emit(OP.CONST, dst, c.constant(null));
}

/** A statement begins here: for the debugger. */
function step(c: FnCompiler, pos: Position): void {
  if (!c.unit.debug || pos.line === 0) return;
  c.at(pos);
  c.proto.statements.push(c.pc, pos.line);
  c.emit(OP.STEP);
}

export function compileStatement(c: FnCompiler, stmt: Stmt, dst: number): void {
  if (stmt.kind !== 'blockStmt' && stmt.kind !== 'noop') step(c, stmt.pos);
  c.cost++;
  const mark = c.next;
  switch (stmt.kind) {
    case 'noop':
      unit(c, dst);
      break;
    case 'expr':
      if (dst >= 0) compileInto(c, stmt.expr, dst, true);
      else compileInto(c, stmt.expr, c.take(), false);
      c.drop(mark);
      break;
    case 'blockStmt':
      compileBlock(c, stmt, dst);
      break;
    case 'if':
      compileIf(c, stmt, dst);
      break;
    case 'switch':
      compileSwitch(
        c,
        stmt,
        (body) => compileStatement(c, body, dst),
        () => unit(c, dst),
      );
      break;
    case 'while':
      compileWhile(c, stmt, dst);
      break;
    case 'do':
      compileDo(c, stmt, dst);
      break;
    case 'for':
      compileFor(c, stmt, dst);
      break;
    case 'let':
      compileLet(c, stmt);
      unit(c, dst);
      break;
    case 'assign':
      compileAssign(c, stmt);
      c.drop(mark);
      unit(c, dst);
      break;
    case 'break':
    case 'continue':
      compileBreak(c, stmt);
      break;
    case 'return':
    case 'throw':
      compileReturn(c, stmt);
      break;
    case 'try':
      compileTry(c, stmt, dst);
      break;
    case 'import':
      compileImport(c, stmt);
      c.drop(mark);
      unit(c, dst);
      break;
    case 'export':
      compileExport(c, stmt);
      unit(c, dst);
      break;
    default:
  }
}

function compileBlock(c: FnCompiler, block: BlockStmt, dst: number): void {
  const mark = c.next;
  const { depth } = c;
  const extras = c.dynamic ? c.take() : -1;
  if (extras >= 0) c.emit(OP.EXTRAS, extras, 0);
  block.body.forEach((stmt, i) => {
    compileStatement(c, stmt, i === block.body.length - 1 ? dst : -1);
  });
  if (block.body.length === 0) unit(c, dst);
  if (extras >= 0) c.emit(OP.EXTRAS, extras, 1);
  if (block.body.some((s) => s.kind === 'import')) {
    c.emit(OP.IMPORTEND, block.body.filter((s) => s.kind === 'import').length);
  }
  c.depth = depth;
  c.release(mark);
}

/** The statement's value is the function's result. */
export function compileTail(c: FnCompiler, stmt: Stmt): void {
  switch (stmt.kind) {
    case 'blockStmt': {
      const mark = c.next;
      const { body } = stmt;
      // A block that ends the function needs no clean-up, but its outermost variables may stay.
      body.slice(0, -1).forEach((s) => {
        compileStatement(c, s, -1);
      });
      const last = body.at(-1);
      if (last === undefined) c.emit(OP.RETUNIT);
      else compileTail(c, last);
      if (!c.isMain) c.release(mark);
      return;
    }
    case 'if': {
      step(c, stmt.pos);
      c.cost++;
      const jumps = jumpIfFalse(c, stmt.cond);
      compileTailBlock(c, stmt.body);
      c.patch(jumps);
      compileTailBlock(c, stmt.otherwise);
      return;
    }
    case 'switch':
      step(c, stmt.pos);
      compileSwitch(
        c,
        stmt,
        (body) => compileTailBlock(c, body),
        () => c.emit(OP.RETUNIT),
      );
      c.emit(OP.RETUNIT);
      return;
    case 'expr': {
      step(c, stmt.pos);
      c.cost++;
      const mark = c.next;
      const slot = c.isMain ? -1 : plainSlot(c, stmt.expr);
      if (slot >= 0) {
        c.cost++;
        c.emit(OP.RET, slot);
      } else {
        const register = c.take();
        compileInto(c, stmt.expr, register, true);
        c.emit(OP.RET, register);
      }
      c.drop(mark);
      return;
    }
    default: {
      const mark = c.next;
      // Variables of the outermost block keep their registers, so the result is taken after them.
      const declares = stmt.kind === 'let' || stmt.kind === 'import' || stmt.kind === 'export';
      if (declares) {
        compileStatement(c, stmt, -1);
        c.emit(OP.RETUNIT);
        return;
      }
      const register = c.take();
      compileStatement(c, stmt, register);
      c.emit(OP.RET, register);
      c.drop(mark);
    }
  }
}

/** A tail inside a block of its own. */
function compileTailBlock(c: FnCompiler, stmt: Stmt): void {
  if (stmt.kind === 'noop') {
    c.emit(OP.RETUNIT);
    return;
  }
  const mark = c.next;
  if (stmt.kind === 'blockStmt' && c.isMain) {
    const register = c.take();
    compileStatement(c, stmt, register);
    c.emit(OP.RET, register);
  } else compileTail(c, stmt);
  c.release(mark);
}

function compileIf(c: FnCompiler, stmt: IfStmt, dst: number): void {
  const jumps = jumpIfFalse(c, stmt.cond);
  compileStatement(c, stmt.body, dst);
  if (stmt.otherwise.kind === 'noop' && dst < 0) {
    c.patch(jumps);
    return;
  }
  const end = c.jump(OP.JUMP);
  c.patch(jumps);
  compileStatement(c, stmt.otherwise, dst);
  c.patch(end);
}

/** Charges what the body costs at the jump back. */
function looped(c: FnCompiler, body: () => void): number {
  const { cost } = c;
  c.cost = 0;
  body();
  const own = Math.max(c.cost, 1);
  c.cost = cost;
  return own;
}

function openLoop(c: FnCompiler, dst: number): LoopContext {
  const loop: LoopContext = { result: dst, breaks: [], continues: [] };
  c.loops.push(loop);
  return loop;
}

function compileWhile(c: FnCompiler, stmt: WhileStmt, dst: number): void {
  unit(c, dst);
  const loop = openLoop(c, dst);
  const top = c.pc;
  let exits: number[] = [];
  const cost = looped(c, () => {
    if (stmt.cond) exits = jumpIfFalse(c, stmt.cond);
    compileStatement(c, stmt.body, -1);
  });
  c.patch(loop.continues);
  c.at(stmt.body.pos);
  c.emit(OP.LOOP, top, cost);
  c.patch(exits);
  c.patch(loop.breaks);
  c.loops.pop();
}

function compileDo(c: FnCompiler, stmt: DoStmt, dst: number): void {
  unit(c, dst);
  const loop = openLoop(c, dst);
  const top = c.pc;
  let exits: number[] = [];
  const cost = looped(c, () => {
    compileStatement(c, stmt.body, -1);
    c.patch(loop.continues);
    if (stmt.until) {
      const mark = c.next;
      const cond = operand(c, stmt.cond);
      c.at(startOf(stmt.cond));
      exits = [c.jump(OP.JT, cond)];
      c.drop(mark);
    } else exits = jumpIfFalse(c, stmt.cond);
  });
  c.at(stmt.body.pos);
  c.emit(OP.LOOP, top, cost);
  c.patch(exits);
  c.patch(loop.breaks);
  c.loops.pop();
}

function compileFor(c: FnCompiler, stmt: ForStmt, dst: number): void {
  const mark = c.next;
  const { depth } = c;
  const iterator = c.take();
  compileInto(c, stmt.iterable, iterator, false);
  c.at(startOf(stmt.iterable));
  c.emit(OP.FORINIT, iterator, iterator);
  const counter = stmt.counter ? c.declare(stmt.counter) : -1;
  const item = c.declare(stmt.item);
  c.depth += stmt.counter ? 2 : 1;
  variableLimit(c, c.depth, stmt.pos);
  // A captured loop variable is one cell for all rounds.
  const itemIn = stmt.item.captured ? c.take() : item;
  const counterIn = stmt.counter?.captured ? c.take() : counter;
  if (itemIn !== item) {
    c.emit(OP.CONST, item, c.constant(null));
    c.emit(OP.NEWCELL, item);
  }
  if (counterIn !== counter) {
    c.emit(OP.CONST, counter, c.constant(null));
    c.emit(OP.NEWCELL, counter);
  }
  unit(c, dst);
  const loop = openLoop(c, dst);
  const top = c.pc;
  let exit = -1;
  const cost = looped(c, () => {
    c.at(startOf(stmt.iterable));
    exit =
      counter < 0
        ? c.jump(OP.FORNEXT, iterator, itemIn)
        : c.jump(OP.FORNEXT2, iterator, itemIn, counterIn);
    if (itemIn !== item) c.emit(OP.STORECELL, item, itemIn);
    if (counterIn !== counter) c.emit(OP.STORECELL, counter, counterIn);
    compileStatement(c, stmt.body, -1);
  });
  c.patch(loop.continues);
  c.at(stmt.body.pos);
  c.emit(OP.LOOP, top, cost);
  c.patch(exit);
  c.patch(loop.breaks);
  c.loops.pop();
  c.depth = depth;
  c.release(mark);
}

function compileBreak(c: FnCompiler, stmt: BreakStmt): void {
  const loop = c.loops.at(-1);
  if (!loop) return;
  if (stmt.kind === 'continue') {
    loop.continues.push(c.jump(OP.JUMP));
    return;
  }
  const mark = c.next;
  if (stmt.value) {
    if (loop.result >= 0) compileInto(c, stmt.value, loop.result, true);
    else compileInto(c, stmt.value, c.take(), false);
  } else unit(c, loop.result);
  c.drop(mark);
  loop.breaks.push(c.jump(OP.JUMP));
}

function variableLimit(c: FnCompiler, depth: number, pos: Position): void {
  if (c.unit.settings.maxVariables === Number.POSITIVE_INFINITY) return;
  c.at(pos);
  c.emit(OP.VARCHECK, depth);
}

function compileLet(c: FnCompiler, stmt: LetStmt): void {
  const { decl, value } = stmt;
  const reused =
    decl.slot >= 0 &&
    c.proto.variables.some(
      (v) => v.slot === decl.slot && v.name === decl.name && v.end === Number.MAX_SAFE_INTEGER,
    );
  if (c.declares && stmt.atGlobal) {
    const mark = c.next;
    const register = c.take();
    if (value) compileInto(c, value, register, true);
    else unit(c, register);
    variableLimit(c, stmt.depth + 1, stmt.pos);
    c.at(stmt.namePos);
    c.emit(OP.DECLARE, c.constant(decl.name), register, stmt.constant ? 1 : 0);
    c.drop(mark);
    // Later uses go by name: the variable is in the scope around the eval.
    decl.slot = -1;
    exportAndRecord(c, stmt, register);
    return;
  }
  if (!reused) {
    // The value is computed before the name exists, in what will be its register.
    const slot = c.take();
    if (value) compileInto(c, value, slot, true);
    else unit(c, slot);
    c.drop(slot);
    const before = c.pc;
    decl.constant = stmt.constant;
    c.declare(decl);
    c.depth++;
    variableLimit(c, c.depth, stmt.pos);
    if (c.isMain && stmt.atGlobal) {
      c.proto.globals.push({ name: decl.name, slot, constant: stmt.constant, start: c.pc });
    }
    if (decl.captured) c.emit(OP.NEWCELL, slot);
    if (c.dynamic && before >= 0) c.emit(OP.DECLARE, c.constant(decl.name), -1, 0);
  } else {
    const { slot } = decl;
    const mark = c.next;
    const register = c.take();
    if (value) compileInto(c, value, register, true);
    else unit(c, register);
    decl.constant = stmt.constant;
    c.emit(OP.MOVE, slot, register);
    if (decl.captured) c.emit(OP.NEWCELL, slot);
    if (c.dynamic) c.emit(OP.DECLARE, c.constant(decl.name), -1, 0);
    c.drop(mark);
    if (c.proto.globals.some((g) => g.slot === slot)) {
      c.proto.globals.push({ name: decl.name, slot, constant: stmt.constant, start: c.pc });
    }
  }
  exportAndRecord(c, stmt, decl.slot);
}

/** Global constants are visible to functions as `global::NAME`; exports to importers. */
function exportAndRecord(c: FnCompiler, stmt: LetStmt, register: number): void {
  if (stmt.constant && stmt.atGlobal && c.isMain && c.unit.names.size > 0) {
    c.emit(OP.GLOBALSET, c.constant(stmt.decl.name), register);
  }
  if (stmt.exported) {
    c.at(stmt.namePos);
    const name = c.constant(stmt.decl.name);
    c.emit(OP.EXPORT, name, register, name, 0);
  }
}

const FAST_ASSIGN: Partial<Record<string, number>> = { '+': OP.ADDA, '-': OP.SUBA };
const FAST_ASSIGN_INT: Partial<Record<string, number>> = { '+': OP.ADDAI, '-': OP.SUBAI };

function compileAssign(c: FnCompiler, stmt: AssignStmt): void {
  const { target, op } = stmt;
  if (target.kind === 'chain') {
    const value = ownedOperand(c, stmt.value);
    assignChain(c, stmt, value);
    return;
  }
  if (target.kind === 'this') {
    const current = c.take();
    c.at(target.pos);
    c.emit(OP.THISW, current);
    const value = ownedOperand(c, stmt.value);
    if (op === '') c.emit(OP.MOVE, 0, value);
    else {
      c.at(stmt.pos);
      c.emit(OP.OPA, operatorNumber(op), 0, value);
    }
    return;
  }
  if (target.kind !== 'variable') return;
  const slot = plainSlot(c, target);
  if (slot < 0) {
    assignElsewhere(c, stmt);
    return;
  }
  if (op === '') {
    if (writesLast(stmt.value)) compileInto(c, stmt.value, slot, true);
    else c.emit(OP.MOVE, slot, ownedOperand(c, stmt.value));
    return;
  }
  const { value } = stmt;
  const fast = c.unit.settings.fastOperators;
  if (fast && value.kind === 'const' && typeof value.value === 'number') {
    const int = FAST_ASSIGN_INT[op];
    if (int !== undefined && value.value === (value.value | 0)) {
      c.cost += 2;
      c.at(stmt.pos);
      c.emit(int, slot, value.value);
      return;
    }
  }
  const right = operand(c, value);
  c.at(stmt.pos);
  c.cost++;
  const two = fast ? FAST_ASSIGN[op] : undefined;
  if (two !== undefined) c.emit(two, slot, right);
  else c.emit(OP.OPA, operatorNumber(op), slot, right);
}

/** Code for these writes its destination once, at the end: it may be a variable they read. */
function writesLast(expr: Expr): boolean {
  return (
    expr.kind === 'call' ||
    expr.kind === 'chain' ||
    expr.kind === 'variable' ||
    expr.kind === 'and' ||
    expr.kind === 'or'
  );
}

function ownedOperand(c: FnCompiler, expr: Expr): number {
  const register = c.take();
  compileInto(c, expr, register, true);
  return register;
}

/** Assignment to a captured variable, or to one that is only known by name. */
function assignElsewhere(c: FnCompiler, stmt: AssignStmt): void {
  const { target, op } = stmt;
  if (target.kind !== 'variable') return;
  const value = ownedOperand(c, stmt.value);
  if (target.namespace.length > 0) {
    const current = c.take();
    compileInto(c, target, current, false);
    c.at(target.pos);
    c.emit(OP.CONSTCHECK, c.constant(target.name), -1);
    return;
  }
  if (op === '') {
    storeVariable(c, target, value);
    return;
  }
  const current = c.take();
  const cell = cellSlot(c, target);
  if (cell >= 0) {
    c.at(target.pos);
    c.emit(OP.LOADCELL, current, cell);
  } else compileInto(c, target, current, false);
  c.at(stmt.pos);
  c.emit(OP.OPA, operatorNumber(op), current, value);
  storeVariable(c, target, current);
}

function compileReturn(c: FnCompiler, stmt: ReturnStmt): void {
  const mark = c.next;
  if (stmt.kind === 'throw') {
    const register = c.take();
    if (stmt.value) compileInto(c, stmt.value, register, true);
    else unit(c, register);
    c.at(stmt.pos);
    c.emit(OP.THROW, register);
  } else if (stmt.value) {
    const slot = c.isMain ? -1 : plainSlot(c, stmt.value);
    if (slot >= 0) {
      c.cost++;
      c.emit(OP.RET, slot);
    } else {
      const register = c.take();
      compileInto(c, stmt.value, register, true);
      c.emit(OP.RET, register);
    }
  } else c.emit(OP.RETUNIT);
  c.drop(mark);
}

/** The value is the body's, of what the optimiser has left there; a handler has none. */
function compileTry(c: FnCompiler, stmt: TryStmt, dst: number): void {
  const mark = c.next;
  const { depth } = c;
  // The caught value, and after it the error itself.
  const caught = c.take();
  c.take();
  const start = c.pc;
  compileStatement(c, stmt.body, dst);
  const end = c.pc;
  const skip = c.jump(OP.JUMP);
  c.proto.handlers.push({ start, end, target: c.pc, register: caught });
  if (stmt.error) {
    const slot = c.declare(stmt.error);
    c.depth++;
    c.emit(OP.MOVE, slot, caught);
    if (stmt.error.captured) c.emit(OP.NEWCELL, slot);
  }
  const handlerStart = c.pc;
  compileStatement(c, stmt.handler, -1);
  // A bare `throw` (or `throw ()`) in the handler throws the caught error again.
  c.proto.handlers.push({ start: handlerStart, end: c.pc, target: -1, register: caught });
  unit(c, dst);
  c.patch(skip);
  c.depth = depth;
  c.release(mark);
}

function compileImport(c: FnCompiler, stmt: ImportStmt): void {
  const path = ownedOperand(c, stmt.path);
  const window = c.take();
  c.at(startOf(stmt.path));
  c.emit(OP.IMPORT, c.constant(stmt.alias), path, window);
}

function compileExport(c: FnCompiler, stmt: ExportStmt): void {
  const { name, decl, alias } = stmt;
  const mark = c.next;
  const register = decl && decl.slot >= 0 ? decl.slot : c.take();
  c.at(name.pos);
  if (!decl || decl.slot < 0) c.emit(OP.NAMEGET, register, c.constant(name.name), -1);
  c.emit(
    OP.EXPORT,
    c.constant(name.name),
    register,
    c.constant(alias === '' ? name.name : alias),
    0,
  );
  c.drop(mark);
}

function addCase(table: SwitchTable, value: Value, arm: number): void {
  if (typeof value === 'number') {
    table.ints.set(value, [...(table.ints.get(value) ?? []), arm]);
  } else if (typeof value === 'string') {
    table.strings.set(value, [...(table.strings.get(value) ?? []), arm]);
  } else {
    const known = table.others.find((o) => sameValue(o.value, value));
    if (known) known.arms.push(arm);
    else table.others.push({ value, arms: [arm] });
  }
}

function compileSwitch(
  c: FnCompiler,
  stmt: SwitchStmt,
  compileBody: (body: Stmt) => void,
  compileNone: () => void,
): void {
  const mark = c.next;
  const table: SwitchTable = {
    ints: new Map(),
    strings: new Map(),
    others: [],
    ranges: [],
    targets: [],
    guarded: stmt.cases.some((k) => k.guard !== null),
  };
  stmt.cases.forEach((k, arm) => {
    for (const value of k.values) {
      if (value instanceof Range) {
        const { start, end, inclusive } = value;
        table.ranges.push({ start, end, inclusive, arm });
      }
      // A range also matches itself.
      addCase(table, value, arm);
    }
  });
  const subject = operand(c, stmt.subject);
  const state = c.take();
  const index = c.constant(table);
  c.at(startOf(stmt.subject));
  c.emit(OP.SWITCH, index, subject, state);
  const ends: number[] = [];
  let hasDefault = false;
  const before = c.cost;
  let most = 0;
  stmt.cases.forEach((k) => {
    c.cost = before;
    table.targets.push(c.pc);
    if (k.values.length === 0) hasDefault = true;
    if (k.guard) {
      const jumps = jumpIfFalse(c, k.guard);
      compileBody(k.body);
      ends.push(c.jump(OP.JUMP));
      c.patch(jumps);
      c.emit(OP.SWITCHNEXT, index, state);
    } else {
      compileBody(k.body);
      ends.push(c.jump(OP.JUMP));
    }
    most = Math.max(most, c.cost - before);
  });
  c.cost = before + most;
  if (!hasDefault) {
    table.targets.push(c.pc);
    compileNone();
  }
  c.patch(ends);
  c.drop(mark);
}
