/**
 * Parsing of statements and blocks. Expressions are parse-expressions.ts, `fn` is
 * parse-functions.ts; what a second `let` of a name means is decided here.
 */
import type { AssignStmt, Declaration, Expr, Name, Stmt, Step, SwitchCase } from './ast.ts';
import { type Position, RhaiError } from './errors.ts';
import {
  ensureBool,
  ensureIterable,
  ensureNoAssignment,
  isConstant,
  parseExpr,
  startOf,
} from './parse-expressions.ts';
import { parseFunction } from './parse-functions.ts';
import {
  BREAKABLE,
  GLOBAL,
  improperSymbol,
  missingToken,
  ONLY_EXPRESSIONS,
  type Parser,
  type Place,
  parseError,
  positionOf,
} from './parser.ts';
import { isOpAssignment, lexError } from './tokens.ts';
import {
  Float,
  FnPtr,
  INT_MAX,
  isInt,
  makeInt,
  RArray,
  Range,
  RMap,
  type Value,
} from './values.ts';
import { displayText } from './text.ts';

/** Statements after which no semicolon is needed. */
export function selfTerminated(stmt: Stmt): boolean {
  switch (stmt.kind) {
    case 'if':
    case 'switch':
    case 'while':
    case 'for':
    case 'blockStmt':
    case 'try':
      return true;
    default:
      return false;
  }
}

function notBlock(p: Parser, what: string): void {
  if (p.peek().type === '{') {
    throw parseError('ExprExpected', `Expecting ${what} expression`, p.here());
  }
}

function condition(p: Parser, place: Place): Expr {
  notBlock(p, 'a boolean');
  const expr = ensureBool(parseExpr(p, place));
  ensureNoAssignment(p);
  return expr;
}

export function parseBlock(p: Parser, outer: Place): Stmt {
  const start = p.expect('{', 'to start a statement block');
  const pos = positionOf(start);
  let place = p.deeper(outer, pos);
  if ((place.flags & ONLY_EXPRESSIONS) !== 0) {
    const stmt = parseExprStatement(p, place);
    const close = p.next();
    if (close.type === 'error') throw lexError(close);
    if (close.type !== '}') {
      throw missingToken('{', 'to start a statement block', positionOf(close));
    }
    return { kind: 'blockStmt', body: [stmt], pos, end: positionOf(close) };
  }
  const { scope } = p;
  const outerStart = scope.blockStart;
  const importCount = p.imports.length;
  scope.blockStart = scope.stack.length;
  place = { ...place, flags: place.flags & ~GLOBAL };
  const body: Stmt[] = [];
  let end: Position;
  for (;;) {
    const token = p.peek();
    if (token.type === '}') {
      end = positionOf(p.next());
      break;
    }
    if (token.type === 'eof') throw missingToken('}', 'to terminate this block', positionOf(token));
    const stmt = parseStatement(p, place);
    if (stmt.kind === 'noop') continue;
    body.push(stmt);
    const after = p.peek();
    if (after.type === ';') p.next();
    else if (after.type === '}' || selfTerminated(stmt)) continue;
    else if (after.type === 'error') throw lexError(after);
    else throw missingToken(';', 'to terminate this statement', positionOf(after));
  }
  scope.stack.length = scope.blockStart;
  scope.blockStart = outerStart;
  p.imports.length = importCount;
  return { kind: 'blockStmt', body, pos, end };
}

function noop(pos: Position): Stmt {
  return { kind: 'noop', pos };
}

export function parseStatement(p: Parser, outer: Place): Stmt {
  const token = p.peek();
  const pos = positionOf(token);
  const place: Place = { ...outer, pos };
  const looping = p.settings.allowLooping;
  switch (token.type) {
    case 'eof':
      return noop(pos);
    case ';':
      p.next();
      return noop(pos);
    case '{':
      return parseBlock(p, p.deeper(place));
    case 'fn':
    case 'private':
      parseFunction(p, place);
      return noop(pos);
    case 'if':
      return parseIf(p, p.deeper(place));
    case 'switch':
      return parseSwitch(p, p.deeper(place));
    case 'while':
    case 'loop':
      if (looping) return parseWhile(p, p.deeper(place));
      break;
    case 'do':
      if (looping) return parseDo(p, p.deeper(place));
      break;
    case 'for':
      if (looping) return parseFor(p, p.deeper(place));
      break;
    case 'continue':
    case 'break':
      if (looping) return parseBreak(p, place, token.type);
      break;
    case 'return':
    case 'throw':
      p.next();
      return { kind: token.type, value: optionalExpr(p, place), pos };
    case 'try':
      return parseTry(p, p.deeper(place));
    case 'let':
    case 'const':
      return parseLet(p, p.deeper(place), token.type === 'const', false);
    case 'import':
      return parseImport(p, p.deeper(place));
    case 'export':
      if ((place.flags & GLOBAL) === 0) {
        throw parseError('WrongExport', 'Export statement can only appear at global level', pos);
      }
      return parseExport(p, p.deeper(place));
    default:
  }
  return parseExprStatement(p, p.deeper(place));
}

