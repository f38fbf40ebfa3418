/**
 * The parser's state and what all grammar files share: token look-ahead, scopes of names, depth
 * counting, errors. The grammar itself is parse-expressions.ts, parse-statements.ts and
 * parse-functions.ts: plain functions over one `Parser`, which reach each other through its
 * `grammar`; parse.ts puts them together.
 *
 * P1  every recursion goes through `deeper`, so depth is bounded even when no limit is set: the
 *     JavaScript stack cannot overflow.
 * P2  error kinds and positions are the original's; the first error ends the parse.
 */
import type { Declaration, Expr, FnDef, ImportSite, Name, Stmt } from './ast.ts';
import { type Position, RhaiError } from './errors.ts';
import { parseHint } from './hints-parse.ts';
import type { Settings } from './limits.ts';
import { Lexer, lexError, type Token, tokenText } from './tokens.ts';
import type { Value } from './values.ts';

/** Nesting that the parser never goes beyond, whatever the settings say. */
export const DEPTH_CEILING = 256;

export const GLOBAL = 1;
export const IN_FN = 2;
export const IN_CLOSURE = 4;
export const BREAKABLE = 8;
export const ONLY_EXPRESSIONS = 16;
export const QUOTED_KEYS = 32;

/** Where we are: nesting, what is allowed. Immutable; each construct makes the next one. */
export interface Place {
  readonly level: number;
  readonly pos: Position;
  readonly flags: number;
  readonly maxDepth: number;
  readonly strict: boolean;
  readonly allow: Allow;
}
export interface Allow {
  readonly ifExpr: boolean;
  readonly switchExpr: boolean;
  readonly stmtExpr: boolean;
  readonly loopExpr: boolean;
  readonly anonFn: boolean;
}

/** The names visible in one function, and what its closures took from outside. */
export interface Scope {
  stack: Declaration[];
  blockStart: number;
  externals: Name[];
  /** Has a call of eval, which may add variables at run time. */
  usesEval: boolean;
}

/** The parts of the grammar that contain each other. */
export interface Grammar {
  expr(p: Parser, place: Place): Expr;
  closure(p: Parser, place: Place): Expr;
  statement(p: Parser, place: Place): Stmt;
  block(p: Parser, place: Place): Stmt;
  if(p: Parser, place: Place): Stmt;
  switch(p: Parser, place: Place): Stmt;
  while(p: Parser, place: Place): Stmt;
  do(p: Parser, place: Place): Stmt;
  for(p: Parser, place: Place): Stmt;
}

export interface OuterNames {
  /** Constants and variables the host puts in scope, when the compiler is told about them. */
  readonly variables: ReadonlyMap<string, Value | undefined>;
}

export function parseError(parse: string, message: string, pos: Position): RhaiError {
  return new RhaiError('ErrorParsing', { name: message, parse }, pos);
}

export function missingToken(token: string, why: string, pos: Position): RhaiError {
  return parseError('MissingToken', `Expecting '${token}' ${why}`, pos);
}

export function improperSymbol(message: string, pos: Position): RhaiError {
  return new RhaiError(
    'ErrorParsing',
    { name: message, parse: 'BadInput', lex: 'ImproperSymbol' },
    pos,
  );
}

export function unexpected(token: Token): RhaiError {
  return new RhaiError(
    'ErrorParsing',
    { name: `Unexpected '${tokenText(token)}'`, parse: 'BadInput', lex: 'UnexpectedInput' },
    positionOf(token),
  );
}

export function reservedError(word: string, pos: Position): RhaiError {
  const what = /^_*[A-Za-z]/.test(word) ? 'keyword' : 'symbol';
  return parseError('Reserved', `'${word}' is a reserved ${what}`, pos);
}

export function positionOf(token: Token): Position {
  return { line: token.line, column: token.column };
}

export class Parser {
  readonly settings: Settings;
  readonly source: string;
  readonly lexer: Lexer;
  readonly outer: OuterNames | null;
  readonly grammar: Grammar;
  readonly functions = new Map<string, FnDef>();
  private readonly fnNames = new Set<string>();
  scope: Scope = { stack: [], blockStart: 0, externals: [], usesEval: false };
  private readonly outermost = this.scope;
  /** Names of modules imported so far, for strict mode. */
  imports: string[] = [];
  readonly importSites: ImportSite[] = [];
  /** While a switch case is read, `|` separates cases. */
  pipeSeparates = false;
  private ahead: Token | null = null;
  private closureCount = 0;

