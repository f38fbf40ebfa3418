/**
 * The parser's entrance: a script, a single expression, or JSON in the script's grammar. State and
 * depth counting are parser.ts, the grammar is parse-expressions.ts and its neighbours.
 */
import type { Script, Stmt } from './ast.ts';
import { RhaiError } from './errors.ts';
import type { Settings } from './limits.ts';
import { parseExpr } from './parse-expressions.ts';
import { parseClosure } from './parse-functions.ts';
import {
  parseBlock,
  parseDo,
  parseFor,
  parseIf,
  parseStatement,
  parseSwitch,
  parseWhile,
  selfTerminated,
} from './parse-statements.ts';
import {
  GLOBAL,
  type Grammar,
  missingToken,
  ONLY_EXPRESSIONS,
  type OuterNames,
  Parser,
  type Place,
  positionOf,
  QUOTED_KEYS,
  unexpected,
} from './parser.ts';
import { lexError } from './tokens.ts';

const GRAMMAR: Grammar = {
  expr: parseExpr,
  closure: parseClosure,
  statement: parseStatement,
  block: parseBlock,
  if: parseIf,
  switch: parseSwitch,
  while: parseWhile,
  do: parseDo,
  for: parseFor,
};

function startPlace(parser: Parser): Place {
  return {
    level: 0,
    pos: { line: 1, column: 0 },
    flags: GLOBAL,
    maxDepth: parser.settings.maxExprDepth,
    ...parser.allowed(parser.settings.strictVariables),
  };
}

/** A whole script. */
export function parseScript(source: string, settings: Settings, outer: OuterNames | null): Script {
  const parser = new Parser(GRAMMAR, source, settings, outer);
  return advised(parser, () => readScript(parser));
}

/** What a reading gives; errors get what the parser can say about them. */
function advised(parser: Parser, read: () => Script): Script {
  try {
    return read();
  } catch (error) {
    if (error instanceof RhaiError) parser.advise(error);
    throw error;
  }
}

function readScript(parser: Parser): Script {
  const place = startPlace(parser);
  const body: Stmt[] = [];
  while (parser.peek().type !== 'eof') {
    const stmt = parseStatement(parser, place);
    if (stmt.kind === 'noop') continue;
    body.push(stmt);
    const token = parser.peek();
    if (token.type === 'eof') break;
    if (selfTerminated(stmt)) continue;
    if (token.type === ';') parser.next();
    else if (token.type === 'error') throw lexError(token);
    else throw missingToken(';', 'to terminate this statement', positionOf(token));
  }
  return scriptOf(parser, body);
}

function scriptOf(parser: Parser, body: Stmt[]): Script {
  return {
    source: parser.source,
    body,
    functions: [...parser.functions.values()],
    usesEval: parser.scope.usesEval,
    importSites: parser.importSites,
  };
}

/** A single expression, without statements in it. */
export function parseExpression(
  source: string,
  settings: Settings,
  outer: OuterNames | null,
  json: 'no' | 'null' | 'strict' = 'no',
): Script {
  const parser = new Parser(GRAMMAR, source, settings, outer, json);
  return advised(parser, () => readExpression(parser, json !== 'no'));
}

function readExpression(parser: Parser, json: boolean): Script {
  const start = startPlace(parser);
  const place: Place = {
    ...start,
    flags: GLOBAL | ONLY_EXPRESSIONS | (json ? QUOTED_KEYS : 0),
    allow: { ...start.allow, stmtExpr: false, loopExpr: false },
  };
  const expr = parseExpr(parser, place);
  const token = parser.peek();
  if (token.type !== 'eof') throw unexpected(token);
  const body: Stmt[] = [{ kind: 'expr', expr, pos: expr.pos }];
  return scriptOf(parser, body);
}
