/**
 * Parsing of expressions: primaries, postfix chains, unary and binary operators, literals.
 * Statements inside expressions (blocks, if, switch, loops) come from parse-statements.ts,
 * closures from parse-functions.ts.
 */
import type { CallExpr, ChainExpr, Expr, MapExpr, Name, Step, VariableExpr } from './ast.ts';
import type { Position } from './errors.ts';
import {
  IN_FN,
  improperSymbol,
  missingToken,
  type Parser,
  type Place,
  parseError,
  positionOf,
  QUOTED_KEYS,
  reservedError,
  unexpected,
} from './parser.ts';
import {
  isCallableReserved,
  isIdentifier,
  isMethodReserved,
  lexError,
  precedenceOf,
  type Token,
} from './tokens.ts';
import { Float, type Int, isInt, makeChar, makeInt, type Value } from './values.ts';

export function constant(value: Value, pos: Position): Expr {
  return { kind: 'const', value, pos };
}

export function parseExpr(p: Parser, outer: Place): Expr {
  const place = p.deeper({ ...outer, pos: p.here() });
  const left = parseUnary(p, place);
  return parseBinary(p, place, 1, left);
}

/** The place where an expression begins in the source. */
export function startOf(expr: Expr): Position {
  switch (expr.kind) {
    case 'variable':
      return expr.namespace[0]?.pos ?? expr.pos;
    case 'and':
    case 'or':
    case 'coalesce':
      return startOf(expr.items[0] as Expr);
    case 'chain':
      return startOf(expr.base);
    default:
      return expr.pos;
  }
}

export function isConstant(expr: Expr): boolean {
  switch (expr.kind) {
    case 'const':
      return true;
    case 'interpolated':
      return expr.segments.every(isConstant);
    case 'array':
      return expr.items.every(isConstant);
    case 'map':
      return expr.entries.every((e) => isConstant(e.value));
    case 'closure':
      return expr.externals.length === 0;
    default:
      return false;
  }
}

function literalWord(expr: Expr): string {
  switch (expr.kind) {
    case 'interpolated':
      return 'a string';
    case 'array':
      return 'an array';
    case 'map':
      return 'an object map';
    case 'const': {
      const { value } = expr;
      if (value === null) return '()';
      if (isInt(value)) return 'a number';
      if (value instanceof Float) return 'a floating-point number';
      if (typeof value === 'string') return 'a string';
      return typeof value === 'boolean' ? '' : 'a character';
    }
    case 'closure':
      return expr.externals.length === 0 ? 'Fn' : '';
    default:
      return '';
  }
}

/** Fails when the expression can never be a bool. */
export function ensureBool(expr: Expr): Expr {
  const word = literalWord(expr);
  if (word === '') return expr;
  throw parseError('MismatchedType', `Expecting a boolean expression, not ${word}`, startOf(expr));
}

/** Fails when the expression can never be iterated. */
export function ensureIterable(expr: Expr): Expr {
  let word = literalWord(expr);
  if (expr.kind === 'const' && typeof expr.value === 'boolean') word = 'a boolean';
  if (word === '' || word === 'a string' || word === 'an array' || word === 'Fn') return expr;
  throw parseError('MismatchedType', `Expecting an iterable value, not ${word}`, startOf(expr));
}

export function ensureNoAssignment(p: Parser): void {
  if (p.peek().type === '=') throw improperSymbol("Possibly a typo of '=='?", p.here());
}

function blocked(p: Parser, token: Token): boolean {
  return p.pipeSeparates && token.type === '|';
}

function parseUnary(p: Parser, outer: Place): Expr {
  const token = p.peek();
  if (blocked(p, token)) throw unexpected(token);
  const pos = positionOf(token);
  const place: Place = { ...outer, pos };
  switch (token.type) {
    case '-':
    case 'u-': {
      p.next();
      const operand = parseUnary(p, p.deeper(place));
      if (operand.kind === 'const' && isInt(operand.value)) return negated(operand.value, pos);
      if (operand.kind === 'const' && operand.value instanceof Float) {
        return constant(new Float(-operand.value.value), pos);
      }
      return operatorCall('-', [operand], pos);
    }
    case '+':
    case 'u+': {
      p.next();
      const operand = parseUnary(p, p.deeper(place));
      if (operand.kind === 'const') {
        if (isInt(operand.value) || operand.value instanceof Float) return operand;
      }
      return operatorCall('+', [operand], pos);
    }
    case '!':
      p.next();
      return operatorCall('!', [parseUnary(p, p.deeper(place))], pos);
    case 'eof':
      throw parseError('UnexpectedEOF', 'Script is incomplete', pos);
    default:
      return parsePrimary(p, place);
  }
}