  constructor(
    grammar: Grammar,
    source: string,
    settings: Settings,
    outer: OuterNames | null,
    json: 'no' | 'null' | 'strict' = 'no',
  ) {
    this.grammar = grammar;
    this.source = source;
    this.settings = settings;
    this.lexer = new Lexer(source, settings, json);
    this.outer = outer;
  }

  peek(): Token {
    this.ahead ??= this.lexer.next();
    return this.ahead;
  }

  next(): Token {
    const token = this.peek();
    this.ahead = null;
    return token;
  }

  /** Takes the token if it is the next one. */
  match(type: string): boolean {
    if (this.peek().type !== type) return false;
    this.ahead = null;
    return true;
  }

  /** Takes the token, or fails with MissingToken. */
  expect(type: string, why: string): Token {
    const token = this.next();
    if (token.type === type) return token;
    if (token.type === 'error') throw lexError(token);
    throw missingToken(type, why, positionOf(token));
  }

  here(): Position {
    return positionOf(this.peek());
  }

  deeper(place: Place, pos: Position = place.pos): Place {
    const { level, maxDepth } = place;
    if ((maxDepth > 0 && level >= maxDepth) || level >= DEPTH_CEILING) {
      throw parseError('ExprTooDeep', 'Expression exceeds maximum complexity', place.pos);
    }
    return { ...place, level: level + 1, pos };
  }

  /** The name after let, for, catch, as … */
  variableName(): Name {
    const token = this.next();
    const pos = positionOf(token);
    if (token.type === 'ident') return { name: token.text, pos };
    if (token.type === 'reserved' && /^_*[A-Za-z]/.test(token.text)) {
      throw reservedError(token.text, pos);
    }
    if (token.type === 'error') throw lexError(token);
    throw parseError('VariableExpected', 'Expecting name of a variable', pos);
  }

  declare(name: string, constant = false): Declaration {
    const decl = { name, constant, captured: false, aliased: false, slot: -1 };
    this.scope.stack.push(decl);
    return decl;
  }

  find(name: string): Declaration | null {
    const { stack } = this.scope;
    for (let i = stack.length - 1; i >= 0; i--) {
      const decl = stack[i] as Declaration;
      if (decl.name === name) return decl;
    }
    return null;
  }

  define(key: string, fn: FnDef): void {
    this.functions.set(key, fn);
    this.fnNames.add(fn.name);
  }

  isFnName(name: string): boolean {
    return this.fnNames.has(name);
  }

  /** Finds a variable; one that is not here is noted as wanted from outside, for closures. */
  access(name: string, pos: Position): { decl: Declaration | null; isFn: boolean } {
    const decl = this.find(name);
    const isFn = this.isFnName(name);
    if (decl === null && !isFn && !this.scope.externals.some((e) => e.name === name)) {
      this.scope.externals.push({ name, pos });
    }
    return { decl, isFn };
  }

  isModuleKnown(root: string): boolean {
    return root === 'global' || this.imports.includes(root);
  }

  /** Gives an error the advice there is. */
  advise(error: RhaiError): RhaiError {
    const host = [...(this.outer?.variables.keys() ?? [])];
    const inFunction = this.scope !== this.outermost;
    error.hint ??= parseHint(error, {
      source: this.source,
      names: [...this.scope.stack.map(({ name }) => name), ...(inFunction ? [] : host)],
      hostNames: new Set(host),
      inFunction,
      modules: this.imports,
      maxDepth: this.settings.maxExprDepth,
      maxFunctionDepth: this.settings.maxFunctionExprDepth,
    });
    return error;
  }

  closureName(): string {
    // Deterministic: the original hashes the body, only the shape `anon$` + 16 hex digits counts.
    let hash = 0xcbf29ce484222325n;
    const text = `${this.closureCount++}:${this.source.length}`;
    for (let i = 0; i < text.length; i++) {
      hash = BigInt.asUintN(64, (hash ^ BigInt(text.charCodeAt(i))) * 0x100000001b3n);
    }
    return `anon$${hash.toString(16).padStart(16, '0')}`;
  }

  allowed(strict: boolean): Pick<Place, 'allow' | 'strict'> {
    const { settings } = this;
    return {
      strict,
      allow: {
        ifExpr: settings.allowIfExpression,
        switchExpr: settings.allowSwitchExpression,
        stmtExpr: settings.allowStatementExpression,
        loopExpr: settings.allowLoopExpressions,
        anonFn: settings.allowAnonymousFn,
      },
    };
  }
}
