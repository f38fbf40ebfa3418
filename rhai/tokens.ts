/**
 * The lexer: source text to tokens, one at a time, on demand.
 *
 * On demand matters: inside a back-tick string the parser tells the lexer when text goes on
 * (`resumeText`), and whether `-` is unary depends on the token before. Lexer errors are tokens
 * ('error'), thrown by the parser where it meets them. Which symbols are disabled or custom
 * operators comes from the settings. Grammar is parse.ts and its neighbours.
 */
import { RhaiError } from './errors.ts';
import type { Settings } from './limits.ts';
import { type Int, makeInt } from './values.ts';

/** 'int' 'float' 'ident' 'char' 'str' 'interp' 'error' 'reserved' 'custom' 'eof', or a symbol itself; 'u-' 'u+' are unary. */
export interface Token {
  readonly type: string;
  /** Name or text of ident, str, interp, char, reserved, custom. */
  readonly text: string;
  readonly number: Int;
  readonly line: number;
  readonly column: number;
  readonly lex?: LexFault;
}

export interface LexFault {
  readonly kind: string;
  readonly message: string;
}

export const KEYWORDS = new Set(
  (
    'true false let const if else switch do while until loop for in continue break return throw ' +
    'try catch import export as private fn'
  ).split(' '),
);

/** Reserved words: may they be called as functions, and as methods? */
const CALLABLE_RESERVED = new Set(
  'Fn call curry is_shared print debug type_of eval is_def_var is_def_fn'.split(' '),
);
const METHOD_RESERVED = new Set('call curry is_shared type_of'.split(' '));
const RESERVED = new Set(
  (
    'use case async public package super var protected spawn shared is sync static default this ' +
    'thread yield new match await null with void nil module go goto ' +
    'curry is_shared print is_def_var is_def_fn call eval debug type_of Fn'
  ).split(' '),
);

export function isReserved(word: string): boolean {
  return RESERVED.has(word);
}
export function isCallableReserved(word: string): boolean {
  return CALLABLE_RESERVED.has(word);
}
export function isMethodReserved(word: string): boolean {
  return METHOD_RESERVED.has(word);
}

/** After these tokens `-` and `+` are unary. */
const NEXT_UNARY = new Set(
  (
    '; : , ?? .. ..= { ( [ + += u+ - -= u- * *= / /= % %= ** **= << <<= >> >>= = == != < > ! ' +
    '<= >= | & if while until in !in && &= || |= ^ ^= return throw ?[ error'
  ).split(' '),
);

/** Symbols by first character, longest first. The value is the token, or `R` for a reserved symbol. */
const SYMBOLS: Record<string, readonly string[]> = {};
const RESERVED_SYMBOLS = new Set(
  '(* # #! ++ -> -- *) ... === ::< := :; <- <| !== !. |> ~ @ $ ?'.split(' '),
);
for (const symbol of (
  '{ } ( ) [ ] () #{ += + -= - **= ** *= * /= / ; , ..= .. . == => = :: : <= <<= << < >= >>= > >> ' +
  '!= ! || |= | && &= & ^= ^ %= % ?. ?? ?[ ' +
  [...RESERVED_SYMBOLS].join(' ')
).split(' ')) {
  const first = symbol.charAt(0);
  SYMBOLS[first] = [...(SYMBOLS[first] ?? []), symbol].toSorted((a, b) => b.length - a.length);
}

const IMPROPER: Record<string, string> = {
  '===': "'===' is not a valid operator. This is not JavaScript! Should it be '=='?",
  '!==': "'!==' is not a valid operator. This is not JavaScript! Should it be '!='?",
  '->': "'->' is not a valid symbol. This is not C or C++!",
  '<-': "'<-' is not a valid symbol. This is not Go! Should it be '<='?",
  ':=': "':=' is not a valid assignment operator. This is not Go or Pascal! Should it be simply '='?",
  ':;': "':;' is not a valid symbol. Should it be '::'?",
  '::<': "'::<>' is not a valid symbol. This is not Rust! Should it be '::'?",
  '(*': "'(* .. *)' is not a valid comment format. This is not Pascal! Should it be '/* .. */'?",
  '*)': "'(* .. *)' is not a valid comment format. This is not Pascal! Should it be '/* .. */'?",
  '# {': "'#' is not a valid symbol. Should it be '#{'?",
};