/** The value of break, return, throw: whatever cannot begin an expression means none. */
function optionalExpr(p: Parser, place: Place): Expr | null {
  const before = p.peek();
  try {
    return parseExpr(p, p.deeper(place));
  } catch (error) {
    if (error instanceof RhaiError && p.peek() === before) return null;
    throw error;
  }
}

function parseBreak(p: Parser, place: Place, kind: 'break' | 'continue'): Stmt {
  const { pos } = place;
  if ((place.flags & BREAKABLE) === 0) {
    throw parseError('LoopBreak', 'Break statement should only be used inside a loop', pos);
  }
  p.next();
  return { kind, value: kind === 'break' ? optionalExpr(p, place) : null, pos };
}

export function parseIf(p: Parser, outer: Place): Stmt {
  const pos = positionOf(p.next());
  const place = p.deeper(outer, pos);
  const cond = condition(p, place);
  const body = parseBlock(p, place);
  let otherwise: Stmt = noop(pos);
  if (p.match('else')) {
    otherwise = p.peek().type === 'if' ? parseIf(p, place) : parseBlock(p, place);
  }
  return { kind: 'if', cond, body, otherwise, pos };
}

export function parseWhile(p: Parser, outer: Place): Stmt {
  const place = p.deeper(outer);
  const token = p.next();
  const pos = positionOf(token);
  const cond = token.type === 'while' ? condition(p, place) : null;
  const body = parseBlock(p, { ...place, pos, flags: place.flags | BREAKABLE });
  return { kind: 'while', cond, body, pos };
}

export function parseDo(p: Parser, outer: Place): Stmt {
  const pos = positionOf(p.next());
  const place = p.deeper(outer, pos);
  const body = parseBlock(p, { ...place, flags: place.flags | BREAKABLE });
  const token = p.next();
  if (token.type !== 'while' && token.type !== 'until') {
    throw missingToken('while', 'for the do statement', positionOf(token));
  }
  const cond = condition(p, place);
  return { kind: 'do', body, cond, until: token.type === 'until', pos };
}

export function parseFor(p: Parser, outer: Place): Stmt {
  const pos = positionOf(p.next());
  const place = p.deeper(outer, pos);
  let item: Name;
  let counter: Name | null = null;
  if (p.match('(')) {
    item = p.variableName();
    if (!p.match(',')) throw missingToken(',', 'after the iteration variable name', p.here());
    counter = p.variableName();
    if (counter.name === item.name) {
      const message = `Duplicated variable name: ${counter.name}`;
      throw parseError('DuplicatedVariable', message, counter.pos);
    }
    if (!p.match(')')) throw missingToken(')', 'to close the iteration variable', p.here());
  } else item = p.variableName();
  p.expect('in', 'after the iteration variable');
  notBlock(p, 'a boolean');
  const iterable = ensureIterable(parseExpr(p, place));
  const { stack } = p.scope;
  const before = stack.length;
  const counterDecl = counter ? p.declare(counter.name) : null;
  const itemDecl = p.declare(item.name);
  const body = parseBlock(p, { ...place, flags: place.flags | BREAKABLE });
  stack.length = before;
  return { kind: 'for', item: itemDecl, counter: counterDecl, iterable, body, pos };
}

function parseTry(p: Parser, outer: Place): Stmt {
  const pos = positionOf(p.next());
  const place = p.deeper(outer, pos);
  const body = parseBlock(p, place);
  if (!p.match('catch')) throw missingToken('catch', "for the 'try' statement", p.here());
  let error: Declaration | null = null;
  if (p.match('(')) {
    const { name } = p.variableName();
    if (!p.match(')')) throw missingToken(')', 'to enclose the catch variable', p.here());
    error = p.declare(name);
  }
  const handler = parseBlock(p, place);
  if (error) p.scope.stack.pop();
  return { kind: 'try', body, error, handler, pos };
}