function negated(value: Int, pos: Position): Expr {
  const result = -BigInt(value);
  return result >= 2n ** 63n
    ? constant(new Float(Number(result)), pos)
    : constant(makeInt(result), pos);
}

export function operatorCall(name: string, args: Expr[], pos: Position): CallExpr {
  return { kind: 'call', name, namespace: [], args, capture: false, operator: true, pos };
}

function parsePrimary(p: Parser, outer: Place): Expr {
  const token = p.peek();
  const pos = positionOf(token);
  const place: Place = { ...outer, pos };
  if (blocked(p, token)) throw unexpected(token);
  const root = parseRoot(p, place, token);
  if (blocked(p, p.peek())) return root;
  return parsePostfix(p, place, root);
}

function parseRoot(p: Parser, place: Place, token: Token): Expr {
  const { pos, allow } = place;
  switch (token.type) {
    case 'eof':
      throw parseError('UnexpectedEOF', 'Script is incomplete', pos);
    case '()':
      p.next();
      return constant(null, pos);
    case 'int':
      p.next();
      return constant(token.number, pos);
    case 'float':
      p.next();
      return constant(new Float(Number(token.number)), pos);
    case 'char':
      p.next();
      return constant(makeChar(token.text), pos);
    case 'str':
      p.next();
      return constant(token.text, pos);
    case 'true':
    case 'false':
      p.next();
      return constant(token.type === 'true', pos);
    case '..':
    case '..=':
      return constant(0, pos);
    case '{':
      if (!allow.stmtExpr) break;
      return { kind: 'block', stmt: p.grammar.block(p, p.deeper(place)), pos };
    case '(': {
      p.next();
      const expr = parseExpr(p, p.deeper(place));
      p.expect(')', 'for a matching ( in this expression');
      return expr;
    }
    case 'if':
      if (!allow.ifExpr) break;
      return { kind: 'block', stmt: p.grammar.if(p, p.deeper(place)), pos };
    case 'switch':
      if (!allow.switchExpr) break;
      return { kind: 'block', stmt: p.grammar.switch(p, p.deeper(place)), pos };
    case 'while':
    case 'loop':
    case 'do':
    case 'for': {
      if (!allow.loopExpr || !p.settings.allowLooping) break;
      const { type } = token;
      const key = type === 'loop' ? 'while' : type;
      return { kind: 'block', stmt: p.grammar[key](p, p.deeper(place)), pos };
    }
    case '|':
    case '||':
      if (!allow.anonFn) break;
      return p.grammar.closure(p, place);
    case 'interp':
      return parseInterpolated(p, place);
    case '[':
      return parseArray(p, p.deeper(place));
    case '#{':
      return parseMap(p, p.deeper(place));
    case 'ident':
      return parseIdentifier(p, place);
    case 'reserved':
      return parseReserved(p, place);
    case 'error':
      throw lexError(token);
    default:
  }
  throw unexpected(token);
}

function variable(name: string, pos: Position, namespace: readonly Name[] = []): VariableExpr {
  return { kind: 'variable', name, decl: null, namespace, isFn: false, pos };
}

function parseIdentifier(p: Parser, place: Place): Expr {
  const { pos } = place;
  const name = p.next().text;
  const after = p.peek().type;
  if (after === '(' || after === '()' || after === '!' || after === '::') {
    return variable(name, pos);
  }
  const { decl, isFn } = p.access(name, pos);
  if (decl === null && !isFn && place.strict && !p.outer?.variables.has(name)) {
    throw parseError('VariableUndefined', `Undefined variable: ${name}`, pos);
  }
  return { kind: 'variable', name, decl, namespace: [], isFn, pos };
}

function parseReserved(p: Parser, place: Place): Expr {
  const { pos } = place;
  const word = p.next().text;
  const after = p.peek().type;
  if ((after === '(' || after === '()' || after === '!') && isCallableReserved(word)) {
    return variable(word, pos);
  }
  if (word === 'this') {
    if ((place.flags & IN_FN) !== 0) return { kind: 'this', pos };
    throw improperSymbol("'this' can only be used in functions", pos);
  }
  throw reservedError(word, pos);
}

