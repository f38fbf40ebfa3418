/**
 * The errors of Rhai: run-time kinds (the original's EvalAltResult), parse kinds (ParseErrorType)
 * and lexer kinds (LexError), with the messages the original prints.
 *
 * Everything that goes wrong in a script is a RhaiError; no other exception may leave this folder.
 * Who throws what is decided where it happens (operators.ts, machine, stdlib); the shape of an
 * answer line is protocol.ts.
 */
import { displayText } from './text.ts';
import { RMap, typeName, type Value } from './values.ts';

export interface Position {
  /** From 1; 0 means none. */
  readonly line: number;
  /** In characters, from 1; 0 means the start of the line. */
  readonly column: number;
}

export const NO_POSITION: Position = { line: 0, column: 0 };

export type ErrorKind =
  | 'ErrorSystem'
  | 'ErrorParsing'
  | 'ErrorVariableExists'
  | 'ErrorForbiddenVariable'
  | 'ErrorVariableNotFound'
  | 'ErrorPropertyNotFound'
  | 'ErrorIndexNotFound'
  | 'ErrorFunctionNotFound'
  | 'ErrorModuleNotFound'
  | 'ErrorInFunctionCall'
  | 'ErrorInModule'
  | 'ErrorUnboundThis'
  | 'ErrorMismatchDataType'
  | 'ErrorMismatchOutputType'
  | 'ErrorIndexingType'
  | 'ErrorArrayBounds'
  | 'ErrorStringBounds'
  | 'ErrorBitFieldBounds'
  | 'ErrorFor'
  | 'ErrorDataRace'
  | 'ErrorNonPureMethodCallOnConstant'
  | 'ErrorAssignmentToConstant'
  | 'ErrorDotExpr'
  | 'ErrorArithmetic'
  | 'ErrorTooManyOperations'
  | 'ErrorTooManyVariables'
  | 'ErrorTooManyModules'
  | 'ErrorStackOverflow'
  | 'ErrorDataTooLarge'
  | 'ErrorTerminated'
  | 'ErrorCustomSyntax'
  | 'ErrorRuntime'
  | 'LoopBreak';

/** A frame of the call stack at the moment of the error, innermost first. */
export interface StackFrame {
  readonly fn: string;
  readonly position: Position;
}

/** What a kind carries besides its position: at most two names, a value, an inner error. */
export interface ErrorDetails {
  readonly name?: string;
  readonly second?: string;
  readonly value?: Value;
  readonly length?: number;
  readonly index?: bigint | number;
  readonly inner?: RhaiError;
  readonly parse?: string;
  readonly lex?: string;
  /** It is about the value that was to be assigned, not about where to. */
  readonly assigned?: boolean;
}

export class RhaiError extends Error {
  readonly kind: ErrorKind;
  readonly details: ErrorDetails;
  position: Position;
  callStack: readonly StackFrame[] = [];
  /** Advice beside the message, which stays the original's; set on the innermost error. */
  hint: string | undefined = undefined;

  constructor(kind: ErrorKind, details: ErrorDetails = {}, position: Position = NO_POSITION) {
    super(kind);
    this.kind = kind;
    this.details = details;
    this.position = position;
    Object.defineProperty(this, 'message', { get: () => describe(this), configurable: true });
  }

  /** The value a script threw (ErrorRuntime). */
  get thrown(): Value | undefined {
    return this.kind === 'ErrorRuntime' ? (this.details.value ?? null) : undefined;
  }
  get inner(): RhaiError | undefined {
    return this.details.inner;
  }
  get parse(): string | undefined {
    return this.details.parse;
  }
  get lex(): string | undefined {
    return this.details.lex;
  }
}

/** An error with a thrown value, as `throw value` makes it. */
export function runtimeError(value: Value, position: Position = NO_POSITION): RhaiError {
  return new RhaiError('ErrorRuntime', { value }, position);
}

export function arithmeticError(message: string): RhaiError {
  return new RhaiError('ErrorArithmetic', { name: message });
}

/** Types that these errors call by their name in the original's own language. */
const UNMAPPED: ReadonlyMap<string, string> = new Map([
  ['range', 'core::ops::range::Range<i64>'],
  ['range=', 'core::ops::range::RangeInclusive<i64>'],
]);

export function mismatch(
  requested: string,
  actual: string,
  position = NO_POSITION,
  assigned = false,
): RhaiError {
  const second = UNMAPPED.get(actual) ?? actual;
  return new RhaiError('ErrorMismatchDataType', { name: requested, second, assigned }, position);
}

const UNCATCHABLE = new Set<ErrorKind>([
  'ErrorSystem',
  'ErrorParsing',
  'ErrorCustomSyntax',
  'ErrorTooManyOperations',
  'ErrorTooManyVariables',
  'ErrorTooManyModules',
  'ErrorStackOverflow',
  'ErrorDataTooLarge',
  'ErrorTerminated',
]);

/** Can `try … catch` in a script stop it? Once wrapped in a call, every error can be caught. */
export function isCatchable(error: RhaiError): boolean {
  return !UNCATCHABLE.has(error.kind);
}

