/**
 * Parsing of `fn` definitions and of closures, which are lifted to functions: the variables they
 * take from outside become leading parameters, bound when the closure is made.
 */
import type { Declaration, Expr, FnDef, Name, VariableExpr } from './ast.ts';
import {
  GLOBAL,
  IN_CLOSURE,
  IN_FN,
  missingToken,
  ONLY_EXPRESSIONS,
  type Parser,
  type Place,
  parseError,
  positionOf,
  QUOTED_KEYS,
  reservedError,
  type Scope,
} from './parser.ts';
import { isIdentifier, KEYWORDS, lexError, type Token } from './tokens.ts';

export const WRONG_FN_DEFINITION =
  'Function definitions must be at global level and cannot be inside a block or another function';

function newScope(): Scope {
  return { stack: [], blockStart: 0, externals: [], usesEval: false };
}

export function functionKey(name: string, arity: number, thisType: string | null): string {
  return `${thisType === null ? '' : `${thisType}.`}${name}/${arity}`;
}

function checkCount(p: Parser, place: Place, pos = place.pos): void {
  if (p.functions.size < p.settings.maxFunctions) return;
  throw parseError('TooManyFunctions', 'Number of functions defined exceeds maximum limit', pos);
}

/** `fn …` or `private fn …`; the definition goes into the parser's table. */
export function parseFunction(p: Parser, place: Place): void {
  const isPrivate = p.match('private');
  const token = p.next();
  const pos = positionOf(token);
  if (token.type !== 'fn') throw missingToken('fn', "following 'private'", pos);
  if ((place.flags & GLOBAL) === 0) {
    throw parseError('WrongFnDefinition', WRONG_FN_DEFINITION, place.pos);
  }
  checkCount(p, place, pos);
  const outer = p.scope;
  const imports = p.imports;
  p.scope = newScope();
  p.imports = [...imports];
  const fn = parseDefinition(
    p,
    {
      level: 0,
      pos,
      flags: IN_FN,
      maxDepth: p.settings.maxFunctionExprDepth,
      ...p.allowed(place.strict),
    },
    isPrivate,
  );
  p.scope = outer;
  p.imports = imports;
  const key = functionKey(fn.name, fn.params.length, fn.thisType);
  if (p.functions.has(key)) {
    const count = fn.params.length;
    const params =
      count === 0 ? 'no parameters' : count === 1 ? '1 parameter' : `${count} parameters`;
    const message = `Function ${fn.name} with ${params} already exists`;
    throw parseError('FnDuplicatedDefinition', message, pos);
  }
  p.define(key, fn);
}

/** The type before the dot in `fn int.f()`, as type_of names it. */
function typeOfThis(name: string): string {
  if (name === 'int') return 'i64';
  return name === 'float' ? 'f64' : name;
}

function parseDefinition(p: Parser, outer: Place, isPrivate: boolean): FnDef {
  const place = p.deeper(outer);
  let token: Token = p.next();
  let thisType: string | null = null;
  if (token.type === 'str' || token.type === 'ident') {
    if (p.match('.')) {
      thisType = typeOfThis(token.text);
      token = p.next();
    } else if (token.type === 'str') {
      throw missingToken('.', "after the type name for 'this'", p.here());
    }
  }
  const pos = positionOf(token);
  if (token.type === 'reserved') throw reservedError(token.text, pos);
  const named = token.type === 'ident' || token.type === 'custom';
  if (!named || !isIdentifier(token.text) || KEYWORDS.has(token.text)) {
    throw parseError('FnMissingName', 'Expecting function name in function declaration', pos);
  }
  const name = token.text;
  let empty = p.match('()');
  if (!empty) {
    if (!p.match('(')) {
      throw parseError('FnMissingParams', `Expecting parameters for function ${name}`, p.here());
    }
    empty = p.match(')');
  }
  const params = empty ? [] : parseParams(p, name, ')');
  if (p.peek().type !== '{') {
    const message = `Expecting body statement block for function ${name}`;
    throw parseError('FnMissingBody', message, p.here());
  }
  const body = p.grammar.block(p, place);
  const { usesEval } = p.scope;
  const { pos: fnPos } = outer;
  return {
    name,
    isPrivate,
    thisType,
    params,
    captured: 0,
    usesEval,
    body,
    pos: fnPos,
    proto: null,
  };
}

function parseParams(p: Parser, fnName: string, end: ')' | '|'): Declaration[] {
  const params: Declaration[] = [];
  for (;;) {
    const token = p.next();
    const pos = positionOf(token);
    if (token.type === end) break;
    if (token.type === 'ident') {
      if (params.some((d) => d.name === token.text)) {
        const message = `Duplicated parameter ${token.text} for function ${fnName}`;
        throw parseError('FnDuplicatedParam', message, pos);
      }
      params.push(p.declare(token.text));
    } else if (token.type === 'error') throw lexError(token);
    else if (token.type === 'reserved') throw reservedError(token.text, pos);
    else if (KEYWORDS.has(token.type)) {
      throw parseError('VariableExpected', 'Expecting name of a variable', pos);
    } else if (end === ')') {
      throw missingToken(')', `to close the parameters list of function '${fnName}'`, pos);
    } else {
      const why = 'to close the parameters list of anonymous function or closure';
      throw missingToken('|', why, pos);
    }
    const after = p.next();
    if (after.type === end) break;
    if (after.type === 'error') throw lexError(after);
    if (after.type !== ',') {
      const why =
        end === ')'
          ? `to separate the parameters of function '${fnName}'`
          : 'to separate the parameters of anonymous function';
      throw missingToken(',', why, positionOf(after));
    }
  }
  return params;
}

/** `|x, y| body`. */
export function parseClosure(p: Parser, place: Place): Expr {
  checkCount(p, place);
  const outer = p.scope;
  const imports = p.imports;
  p.scope = newScope();
  p.imports = [...imports];
  const inner = p.scope;
  let params: Declaration[] = [];
  if (p.next().type !== '||' && !p.match('|')) params = parseParams(p, '', '|');
  const pipes = p.pipeSeparates;
  const body = p.grammar.statement(
    p,
    p.deeper({
      ...place,
      ...p.allowed(false),
      flags: IN_FN | IN_CLOSURE | (place.flags & (ONLY_EXPRESSIONS | QUOTED_KEYS)),
    }),
  );
  p.pipeSeparates = pipes;
  p.scope = outer;
  p.imports = imports;
  const name = p.closureName();
  const captured = inner.externals;
  const fn: FnDef = {
    name,
    isPrivate: false,
    thisType: null,
    params: [...capturedParams(captured), ...params],
    captured: captured.length,
    usesEval: inner.usesEval,
    body,
    pos: place.pos,
    proto: null,
  };
  const externals = captured.map(({ name: wanted, pos }): VariableExpr => {
    const { decl, isFn } = p.access(wanted, pos);
    const inClosure = (place.flags & IN_CLOSURE) !== 0;
    if (!isFn && !decl && !inClosure && place.strict && !p.outer?.variables.has(wanted)) {
      throw parseError('VariableUndefined', `Undefined variable: ${wanted}`, pos);
    }
    if (decl) decl.captured = true;
    return { kind: 'variable', name: wanted, decl, namespace: [], isFn, pos };
  });
  p.define(functionKey(name, fn.params.length, null), fn);
  return { kind: 'closure', fn, externals, pos: place.pos };
}

/** The outside variables a closure names, as its leading parameters; they always live in cells. */
function capturedParams(names: readonly Name[]): Declaration[] {
  return names.map(({ name }) => ({
    name,
    constant: false,
    captured: true,
    aliased: false,
    slot: -1,
  }));
}