export function isIdStart(c: string): boolean {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}
export function isDigit(c: string): boolean {
  return c >= '0' && c <= '9';
}
export function isIdPart(c: string): boolean {
  return isIdStart(c) || isDigit(c) || c === '_';
}
export function isIdentifier(name: string): boolean {
  return /^[A-Za-z][A-Za-z0-9_]*$/.test(name) || /^_+[A-Za-z][A-Za-z0-9_]*$/.test(name);
}

const BINARY_PRECEDENCE: Record<string, number> = {
  '||': 30,
  '^': 30,
  '|': 30,
  '&&': 60,
  '&': 60,
  '==': 90,
  '!=': 90,
  in: 110,
  '!in': 110,
  '<': 130,
  '<=': 130,
  '>': 130,
  '>=': 130,
  '??': 135,
  '..': 140,
  '..=': 140,
  '+': 150,
  '-': 150,
  '*': 180,
  '/': 180,
  '%': 180,
  '**': 190,
  '<<': 210,
  '>>': 210,
};

export function precedenceOf(type: string): number {
  return BINARY_PRECEDENCE[type] ?? 0;
}

const OP_ASSIGNMENTS = new Set('+= -= *= /= %= **= <<= >>= &= |= ^='.split(' '));
export function isOpAssignment(type: string): boolean {
  return OP_ASSIGNMENTS.has(type);
}

/** UTF-8 bytes of a string. */
export function utf8Length(text: string): number {
  let bytes = text.length;
  for (let i = 0; i < text.length; i++) {
    const code = text.charCodeAt(i);
    if (code > 0x7f) bytes += code > 0x7ff && (code < 0xd800 || code > 0xdfff) ? 2 : 1;
  }
  return bytes;
}

interface StringMode {
  readonly end: string;
  readonly verbatim: boolean;
  readonly continuation: boolean;
  readonly interpolation: boolean;
}

const QUOTED: StringMode = { end: '"', verbatim: false, continuation: true, interpolation: false };
const CHARACTER: StringMode = {
  end: "'",
  verbatim: false,
  continuation: false,
  interpolation: false,
};
const TICKED: StringMode = { end: '`', verbatim: true, continuation: false, interpolation: true };

/** Thrown inside the lexer, turned into an 'error' token by `next`. */
class Fault {
  readonly kind: string;
  readonly message: string;
  readonly line: number;
  readonly column: number;
  constructor(kind: string, message: string, line: number, column: number) {
    this.kind = kind;
    this.message = message;
    this.line = line;
    this.column = column;
  }
}

export class Lexer {
  /** The source by character: a string when it has no astral characters, else a list. */
  private readonly chars: ArrayLike<string>;
  private readonly settings: Settings;
  private at = 0;
  private line = 1;
  private column = 0;
  private unaryNext = true;
  private inText = false;

  private readonly json: 'no' | 'null' | 'strict';

  /** `json` reads the script grammar as parse_json does: `{` begins a map, `null` may be unit. */
  constructor(source: string, settings: Settings, json: 'no' | 'null' | 'strict' = 'no') {
    this.json = json;
    this.chars = /[\ud800-\udfff]/.test(source) ? Array.from(source) : source;
    this.settings = settings;
  }

  /** The next token is the rest of a back-tick string. */
  resumeText(): void {
    this.inText = true;
  }

  next(): Token {
    let token: Token;
    try {
      token = this.map(this.scan());
      if (this.json !== 'no') token = this.mapJson(token);
    } catch (fault) {
      if (!(fault instanceof Fault)) throw fault;
      token = this.errorToken(fault.kind, fault.message, fault.line, fault.column);
    }
    this.unaryNext = NEXT_UNARY.has(token.type);
    return token;
  }