export function positionText(position: Position): string {
  if (position.line === 0) return 'none';
  return position.column === 0
    ? `line ${position.line}`
    : `line ${position.line}, position ${position.column}`;
}

/** The text the original prints, with the position at its end. */
export function describe(error: RhaiError, source = ''): string {
  // From the innermost out: calls may nest deeper than the host's stack.
  const chain: RhaiError[] = [];
  for (let each: RhaiError | undefined = error; each; each = each.inner) chain.push(each);
  let text = '';
  for (let i = chain.length - 1; i >= 0; i--) {
    const each = chain[i] as RhaiError;
    const outer = chain[i - 1];
    text = each.inner === undefined ? body(each) : text + around(each);
    const from =
      outer === undefined
        ? source
        : outer.kind === 'ErrorInFunctionCall'
          ? (outer.details.second ?? '')
          : '';
    if (from !== '') text += ` @ '${from}'`;
    if (each.position.line !== 0) text += ` (${positionText(each.position)})`;
  }
  return text;
}

/** What stands behind the text of an inner error. */
function around({ kind, details }: RhaiError): string {
  const { name = '', second = '' } = details;
  if (kind === 'ErrorInModule') return `\nin module${name === '' ? '' : ` '${name}'`}`;
  const call = name.startsWith('anon$') ? 'closure call' : `call to function '${name}'`;
  return `\nin ${call}${second === '' ? '' : ` (from '${second}')`}`;
}

/** A thrown value in a message; some values share so much that no text holds them. */
function thrownText(value: Value): string {
  try {
    return displayText(value);
  } catch (error) {
    if (error instanceof RangeError) return typeName(value);
    throw error;
  }
}

const NAMED: Partial<Record<ErrorKind, readonly [prefix: string, empty: string]>> = {
  ErrorParsing: ['Syntax error: ', 'Syntax error'],
  ErrorVariableExists: ['Variable already defined: ', ''],
  ErrorForbiddenVariable: ['Forbidden variable name: ', ''],
  ErrorVariableNotFound: ['Variable not found: ', ''],
  ErrorPropertyNotFound: ['Property not found: ', ''],
  ErrorFunctionNotFound: ['Function not found: ', ''],
  ErrorModuleNotFound: ['Module not found: ', ''],
  ErrorIndexingType: ['Indexer unavailable: ', ''],
  ErrorAssignmentToConstant: ['Cannot modify constant ', ''],
  ErrorArithmetic: ['', 'Arithmetic error'],
  ErrorDotExpr: ['', 'Malformed dot expression'],
  ErrorSystem: ['', 'System error'],
};

const FIXED: Partial<Record<ErrorKind, string>> = {
  ErrorUnboundThis: "'this' not bound",
  ErrorFor: 'For loop expects iterable type',
  ErrorTooManyOperations: 'Too many operations',
  ErrorTooManyVariables: 'Too many variables defined',
  ErrorTooManyModules: 'Too many modules imported',
  ErrorStackOverflow: 'Stack overflow',
  ErrorTerminated: 'Script terminated',
};

function body(error: RhaiError): string {
  const { name = '', second = '', value = null, length = 0, index = 0, inner } = error.details;
  const named = NAMED[error.kind];
  if (named) return name === '' && named[1] !== '' ? named[1] : named[0] + name;
  const fixed = FIXED[error.kind];
  if (fixed) return fixed;
  switch (error.kind) {
    case 'ErrorInFunctionCall':
      return (inner ? describe(inner, second) : '') + around(error);
    case 'ErrorInModule':
      return (inner ? describe(inner) : '') + around(error);
    case 'ErrorIndexNotFound':
      return `Invalid index: ${displayText(value)}`;
    case 'ErrorDataRace':
      return `Data race detected${name === '' ? '' : ` on variable '${name}'`}`;
    case 'ErrorRuntime':
      return value === null || value === ''
        ? 'Runtime error'
        : `Runtime error: ${thrownText(value)}`;
    case 'ErrorNonPureMethodCallOnConstant':
      return nonPure(name);
    case 'ErrorMismatchOutputType':
      return typeMismatch('Output type incorrect', name, second);
    case 'ErrorMismatchDataType':
      return typeMismatch('Data type incorrect', name, second);
    case 'ErrorArrayBounds':
      return bounds('Array', index, length, 'element', 'array');
    case 'ErrorStringBounds':
      return bounds('String', index, length, 'character', 'string');
    case 'ErrorBitFieldBounds':
      return `Bit-field index ${index} out of bounds: only ${length} bits in bit-field`;
    case 'ErrorDataTooLarge':
      return `${name} too large`;
    case 'LoopBreak':
      return `'${name}' must be within a loop`;
    default:
      return name;
  }
}

function nonPure(name: string): string {
  if (name.startsWith('get$'))
    return `Non-pure property ${name.slice(4)} cannot be accessed on constant`;
  if (name.startsWith('set$')) return `Cannot modify property '${name.slice(4)}' of constant`;
  if (name === 'index$get$') return 'Non-pure indexer cannot be accessed on constant';
  if (name === 'index$set$') return 'Cannot assign to indexer of constant';
  return `Non-pure method '${name}' cannot be called on constant`;
}