function parseLet(p: Parser, outer: Place, constant: boolean, exported: boolean): Stmt {
  const pos = positionOf(p.next());
  const place: Place = { ...outer, pos };
  const { name, pos: namePos } = p.variableName();
  const { scope, settings } = p;
  if (!settings.allowShadowing && p.find(name)) {
    throw parseError('VariableExists', `Variable already defined: ${name}`, namePos);
  }
  const value = p.match('=') ? parseExpr(p, p.deeper(place)) : null;
  const depth = scope.stack.length;
  const existing = scope.stack.findLastIndex((d) => d.name === name);
  let decl: Declaration;
  if (existing >= scope.blockStart && !(scope.stack[existing] as Declaration).aliased) {
    decl = scope.stack[existing] as Declaration;
    decl.constant = constant;
  } else decl = p.declare(name, constant);
  if (exported) decl.aliased = true;
  const atGlobal = (place.flags & GLOBAL) !== 0;
  return { kind: 'let', decl, constant, value, exported, depth, namePos, pos, atGlobal };
}

function parseImport(p: Parser, outer: Place): Stmt {
  const pos = positionOf(p.next());
  const place = p.deeper(outer, pos);
  const path = parseExpr(p, place);
  if (path.kind === 'const' && typeof path.value === 'string') {
    p.importSites.push({ path: path.value, pos: path.pos });
  }
  const alias = p.match('as') ? p.variableName().name : '';
  p.imports.push(alias);
  return { kind: 'import', path, alias, pos };
}

function parseExport(p: Parser, place: Place): Stmt {
  const pos = positionOf(p.next());
  const token = p.peek();
  if (token.type === 'let' || token.type === 'const') {
    return parseLet(p, p.deeper(place), token.type === 'const', true);
  }
  const name = p.variableName();
  const alias = p.match('as') ? p.variableName().name : '';
  const decl = p.find(name.name);
  if (decl) decl.aliased = true;
  return { kind: 'export', name, decl, alias, pos };
}

function parseExprStatement(p: Parser, outer: Place): Stmt {
  const place: Place = { ...outer, pos: p.here() };
  const target = parseExpr(p, place);
  const token = p.peek();
  if (token.type !== '=' && !isOpAssignment(token.type)) {
    return { kind: 'expr', expr: target, pos: startOf(target) };
  }
  p.next();
  const pos = positionOf(token);
  const value = parseExpr(p, { ...place, pos });
  const op = token.type === '=' ? '' : token.type.slice(0, -1);
  return checkAssignment({ kind: 'assign', op, target, value, pos });
}

function invalidTarget(pos: Position): RhaiError {
  return parseError('AssignmentToInvalidLHS', 'Expression cannot be assigned to', pos);
}

function checkAssignment(stmt: AssignStmt): Stmt {
  const { target, op } = stmt;
  switch (target.kind) {
    case 'this':
      return stmt;
    case 'variable':
      if (target.decl?.constant) {
        const message = `Cannot assign to constant ${target.name}`;
        throw parseError('AssignmentToConstant', message, target.pos);
      }
      return stmt;
    case 'chain': {
      const method = target.steps.find((s: Step) => s.kind === 'method');
      if (method) throw invalidTarget(method.pos);
      const { base } = target;
      if (base.kind !== 'variable' && base.kind !== 'this') throw invalidTarget(base.pos);
      return stmt;
    }
    case 'and':
    case 'or':
    case 'coalesce':
      if (op === '') throw improperSymbol("Possibly a typo of '=='?", stmt.pos);
      throw invalidTarget(target.pos);
    default:
      if (isConstant(target)) {
        throw parseError(
          'AssignmentToConstant',
          'Cannot assign to a constant value',
          startOf(target),
        );
      }
      throw invalidTarget(target.pos);
  }
}