  private peekChar(offset = 0): string {
    return this.chars[this.at + offset] ?? '';
  }

  private eat(): string {
    this.column++;
    return this.chars[this.at++] as string;
  }

  private newLine(): void {
    this.line++;
    this.column = 0;
  }

  private token(type: string, text: string, line: number, column: number, number: Int = 0): Token {
    return { type, text, number, line, column };
  }

  private errorToken(kind: string, message: string, line: number, column: number): Token {
    return { type: 'error', text: message, number: 0, line, column, lex: { kind, message } };
  }

  private fault(kind: string, message: string): Fault {
    return new Fault(kind, message, this.line, this.column);
  }

  /** Reserved symbols, disabled and custom operators. */
  private map(token: Token): Token {
    const { customOperators, disabledSymbols } = this.settings;
    const { type, text, line, column } = token;
    if (type === 'reserved') {
      if (customOperators.has(text)) return { ...token, type: 'custom' };
      const improper = IMPROPER[text];
      if (improper !== undefined) return this.errorToken('ImproperSymbol', improper, line, column);
      if (disabledSymbols.has(text)) {
        const what = isIdentifier(text) ? 'keyword' : 'symbol';
        const message = `reserved ${what} '${text}' is disabled`;
        return this.errorToken('ImproperSymbol', message, line, column);
      }
      return token;
    }
    if (type === 'ident') {
      return customOperators.has(text) ? { ...token, type: 'custom' } : token;
    }
    if (type === 'int' || type === 'float' || type === 'char' || type === 'str') return token;
    if (type === 'interp' || type === 'error' || type === 'eof') return token;
    const literal = type === 'u-' ? '-' : type === 'u+' ? '+' : type;
    if (customOperators.has(literal)) return { ...token, type: 'custom', text: literal };
    if (disabledSymbols.has(literal)) return { ...token, type: 'reserved', text: literal };
    return token;
  }

  private mapJson(token: Token): Token {
    const { type, text, line, column } = token;
    if (type === 'reserved' && text === 'null') {
      if (this.json === 'null') return { ...token, type: '()' };
      return this.errorToken('ImproperSymbol', "Invalid symbol encountered: 'null'", line, column);
    }
    if (type === '{') return { ...token, type: '#{' };
    const what = type === 'interp' ? 'interpolated string' : type;
    if (type === '()' || type === '#{' || type === 'interp') {
      const message = `Invalid symbol encountered: '${what}'`;
      return this.errorToken('ImproperSymbol', message, line, column);
    }
    return token;
  }

  private scan(): Token {
    if (this.inText) {
      this.inText = false;
      const { line, column } = this;
      return this.string(TICKED, line, column, true);
    }
    for (;;) {
      if (this.at >= this.chars.length) {
        this.column++;
        return this.token('eof', '', this.line, this.column);
      }
      const c = this.eat();
      const { line, column } = this;
      if (c === '\n') this.newLine();
      else if (c === ' ' || c === '\t' || c === '\r' || c === '\f') continue;
      else if (c === '/' && this.peekChar() === '/') this.lineComment();
      else if (c === '/' && this.peekChar() === '*') {
        if (!this.blockComment()) return this.token('eof', '', this.line, this.column);
      } else return this.scanAt(c, line, column);
    }
  }

