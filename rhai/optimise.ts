/**
 * The optimiser, level Simple: what of the original's rewriting a user can see. Operators on
 * literals are computed, constants replaced by their values, dead branches and statements without
 * effect dropped (so that `nope; 1` is 1), `x = x + y` becomes `x += y`.
 * Rewrites the tree in place; the compiler works without it as well.
 */
import type { CallExpr, Declaration, Expr, LogicExpr, Script, Stmt } from './ast.ts';
import { RhaiError } from './errors.ts';
import type { Settings } from './limits.ts';
import { binary, OPERATORS, type Operator } from './operators.ts';
import type { OuterNames } from './parser.ts';
import { isConstant } from './parse-expressions.ts';
import { literalValue } from './parse-statements.ts';
import { RArray, RBlob, RMap, typeName, type Value } from './values.ts';

interface State {
  readonly settings: Settings;
  readonly constants: Map<Declaration, Value>;
  readonly outer: ReadonlyMap<string, Value | undefined> | null;
  readonly propagate: boolean;
}

function literal(value: Value, at: Expr): Expr {
  return { kind: 'const', value, pos: at.pos };
}

function isPureExpr(expr: Expr): boolean {
  switch (expr.kind) {
    case 'interpolated':
      return expr.segments.every(isPureExpr);
    case 'array':
      return expr.items.every(isPureExpr);
    case 'map':
      return expr.entries.every((e) => isPureExpr(e.value));
    case 'and':
    case 'or':
    case 'coalesce':
      return expr.items.every(isPureExpr);
    case 'block':
      return isPureStmt(expr.stmt);
    default:
      return isConstant(expr);
  }
}

/** Without effects, so that it can go when nobody wants its value. */
function isPureStmt(stmt: Stmt): boolean {
  switch (stmt.kind) {
    case 'noop':
      return true;
    case 'expr':
      return isPureExpr(stmt.expr);
    case 'blockStmt':
      return stmt.body.every(isPureStmt);
    case 'if':
      return isPureExpr(stmt.cond) && isPureStmt(stmt.body) && isPureStmt(stmt.otherwise);
    case 'while':
      return stmt.cond?.kind === 'const' && stmt.cond.value === false;
    case 'for':
      return isPureExpr(stmt.iterable) && isPureStmt(stmt.body);
    case 'try':
      return stmt.error === null && isPureStmt(stmt.body) && isPureStmt(stmt.handler);
    case 'switch':
      return (
        stmt.hasDefault &&
        isPureExpr(stmt.subject) &&
        stmt.cases.every((k) => (k.guard === null || isPureExpr(k.guard)) && isPureStmt(k.body))
      );
    default:
      return false;
  }
}

function isBareVariable(stmt: Stmt): boolean {
  return stmt.kind === 'expr' && stmt.expr.kind === 'variable';
}

function optimiseAll(list: Expr[], state: State): Expr[] {
  return list.map((item) => optimiseExpr(item, state));
}

function optimiseExpr(expr: Expr, state: State): Expr {
  switch (expr.kind) {
    case 'variable':
      return constantOf(expr, state);
    case 'interpolated':
      expr.segments = optimiseAll(expr.segments, state).filter(
        (s) => s.kind !== 'const' || s.value !== null,
      );
      return folded(expr);
    case 'array':
      expr.items = optimiseAll(expr.items, state);
      return folded(expr);
    case 'map':
      for (const entry of expr.entries) entry.value = optimiseExpr(entry.value, state);
      return folded(expr);
    case 'and':
    case 'or':
      return optimiseLogic(expr, expr.kind === 'and', state);
    case 'coalesce':
      return optimiseCoalesce(expr, state);
    case 'call':
      return optimiseCall(expr, state);
    case 'chain':
      if (expr.base.kind !== 'variable') expr.base = optimiseExpr(expr.base, state);
      for (const step of expr.steps) {
        if (step.kind === 'index') step.index = optimiseExpr(step.index, state);
        else if (step.kind === 'method') step.args = optimiseAll(step.args, state);
      }
      return expr;
    case 'block':
      return optimiseBlockExpr(expr, state);
    default:
      return expr;
  }
}

function optimiseBlockExpr(expr: Expr & { kind: 'block' }, state: State): Expr {
  const stmt = optimiseStmt(expr.stmt, state, true);
  expr.stmt = stmt;
  if (stmt.kind === 'noop') return literal(null, expr);
  if (stmt.kind === 'expr') return stmt.expr;
  if (stmt.kind === 'blockStmt') {
    const [only, ...more] = stmt.body;
    if (only === undefined) return literal(null, expr);
    if (more.length === 0 && only.kind === 'expr') return only.expr;
  }
  return expr;
}