function typeMismatch(what: string, requested: string, actual: string): string {
  if (actual === '') return `${what}, expecting ${requested}`;
  return requested === '' ? `${what}: ${actual}` : `${what}: ${actual} (expecting ${requested})`;
}

function bounds(
  what: string,
  index: bigint | number,
  length: number,
  unit: string,
  container: string,
): string {
  const rest =
    length === 0
      ? `${container} is empty`
      : `only ${length} ${unit}${length === 1 ? '' : 's'} in ${container}`;
  return `${what} index ${index} out of bounds: ${rest}`;
}

/** The map a `catch (e)` gets for an error of the engine. */
export function errorToMap(error: RhaiError): RMap {
  const map = new Map<string, Value>();
  map.set('error', error.kind);
  // Its own place is in `line` and `position`.
  map.set('message', body(error));
  const { name = '', second = '', value = null, length = 0, index = 0 } = error.details;
  switch (error.kind) {
    case 'ErrorFunctionNotFound':
    case 'ErrorNonPureMethodCallOnConstant':
      map.set('function', name);
      break;
    case 'ErrorInFunctionCall':
      map.set('function', name).set('source', second);
      break;
    case 'ErrorMismatchDataType':
    case 'ErrorMismatchOutputType':
      map.set('requested', name).set('actual', second);
      break;
    case 'ErrorArrayBounds':
    case 'ErrorStringBounds':
    case 'ErrorBitFieldBounds':
      map.set('length', length).set('index', index);
      break;
    case 'ErrorVariableExists':
    case 'ErrorForbiddenVariable':
    case 'ErrorVariableNotFound':
    case 'ErrorPropertyNotFound':
    case 'ErrorDataRace':
    case 'ErrorAssignmentToConstant':
      map.set('variable', name);
      break;
    case 'ErrorIndexNotFound':
      map.set('index', value);
      break;
    case 'ErrorInModule':
    case 'ErrorModuleNotFound':
      map.set('module', name);
      break;
    case 'ErrorDotExpr':
      map.set('property', name);
      break;
    case 'ErrorIndexingType':
    case 'ErrorDataTooLarge':
      map.set('type', name);
      break;
    default:
  }
  return new RMap(map);
}

/** The innermost error and the module it happened in; '' is the script itself. */
export function originOf(error: RhaiError): { error: RhaiError; path: string } {
  let path = '';
  let deepest = error;
  while (deepest.inner) {
    const { kind, details } = deepest;
    if (kind === 'ErrorInModule') path = details.name ?? '';
    // A call names where its function stands; a native function stands nowhere.
    else if (kind === 'ErrorInFunctionCall') path = details.second ?? '';
    deepest = deepest.inner;
  }
  return { error: deepest, path };
}

/** What can be done about an error, where something is known. */
export function hintOf(error: RhaiError): string | undefined {
  return originOf(error).error.hint;
}

/**
 * The error with the line it points at and a caret under the place. `moduleSource` gives the sources of
 * modules, for errors that happened in one.
 */
export function prettyError(
  error: RhaiError,
  source: string,
  moduleSource: (path: string) => string | undefined = () => undefined,
): string {
  const { error: deepest, path } = originOf(error);
  const lines = (path === '' ? source : (moduleSource(path) ?? '')).split('\n');
  const top = deepest.callStack[0]?.position ?? error.callStack[0]?.position ?? NO_POSITION;
  const at = deepest.position.line === 0 ? top : deepest.position;
  const message = describe(error);
  const line = lines[at.line - 1];
  if (at.line === 0 || line === undefined) return message;
  const gutter = path === '' ? `${at.line}: ` : `${path}:${at.line}: `;
  const { shown, caret } = excerpt(line.replace(/\r$/, ''), Math.max(at.column - 1, 0));
  const pad = Array.from(shown.slice(0, caret), (c) => (c === '\t' ? '\t' : ' ')).join('');
  return `${gutter}${shown}\n${' '.repeat(gutter.length)}${pad}^ ${message}`;
}

/** Characters of a source line that are shown around the place of an error. */
const EXCERPT_LENGTH = 160;

/** A line, or of a long one the part around a character; `caret` is where that character then is. */
function excerpt(line: string, at: number): { shown: string; caret: number } {
  const characters = Array.from(line);
  if (characters.length <= EXCERPT_LENGTH) {
    return { shown: line, caret: characters.slice(0, at).join('').length };
  }
  const from = Math.max(0, Math.min(at - EXCERPT_LENGTH / 2, characters.length - EXCERPT_LENGTH));
  const part = characters.slice(from, from + EXCERPT_LENGTH);
  const head = from > 0 ? '…' : '';
  const tail = from + EXCERPT_LENGTH < characters.length ? '…' : '';
  const caret = head.length + part.slice(0, at - from).join('').length;
  return { shown: `${head}${part.join('')}${tail}`, caret };
}