function parseInterpolated(p: Parser, outer: Place): Expr {
  const place = p.deeper(outer);
  const first = p.next();
  const segments: Expr[] = [];
  if (first.text !== '') segments.push(constant(first.text, positionOf(first)));
  for (;;) {
    const stmt = p.grammar.block(p, place);
    segments.push({ kind: 'block', stmt, pos: stmt.pos });
    p.lexer.resumeText();
    const token = p.next();
    if (token.type === 'error') throw lexError(token);
    if (token.text !== '') segments.push(constant(token.text, positionOf(token)));
    if (token.type === 'str') break;
  }
  return { kind: 'interpolated', segments, pos: place.pos };
}

function tooLarge(what: string, max: number, pos: Position): Error {
  return parseError('LiteralTooLarge', `${what} exceeds the maximum limit (${max})`, pos);
}

function parseArray(p: Parser, outer: Place): Expr {
  const why = 'to end this array literal';
  const place: Place = { ...outer, pos: positionOf(p.next()) };
  const max = p.settings.maxArraySize;
  const items: Expr[] = [];
  for (;;) {
    if (max > 0 && items.length >= max) throw tooLarge('Size of array literal', max, p.here());
    if (p.match(']')) break;
    if (p.peek().type === 'eof') throw missingToken(']', why, p.here());
    items.push(parseExpr(p, p.deeper(place)));
    const token = p.peek();
    if (token.type === ',') p.next();
    else if (token.type === 'eof') throw missingToken(']', why, positionOf(token));
    else if (token.type === 'error') throw lexError(token);
    else if (token.type !== ']') {
      throw missingToken(',', 'to separate the items of this array literal', positionOf(token));
    }
  }
  return { kind: 'array', items, pos: place.pos };
}

function parseMap(p: Parser, outer: Place): Expr {
  const why = 'to end this object map literal';
  const place: Place = { ...outer, pos: positionOf(p.next()) };
  const max = p.settings.maxMapSize;
  const entries: MapExpr['entries'] = [];
  const seen = new Set<string>();
  for (;;) {
    if (p.match('}')) break;
    if (p.peek().type === 'eof') throw missingToken('}', why, p.here());
    const key = mapKey(p, seen, why, (place.flags & QUOTED_KEYS) !== 0);
    p.expect(':', `to follow the property '${key.name}' in this object map literal`);
    if (max > 0 && entries.length >= max) {
      throw tooLarge('Number of properties in object map literal', max, p.here());
    }
    entries.push({ key, value: parseExpr(p, p.deeper(place)) });
    const token = p.peek();
    if (token.type === ',') p.next();
    else if (token.type === 'ident') {
      throw missingToken(
        ',',
        'to separate the items of this object map literal',
        positionOf(token),
      );
    } else if (token.type === 'error') throw lexError(token);
    else if (token.type !== '}') throw missingToken('}', why, positionOf(token));
  }
  return { kind: 'map', entries, pos: place.pos };
}

function mapKey(p: Parser, seen: Set<string>, why: string, onlyQuoted: boolean): Name {
  const token = p.next();
  const pos = positionOf(token);
  if (token.type === 'ident' && onlyQuoted) throw propertyExpected(pos);
  if (token.type === 'ident' || token.type === 'str') {
    if (seen.has(token.text)) {
      const message = `Duplicated property for object map literal: ${token.text}`;
      throw parseError('DuplicatedProperty', message, pos);
    }
    seen.add(token.text);
    return { name: token.text, pos };
  }
  if (token.type === 'reserved' && isIdentifier(token.text)) throw reservedError(token.text, pos);
  if (token.type === 'error') throw lexError(token);
  if (token.type === 'interp') throw propertyExpected(pos);
  if (token.type === 'eof' || seen.size === 0) throw missingToken('}', why, pos);
  throw propertyExpected(pos);
}

function propertyExpected(pos: Position): Error {
  return parseError('PropertyExpected', 'Expecting name of a property', pos);
}

function checkModule(p: Parser, place: Place, namespace: readonly Name[]): void {
  const root = namespace[0];
  if (root && place.strict && !p.isModuleKnown(root.name)) {
    throw parseError('ModuleUndefined', `Undefined module: ${root.name}`, root.pos);
  }
}

/** Arguments after the name; the opening parenthesis has been taken unless `empty`. */
function parseArgs(p: Parser, outer: Place, name: string, empty: boolean): Expr[] {
  if (empty) return [];
  const first = p.peek();
  const why = `to close the arguments list of this function call '${name}'`;
  if (first.type === 'eof') throw missingToken(')', why, positionOf(first));
  if (first.type === 'error') throw lexError(first);
  if (p.match(')')) return [];
  const place = p.deeper(outer);
  const args: Expr[] = [];
  for (;;) {
    if (p.peek().type !== ')') args.push(parseExpr(p, place));
    const token = p.next();
    if (token.type === ')') return args;
    if (token.type === 'eof') throw missingToken(')', why, positionOf(token));
    if (token.type === 'error') throw lexError(token);
    if (token.type !== ',') {
      const separate = `to separate the arguments to function call '${name}'`;
      throw missingToken(',', separate, positionOf(token));
    }
  }
}