  private scanAt(c: string, line: number, column: number): Token {
    if (isDigit(c)) return this.number(c, line, column);
    if (isIdStart(c) || c === '_') return this.identifier(c, line, column);
    switch (c) {
      case '"':
        return this.string(QUOTED, line, column, false);
      case '`':
        if (this.peekChar() === '\r') {
          this.eat();
          if (this.peekChar() === '\n') this.eat();
          this.newLine();
        } else if (this.peekChar() === '\n') {
          this.eat();
          this.newLine();
        }
        return this.string(TICKED, line, column, false);
      case "'":
        return this.character(line, column);
      case '#':
        if (this.peekChar() === '"' || this.peekChar() === '#') return this.raw(line, column);
        if (this.peekChar() === '!') return this.token('reserved', '#!', line, column);
        if (this.peekChar() === ' ') {
          this.eat();
          if (this.peekChar() !== '{') return this.token('reserved', '#', line, column);
          this.eat();
          return this.token('reserved', '# {', line, column);
        }
        break;
      case '-':
        if (isDigit(this.peekChar()) && this.unaryNext) {
          return this.number(this.eat(), line, column, true);
        }
        break;
      case '!':
        if (this.peekChar() === 'i' && this.peekChar(1) === 'n' && !isIdPart(this.peekChar(2))) {
          this.eat();
          this.eat();
          return this.token('!in', '', line, column);
        }
        break;
      default:
    }
    return this.symbol(c, line, column);
  }

  private symbol(c: string, line: number, column: number): Token {
    for (const symbol of SYMBOLS[c] ?? []) {
      let length = 1;
      while (length < symbol.length && this.peekChar(length - 1) === symbol.charAt(length))
        length++;
      if (length < symbol.length) continue;
      for (let i = 1; i < length; i++) this.eat();
      if (RESERVED_SYMBOLS.has(symbol)) return this.token('reserved', symbol, line, column);
      if ((symbol === '-' || symbol === '+') && this.unaryNext) {
        return this.token(`u${symbol}`, symbol, line, column);
      }
      return this.token(symbol, '', line, column);
    }
    throw new Fault('UnexpectedInput', `Unexpected '${c}'`, line, column);
  }

  private lineComment(): void {
    while (this.at < this.chars.length) {
      const c = this.chars[this.at++];
      if (c === '\n') {
        this.newLine();
        return;
      }
      if (c === '\r') {
        if (this.peekChar() === '\n') this.at++;
        this.newLine();
        return;
      }
      this.column++;
    }
  }

  /** False when the source ends inside it. */
  private blockComment(): boolean {
    this.eat();
    let level = 1;
    while (this.at < this.chars.length) {
      const c = this.eat();
      if (c === '/' && this.peekChar() === '*') {
        this.eat();
        level++;
      } else if (c === '*' && this.peekChar() === '/') {
        this.eat();
        if (--level === 0) return true;
      } else if (c === '\n') this.newLine();
    }
    return false;
  }

  private identifier(first: string, line: number, column: number): Token {
    let name = first;
    while (isIdPart(this.peekChar())) name += this.eat();
    if (KEYWORDS.has(name)) return this.token(name, name, line, column);
    if (name === '_') return this.token('_', '', line, column);
    if (RESERVED.has(name)) return this.token('reserved', name, line, column);
    if (!isIdentifier(name)) {
      throw new Fault(
        'MalformedIdentifier',
        `Variable name is not proper: '${name}'`,
        line,
        column,
      );
    }
    return this.token('ident', name, line, column);
  }

  private number(first: string, line: number, column: number, negative = false): Token {
    let text = first;
    let radix = 0;
    let valid = isDigit;
    let period = false;
    let exponent = false;
    for (;;) {
      const c = this.peekChar();
      if (c === '_') this.eat();
      else if (c !== '' && valid(c)) text += this.eat();
      else if (c === '.' && !period && radix === 0) {
        const after = this.peekChar(1);
        if (isDigit(after)) text += '.';
        else if (after === '_' || after === '.' || after === '' || isIdStart(after)) break;
        else text += '.0';
        this.eat();
        period = true;
      } else if ((c === 'e' || c === 'E') && !exponent && radix === 0) {
        const after = this.peekChar(1);
        if (!isDigit(after) && after !== '+' && after !== '-') break;
        this.eat();
        text += 'e';
        if (!isDigit(after)) text += this.eat();
        exponent = true;
        period = true;
      } else if (first === '0' && text.length <= 1 && radix === 0 && /[xobXOB]/.test(c)) {
        this.eat();
        text = `${text}${c}`;
        radix = /[xX]/.test(c) ? 16 : /[oO]/.test(c) ? 8 : 2;
        valid = radix === 16 ? (d) => /[0-9a-fA-F]/.test(d) : radix === 8 ? isOctal : isBinary;
      } else break;
    }
    return this.numberToken(text, radix, negative, line, column);
  }