/** The value of a literal, for switch cases; undefined when it is none. */
export function literalValue(expr: Expr): Value | undefined {
  switch (expr.kind) {
    case 'const':
      return expr.value;
    case 'array': {
      const items = expr.items.map(literalValue);
      return items.every((item) => item !== undefined) ? new RArray(items as Value[]) : undefined;
    }
    case 'map': {
      const values = expr.entries.map((e): [string, Value | undefined] => [
        e.key.name,
        literalValue(e.value),
      ]);
      if (values.some(([, value]) => value === undefined)) return undefined;
      return new RMap(new Map(values as [string, Value][]));
    }
    case 'interpolated':
      return isConstant(expr)
        ? expr.segments.map((s) => displayText(literalValue(s) as Value)).join('')
        : undefined;
    case 'call': {
      const [left, right] = expr.args;
      if (expr.name === 'Fn' && left?.kind === 'const' && typeof left.value === 'string') {
        return new FnPtr(left.value);
      }
      if (expr.name !== '..' && expr.name !== '..=') return undefined;
      if (left?.kind !== 'const' || right?.kind !== 'const') return undefined;
      const inclusive = expr.name === '..=';
      const start = left.value === null ? 0 : left.value;
      const end = right.value === null ? makeInt(INT_MAX) : right.value;
      if (!isInt(start) || !isInt(end) || (left.value === null && right.value === null)) {
        return undefined;
      }
      return new Range(start, end, inclusive);
    }
    default:
      return undefined;
  }
}

function caseExprs(p: Parser, place: Place): Expr[] {
  const exprs: Expr[] = [];
  do {
    const outer = p.pipeSeparates;
    p.pipeSeparates = true;
    try {
      exprs.push(parseExpr(p, place));
    } catch (error) {
      if (!(error instanceof RhaiError)) throw error;
      throw parseError('ExprExpected', 'Expecting literal expression', error.position);
    } finally {
      p.pipeSeparates = outer;
    }
  } while (p.match('|'));
  return exprs;
}

/** The values of a case; checked only when its arm has been read, as the original does. */
function caseValues(exprs: readonly Expr[], seenRange: { value: boolean }): Value[] {
  return exprs.map((expr) => {
    const value = literalValue(expr);
    if (value === undefined) {
      throw parseError('ExprExpected', 'Expecting a literal expression', startOf(expr));
    }
    if (value instanceof Range) {
      const empty = value.inclusive ? value.start > value.end : value.start >= value.end;
      if (!empty) seenRange.value = true;
    } else if (seenRange.value && (isInt(value) || value instanceof Float)) {
      const message = 'Numeric switch case cannot follow a range case';
      throw parseError('WrongSwitchIntegerCase', message, startOf(expr));
    }
    return value;
  });
}

export function parseSwitch(p: Parser, outer: Place): Stmt {
  const pos = positionOf(p.next());
  const place = p.deeper(outer, pos);
  const subject = parseExpr(p, place);
  p.expect('{', 'to start a switch block');
  const why = 'to end this switch block';
  const cases: SwitchCase[] = [];
  const seenRange = { value: false };
  let defaultPos: Position | null = null;
  for (;;) {
    const token = p.peek();
    if (p.match('}')) break;
    if (token.type === 'eof') throw missingToken('}', why, positionOf(token));
    if (defaultPos) {
      throw parseError(
        'WrongSwitchDefaultCase',
        'Default switch case must be the last',
        defaultPos,
      );
    }
    let exprs: Expr[] = [];
    let guard: Expr | null = null;
    if (token.type === '_') {
      defaultPos = positionOf(p.next());
      if (p.peek().type === 'if') {
        const message = 'This switch case cannot have a condition';
        throw parseError('WrongSwitchCaseCondition', message, p.here());
      }
    } else {
      exprs = caseExprs(p, place);
      if (p.match('if')) guard = condition(p, place);
    }
    p.expect('=>', 'in this switch case');
    const body =
      (place.flags & ONLY_EXPRESSIONS) !== 0 ? onlyExpr(p, place) : parseStatement(p, place);
    cases.push({ values: caseValues(exprs, seenRange), guard, body });
    const after = p.peek();
    if (after.type === ',') p.next();
    else if (after.type === 'eof') throw missingToken(')', why, positionOf(after));
    else if (after.type === 'error') throw lexError(after);
    else if (after.type !== '}' && !selfTerminated(body)) {
      throw missingToken(',', 'to separate the items in this switch block', positionOf(after));
    }
  }
  return { kind: 'switch', subject, cases, hasDefault: defaultPos !== null, pos };
}

function onlyExpr(p: Parser, place: Place): Stmt {
  const expr = parseExpr(p, place);
  return { kind: 'expr', expr, pos: startOf(expr) };
}