function folded(expr: Expr): Expr {
  if (!isConstant(expr)) return expr;
  const value = literalValue(expr);
  return value === undefined ? expr : literal(value, expr);
}

function constantOf(expr: Expr & { kind: 'variable' }, state: State): Expr {
  if (!state.propagate || expr.namespace.length > 0) return expr;
  const value = expr.decl
    ? state.constants.get(expr.decl)
    : expr.isFn
      ? undefined
      : state.outer?.get(expr.name);
  return value === undefined ? expr : literal(value, expr);
}

function optimiseLogic(expr: LogicExpr, isAnd: boolean, state: State): Expr {
  const items: Expr[] = [];
  for (const item of expr.items) {
    const next = optimiseExpr(item, state);
    if (next.kind === 'const' && typeof next.value === 'boolean') {
      if (next.value === isAnd) continue;
      // What comes behind is never reached.
      if (items.every(isPureExpr)) return literal(!isAnd, next);
      items.push(next);
      break;
    }
    items.push(next);
  }
  if (items.length === 0) return literal(isAnd, expr);
  // As the original: what is left alone is no longer checked to be a bool.
  if (items.length === 1) return items[0] as Expr;
  expr.items = items;
  return expr;
}

function optimiseCoalesce(expr: LogicExpr, state: State): Expr {
  const items: Expr[] = [];
  for (const item of expr.items) {
    const next = optimiseExpr(item, state);
    if (next.kind === 'const' && next.value === null) continue;
    items.push(next);
    if (isConstant(next)) break;
  }
  if (items.length === 0) return literal(null, expr);
  if (items.length === 1) return items[0] as Expr;
  expr.items = items;
  return expr;
}

function optimiseCall(expr: CallExpr, state: State): Expr {
  expr.args = optimiseAll(expr.args, state);
  if (expr.namespace.length > 0 || !expr.args.every(isConstant)) return expr;
  const [a, b] = expr.args.map(literalValue);
  if (expr.args.length === 1 && a !== undefined) {
    if (expr.operator && expr.name === '!' && typeof a === 'boolean') return literal(!a, expr);
    if (expr.name === 'type_of') return literal(typeName(a), expr);
    return expr;
  }
  if (!expr.operator || a === undefined || b === undefined) return expr;
  if (
    !state.settings.standardLibrary ||
    !state.settings.fastOperators ||
    !OPERATORS.includes(expr.name as Operator)
  )
    return expr;
  if (expr.args.length !== 2) return expr;
  try {
    const value = binary(expr.name as Operator, a, b);
    if (value === undefined || tooLarge(value, state.settings)) return expr;
    return literal(value, expr);
  } catch (error) {
    if (error instanceof RhaiError) return expr;
    throw error;
  }
}

/** Folding must not get around the size limits. */
function tooLarge(value: Value, settings: Settings): boolean {
  if (value instanceof RArray || value instanceof RMap || value instanceof RBlob) {
    return settings.maxArraySize + settings.maxMapSize > 0;
  }
  return typeof value === 'string' && settings.maxStringSize > 0;
}

function optimiseStmt(stmt: Stmt, state: State, wanted: boolean): Stmt {
  switch (stmt.kind) {
    case 'expr':
      stmt.expr = optimiseExpr(stmt.expr, state);
      if (stmt.expr.kind === 'block') return optimiseStmt(stmt.expr.stmt, state, true);
      return stmt;
    case 'blockStmt':
      stmt.body = optimiseBody(stmt.body, state, wanted);
      return stmt.body.length === 0 ? { kind: 'noop', pos: stmt.pos } : stmt;
    case 'if':
      return optimiseIf(stmt, state, wanted);
    case 'while':
      if (stmt.cond) stmt.cond = optimiseExpr(stmt.cond, state);
      if (stmt.cond?.kind === 'const' && stmt.cond.value === false) {
        return { kind: 'noop', pos: stmt.pos };
      }
      stmt.body = optimiseInner(stmt.body, state, false);
      return stmt;
    case 'do':
      stmt.cond = optimiseExpr(stmt.cond, state);
      stmt.body = optimiseInner(stmt.body, state, false);
      return stmt;
    case 'for':
      stmt.iterable = optimiseExpr(stmt.iterable, state);
      stmt.body = optimiseInner(stmt.body, state, false);
      return stmt;
    case 'let':
      if (stmt.value) stmt.value = optimiseExpr(stmt.value, state);
      noteConstant(stmt, state);
      return stmt;
    case 'assign':
      return optimiseAssign(stmt, state);
    case 'switch':
      stmt.subject = optimiseExpr(stmt.subject, state);
      for (const k of stmt.cases) {
        if (k.guard) k.guard = optimiseExpr(k.guard, state);
        k.body = optimiseInner(k.body, state, true);
      }
      return stmt;
    case 'try':
      stmt.body = optimiseInner(stmt.body, state, false);
      if (isPureStmt(stmt.body)) return { kind: 'noop', pos: stmt.pos };
      stmt.handler = optimiseInner(stmt.handler, state, false);
      return stmt;
    case 'import':
      stmt.path = optimiseExpr(stmt.path, state);
      return stmt;
    case 'break':
    case 'return':
    case 'throw':
      if (stmt.value) stmt.value = optimiseExpr(stmt.value, state);
      return stmt;
    default:
      return stmt;
  }
}