  private numberToken(
    text: string,
    radix: number,
    negative: boolean,
    line: number,
    column: number,
  ): Token {
    const signed = negative ? `-${text}` : text;
    if (radix !== 0) {
      const digits = negative ? signed.slice(2) : text.slice(2);
      const value = digits !== '' && !negative ? parseBits(digits, radix) : undefined;
      if (value === undefined) {
        throw new Fault('MalformedNumber', `Invalid number: '${digits}'`, line, column);
      }
      return this.token('int', '', line, column, value);
    }
    if (/^\d+$/.test(text)) {
      const value = text.length < 16 ? BigInt(Number(signed)) : BigInt(signed);
      if (value >= -(2n ** 63n) && value < 2n ** 63n) {
        return this.token('int', '', line, column, makeInt(value));
      }
    }
    if (!/^\d+(\.\d+)?(e[+-]?\d+)?$/.test(text)) {
      throw new Fault('MalformedNumber', `Invalid number: '${signed}'`, line, column);
    }
    return this.token('float', signed, line, column, Number(signed));
  }

  private character(line: number, column: number): Token {
    if (this.peekChar() === "'")
      throw new Fault('MalformedChar', "Invalid character: ''", line, column);
    const token = this.string(CHARACTER, line, column, false);
    const characters = Array.from(token.text);
    if (characters.length !== 1) {
      throw new Fault('MalformedChar', `Invalid character: '${token.text}'`, line, column);
    }
    return { ...token, type: 'char' };
  }

  private checkLength(text: string, line: number, column: number): void {
    const max = this.settings.maxStringSize;
    if (max > 0 && (text.length > max || utf8Length(text) > max)) {
      throw new Fault('StringTooLong', `String is too long (max ${max})`, line, column);
    }
  }

  private raw(line: number, column: number): Token {
    let hashes = 1;
    while (this.peekChar() === '#') {
      this.eat();
      hashes++;
    }
    if (this.at >= this.chars.length) throw unterminated(line, column);
    const quote = this.eat();
    if (quote !== '"') throw new Fault('UnexpectedInput', `Unexpected '${quote}'`, line, column);
    let text = '';
    const end = `"${'#'.repeat(hashes)}`;
    for (;;) {
      if (this.at >= this.chars.length) throw unterminated(line, column);
      const c = this.eat();
      text += c;
      if (c === '\n') this.newLine();
      else if (c === '#' && text.endsWith(end)) {
        text = text.slice(0, -end.length);
        this.checkLength(text, line, column);
        return this.token('str', text, line, column);
      }
      this.checkLength(text.length > 4096 ? text : '', line, column);
    }
  }

  /** A string from after its opening quote; `resumed` text takes the position of its first character. */
  private string(mode: StringMode, line: number, column: number, resumed: boolean): Token {
    const { end, verbatim, continuation, interpolation } = mode;
    let text = '';
    let escaped = false;
    let skipBlanksUntil = 0;
    let firstLine = 0;
    let firstColumn = 0;
    const finish = (type: string): Token => {
      this.checkLength(text, line, column);
      return resumed
        ? this.token(type, text, firstLine || line, firstLine ? firstColumn : column)
        : this.token(type, text, line, column);
    };
    for (;;) {
      if (this.at >= this.chars.length) {
        this.column++;
        // The original reports text that runs to the end of the script where the text begins.
        if (verbatim && resumed)
          throw unterminated(firstLine || line, firstLine ? firstColumn : column);
        throw unterminated(line, column);
      }
      let c = this.eat();
      if (interpolation && c === '$' && this.peekChar() === '{') return finish('interp');
      if (interpolation && c === '\\' && this.peekChar() === '$' && this.peekChar(1) === '{') {
        this.at++;
        c = '$';
      }
      if (text.length > 4096) this.checkLength(text, line, column);
      if (c === end && !escaped) {
        if (this.peekChar() !== end) return finish('str');
        this.eat();
      }
      if (firstLine === 0) {
        firstLine = this.line;
        firstColumn = this.column;
      }
      if (escaped) {
        if (c === '\r' && this.peekChar() === '\n') continue;
        escaped = false;
        if (c === '\n' && continuation) {
          this.newLine();
          skipBlanksUntil = column + 1;
        } else if (c === '\n') {
          this.column--;
          throw unterminated(line, column);
        } else text += this.escape(c, end);
      } else if (c === '\r' && this.peekChar() === '\n') continue;
      else if (c === '\\' && !verbatim) escaped = true;
      else if (c === '\n' && verbatim) {
        this.newLine();
        text += '\n';
      } else if (c === '\n') {
        this.column--;
        throw unterminated(line, column);
      } else if (skipBlanksUntil > 0 && this.column < skipBlanksUntil && /\s/.test(c)) continue;
      else {
        text += c;
        skipBlanksUntil = 0;
      }
    }
  }