function parseCall(p: Parser, place: Place, callee: VariableExpr, capture: boolean): Expr {
  const empty = p.next().type === '()';
  const at: Place = { ...place, pos: callee.pos };
  const args = parseArgs(p, at, callee.name, empty);
  checkModule(p, place, callee.namespace);
  if (callee.name === 'eval') p.scope.usesEval = true;
  return {
    kind: 'call',
    name: callee.name,
    namespace: callee.namespace,
    args,
    capture,
    operator: false,
    pos: callee.pos,
  };
}

function parsePostfix(p: Parser, outer: Place, root: Expr): Expr {
  let place = outer;
  let left = root;
  for (;;) {
    const token = p.peek();
    const pos = positionOf(token);
    if (token.type === '.' || token.type === '?.') {
      p.next();
      place = p.deeper({ ...place, pos });
      left = extend(left, parseDotStep(p, place, token.type === '?.', pos));
    } else if (token.type === '[' || token.type === '?[') {
      p.next();
      place = p.deeper({ ...place, pos });
      left = parseIndexStep(p, place, left, token.type === '?[');
    } else if (left.kind !== 'variable') return left;
    else if (token.type === '(' || token.type === '()') left = parseCall(p, place, left, false);
    else if (token.type === '!') left = parseBang(p, place, left);
    else if (token.type === '::') {
      p.next();
      const { name, pos: namePos } = p.variableName();
      left = variable(name, namePos, [...left.namespace, { name: left.name, pos: left.pos }]);
    } else {
      checkModule(p, place, left.namespace);
      return left;
    }
  }
}

function parseBang(p: Parser, place: Place, callee: VariableExpr): Expr {
  const bang = p.next();
  const after = p.peek().type;
  const called = after === '(' || after === '()';
  if (callee.namespace.length > 0) {
    if (called) throw unexpected(bang);
    throw improperSymbol("'!' cannot be used to call module functions", positionOf(bang));
  }
  if (!called) throw missingToken('(', 'to start arguments list of function call', p.here());
  return parseCall(p, place, callee, true);
}

function extend(left: Expr, step: Step): ChainExpr {
  if (left.kind === 'chain') {
    left.steps.push(step);
    return left;
  }
  return { kind: 'chain', base: left, steps: [step], pos: step.opPos };
}

function parseDotStep(p: Parser, place: Place, optional: boolean, opPos: Position): Step {
  const token = p.peek();
  const pos = positionOf(token);
  if (token.type === 'reserved') {
    if (!isMethodReserved(token.text)) throw reservedError(token.text, pos);
  } else if (token.type !== 'ident') throw propertyExpected(pos);
  p.next();
  const name = token.text;
  const after = p.peek();
  if (after.type === '::')
    throw improperSymbol("Invalid symbol encountered: '::'", positionOf(after));
  if (after.type === '(' || after.type === '()' || after.type === '!') {
    const call = after.type === '!' ? parseBang(p, { ...place, pos }, variable(name, pos)) : null;
    if (call !== null) {
      const message = "method-call style does not support running within the caller's scope";
      throw parseError('MalformedCapture', message, pos);
    }
    p.next();
    const args = parseArgs(p, { ...place, pos }, name, after.type === '()');
    if (args.length === 0 && (name === 'Fn' || name === 'eval')) {
      throw improperSymbol(
        `'${name}' should not be called in method style. Try ${name}(...);`,
        pos,
      );
    }
    return { kind: 'method', name, args, optional, pos, opPos };
  }
  if (token.type === 'reserved') throw reservedError(name, pos);
  return { kind: 'property', name, optional, pos, opPos };
}

function parseIndexStep(p: Parser, place: Place, left: Expr, optional: boolean): Expr {
  const index = parseExpr(p, p.deeper(place));
  const last = left.kind === 'chain' ? left.steps.at(-1) : undefined;
  if (last?.kind === 'index') {
    // As the original: in `a?[0][1]` the second bracket decides for both.
    last.optional = optional;
  } else checkIndexType(left, index);
  const token = p.next();
  if (token.type === 'error') throw lexError(token);
  if (token.type !== ']') {
    throw missingToken(']', 'for a matching [ in this index expression', positionOf(token));
  }
  return extend(left, { kind: 'index', index, optional, pos: startOf(index), opPos: place.pos });
}