function noteConstant(stmt: Stmt & { kind: 'let' }, state: State): void {
  const value =
    stmt.constant && stmt.value && isConstant(stmt.value) ? literalValue(stmt.value) : undefined;
  if (value === undefined) state.constants.delete(stmt.decl);
  else state.constants.set(stmt.decl, value);
}

/** A body that is compiled as a block of its own: what it declares ends with it. */
function optimiseInner(stmt: Stmt, state: State, wanted: boolean): Stmt {
  return optimiseStmt(stmt, state, wanted);
}

function optimiseIf(stmt: Stmt & { kind: 'if' }, state: State, wanted: boolean): Stmt {
  stmt.cond = optimiseExpr(stmt.cond, state);
  const { cond } = stmt;
  if (cond.kind === 'const' && typeof cond.value === 'boolean') {
    const branch = cond.value ? stmt.body : stmt.otherwise;
    return optimiseInner(branch, state, wanted);
  }
  stmt.body = optimiseInner(stmt.body, state, wanted);
  stmt.otherwise = optimiseInner(stmt.otherwise, state, wanted);
  return stmt;
}

function optimiseAssign(stmt: Stmt & { kind: 'assign' }, state: State): Stmt {
  if (stmt.target.kind === 'chain') stmt.target = optimiseExpr(stmt.target, state);
  stmt.value = optimiseExpr(stmt.value, state);
  const { target, value, op } = stmt;
  if (op !== '' || target.kind !== 'variable' || target.namespace.length > 0) return stmt;
  if (value.kind !== 'call' || !value.operator || value.args.length !== 2) return stmt;
  if (!OPERATORS.slice(0, 11).includes(value.name as Operator)) return stmt;
  const [first, second] = value.args;
  if (first?.kind !== 'variable' || first.name !== target.name || !second) return stmt;
  return { kind: 'assign', op: value.name, target, value: second, pos: value.pos };
}

function endsFlow(stmt: Stmt): boolean {
  return (
    stmt.kind === 'return' ||
    stmt.kind === 'throw' ||
    stmt.kind === 'break' ||
    stmt.kind === 'continue'
  );
}

/** The statements of a block; `wanted`: the last one's value is the block's. */
function optimiseBody(body: Stmt[], state: State, wanted: boolean): Stmt[] {
  const out: Stmt[] = [];
  for (const [i, stmt] of body.entries()) {
    const last = i === body.length - 1;
    out.push(optimiseStmt(stmt, state, wanted && last));
    if (endsFlow(stmt)) break;
  }
  const end = out.length - 1;
  return out.filter((stmt, i) => {
    if (wanted && i === end) return true;
    return !isPureStmt(stmt) && !isBareVariable(stmt);
  });
}

/** Rewrites a script. */
export function optimise(script: Script, settings: Settings, outer: OuterNames | null): void {
  if (settings.optimizationLevel === 'None') return;
  for (const fn of script.functions) {
    const state: State = { settings, constants: new Map(), outer: null, propagate: !fn.usesEval };
    fn.body = optimiseFnBody(fn.body, state);
  }
  const state: State = {
    settings,
    constants: new Map(),
    outer: outer?.variables ?? null,
    propagate: !script.usesEval,
  };
  script.body = optimiseBody(script.body, state, true);
}

function optimiseFnBody(body: Stmt, state: State): Stmt {
  const result = optimiseStmt(body, state, true);
  // The compiler tells empty functions by their empty block.
  return result.kind === 'noop'
    ? { kind: 'blockStmt', body: [], pos: result.pos, end: result.pos }
    : result;
}