  private escape(c: string, end: string): string {
    const simple: Record<string, string> = { r: '\r', n: '\n', t: '\t', '\\': '\\' };
    if (Object.hasOwn(simple, c)) return simple[c] as string;
    if (c === end) return end;
    const length = c === 'x' ? 2 : c === 'u' ? 4 : c === 'U' ? 8 : 0;
    let sequence = `\\${c}`;
    if (length === 0) throw this.badEscape(sequence);
    let code = 0;
    for (let i = 0; i < length; i++) {
      if (this.at >= this.chars.length) throw this.badEscape(sequence);
      const digit = this.eat();
      sequence += digit;
      if (!/[0-9a-fA-F]/.test(digit)) throw this.badEscape(sequence);
      code = code * 16 + Number.parseInt(digit, 16);
    }
    if (code > 0x10ffff || (code >= 0xd800 && code <= 0xdfff)) throw this.badEscape(sequence);
    return String.fromCodePoint(code);
  }

  private badEscape(sequence: string): Fault {
    return this.fault('MalformedEscapeSequence', `Invalid escape sequence: '${sequence}'`);
  }
}

function unterminated(line: number, column: number): Fault {
  return new Fault('UnterminatedString', 'Open string is not terminated', line, column);
}

function isOctal(c: string): boolean {
  return c >= '0' && c <= '7';
}
function isBinary(c: string): boolean {
  return c === '0' || c === '1';
}

/** A bit pattern of at most 64 bits as a signed integer. */
function parseBits(digits: string, radix: number): Int | undefined {
  const prefix = radix === 16 ? '0x' : radix === 8 ? '0o' : '0b';
  const value = BigInt(prefix + digits);
  return value >= 2n ** 64n ? undefined : makeInt(BigInt.asIntN(64, value));
}

/** A parse error of a lexer error token. */
export function lexError(token: Token): RhaiError {
  const lex = token.lex ?? { kind: 'UnexpectedInput', message: `Unexpected '${token.text}'` };
  if (lex.kind === 'StringTooLong') {
    const max = lex.message.replace(/\D/g, '');
    return new RhaiError(
      'ErrorParsing',
      { name: `Length of string exceeds the maximum limit (${max})`, parse: 'LiteralTooLarge' },
      { line: token.line, column: token.column },
    );
  }
  return new RhaiError(
    'ErrorParsing',
    { name: lex.message, parse: 'BadInput', lex: lex.kind },
    { line: token.line, column: token.column },
  );
}

/** The token as the original prints it in messages. */
export function tokenText(token: Token): string {
  switch (token.type) {
    case 'int':
      return String(token.number);
    case 'float':
    case 'ident':
    case 'reserved':
    case 'custom':
    case 'error':
      return token.text;
    case 'str':
    case 'interp':
      return 'string';
    case 'char':
      return token.text;
    case 'eof':
      return '{EOF}';
    case 'u-':
      return '-';
    case 'u+':
      return '+';
    default:
      return token.type;
  }
}