function checkIndexType(left: Expr, index: Expr): void {
  let word = '';
  if (index.kind === 'and' || index.kind === 'or') word = 'a boolean';
  else if (index.kind === 'interpolated') word = 'a string';
  else if (index.kind === 'const') {
    const { value } = index;
    if (value === null) word = '()';
    else if (typeof value === 'boolean') word = 'a boolean';
    else if (isInt(value)) word = 'a number';
    else if (typeof value === 'string') word = 'a string';
    else word = value instanceof Float ? 'a float' : 'a character';
  }
  if (word === '') return;
  if (left.kind === 'map') {
    if (word === 'a string') return;
    const message = `Object map expects string index, not ${word}`;
    throw parseError('MalformedIndexExpr', message, startOf(index));
  }
  const listed =
    left.kind === 'array' ||
    left.kind === 'interpolated' ||
    (left.kind === 'const' && (isInt(left.value) || typeof left.value === 'string'));
  if (!listed || word === 'a number') return;
  const want = word === 'a string' ? 'numeric' : 'integer';
  const message = `Array, string or bit-field expects ${want} index, not ${word}`;
  throw parseError('MalformedIndexExpr', message, startOf(index));
}

const RANGE_ENDS = new Set([']', ')', '}', ',', ';', '=>']);
const FLOW = new Set(['break', 'continue', 'return', 'throw']);

function operatorPrecedence(p: Parser, token: Token): number {
  if (token.type === 'custom') {
    const precedence = p.settings.customOperators.get(token.text);
    if (precedence === undefined) throw reservedError(token.text, positionOf(token));
    return precedence;
  }
  if (token.type === 'reserved' && !isIdentifier(token.text)) {
    throw parseError('UnknownOperator', `Unknown operator: '${token.text}'`, positionOf(token));
  }
  return precedenceOf(token.type);
}

function parseBinary(p: Parser, outer: Place, parent: number, left: Expr): Expr {
  let place: Place = { ...outer, pos: left.pos };
  let root = left;
  for (;;) {
    const token = p.peek();
    if (blocked(p, token)) return root;
    const precedence = operatorPrecedence(p, token);
    const right = token.type === '**';
    if (precedence < parent || (precedence === parent && !right)) return root;
    p.next();
    const pos = positionOf(token);
    let operand: Expr;
    if (token.type === '??' && FLOW.has(p.peek().type)) {
      const stmt = p.grammar.statement(p, place);
      operand = { kind: 'block', stmt, pos: stmt.pos };
    } else if ((token.type === '..' || token.type === '..=') && RANGE_ENDS.has(p.peek().type)) {
      operand = constant(null, p.here());
    } else operand = parseUnary(p, place);
    const next = operatorPrecedence(p, p.peek());
    if ((precedence === next && right) || precedence < next) {
      operand = parseBinary(p, p.deeper(place), precedence, operand);
    }
    place = p.deeper(place, pos);
    root = makeBinary(p, token, root, operand, pos);
  }
}

function makeBinary(p: Parser, token: Token, left: Expr, right: Expr, pos: Position): Expr {
  switch (token.type) {
    case '&&':
      return logic('and', ensureBool(left), ensureBool(right), pos);
    case '||':
      return logic('or', ensureBool(left), ensureBool(right), pos);
    case '??':
      return logic('coalesce', left, right, pos);
    case 'in':
    case '!in': {
      const call: CallExpr = {
        kind: 'call',
        name: 'contains',
        namespace: [],
        args: [right, left],
        capture: false,
        operator: false,
        pos,
      };
      return token.type === 'in' ? call : operatorCall('!', [call], pos);
    }
    case 'custom':
      return {
        kind: 'call',
        name: token.text,
        namespace: [],
        args: [left, right],
        capture: false,
        operator: !isIdentifier(token.text),
        pos,
      };
    default:
      return operatorCall(
        token.type === 'u-' ? '-' : token.type === 'u+' ? '+' : token.type,
        [left, right],
        pos,
      );
  }
}

function logic(kind: 'and' | 'or' | 'coalesce', left: Expr, right: Expr, pos: Position): Expr {
  if (left.kind === kind) {
    if (right.kind === kind) left.items.push(...right.items);
    else left.items.push(right);
    return left;
  }
  if (right.kind === kind) {
    right.items.unshift(left);
    right.pos = pos;
    return right;
  }
  return { kind, items: [left, right], pos };
}
