/**
 * Values as text: `displayText` is what print, string concatenation and interpolation use,
 * `debugText` what debug and nested values use; number texts are the original's, not JavaScript's.
 */
import {
  Char,
  Float,
  FnPtr,
  RArray,
  Range,
  RBlob,
  RMap,
  Timestamp,
  type HostObject,
  type Value,
} from './values.ts';

const F32_1E13 = Math.fround(1e13);
const F32_1E_13 = Math.fround(1e-13);

/** JavaScript's shortest digits of a finite number, and the exponent of the first one. */
function digitsOf(value: number): { negative: boolean; digits: string; exponent: number } {
  const [mantissa = '0', exponent = '0'] = value.toExponential().split('e');
  const negative = mantissa.startsWith('-');
  const digits = mantissa.replace('-', '').replace('.', '');
  return { negative, digits, exponent: Number(exponent) };
}

/** As Rust prints an f64 with `{}`: never an exponent. */
export function plainFloat(value: number): string {
  if (Number.isNaN(value)) return 'NaN';
  if (!Number.isFinite(value)) return value > 0 ? 'inf' : '-inf';
  const text = String(value);
  if (!text.includes('e')) return Object.is(value, -0) ? '-0' : text;
  const { negative, digits, exponent } = digitsOf(value);
  let body: string;
  if (exponent < 0) body = `0.${'0'.repeat(-exponent - 1)}${digits}`;
  else if (digits.length <= exponent + 1) body = digits + '0'.repeat(exponent + 1 - digits.length);
  else body = `${digits.slice(0, exponent + 1)}.${digits.slice(exponent + 1)}`;
  return negative ? `-${body}` : body;
}

/** As Rhai prints an f64. */
export function floatText(value: number): string {
  if (value === 0) return '0.0';
  if (Number.isNaN(value)) return 'NaN';
  if (!Number.isFinite(value)) return value > 0 ? 'inf' : '-inf';
  const size = Math.abs(value);
  if (size > F32_1E13 || size < F32_1E_13) return value.toExponential().replace('e+', 'e');
  const text = plainFloat(value);
  return Number.isInteger(value) ? `${text}.0` : text;
}

/** As Rust's `{:?}` prints an f64, with Rhai's rules for nested values. */
export function debugFloat(value: number): string {
  if (Object.is(value, -0)) return '-0.0';
  if (!Number.isFinite(value)) return floatText(value);
  const size = Math.abs(value);
  if (size !== 0 && (size >= 1e16 || size < 1e-4)) return value.toExponential().replace('e+', 'e');
  const text = plainFloat(value);
  return Number.isInteger(value) ? `${text}.0` : text;
}

/** Keys in the order of maps: by code point. */
export function sortedKeys(keys: Iterable<string>): string[] {
  return [...keys].sort(compareText);
}

/** -1, 0 or 1 by code point (UTF-16 order differs beyond the BMP). */
export function compareText(a: string, b: string): number {
  if (a === b) return 0;
  const length = Math.min(a.length, b.length);
  for (let i = 0; i < length; i++) {
    let x = a.charCodeAt(i);
    let y = b.charCodeAt(i);
    if (x !== y) {
      if (x >= 0xd800 && y >= 0xd800) {
        // Surrogates sort above the rest of the BMP.
        if (x >= 0xe000) x -= 0x2000;
        else x += 0x2000;
        if (y >= 0xe000) y -= 0x2000;
        else y += 0x2000;
      }
      return x < y ? -1 : 1;
    }
  }
  return a.length < b.length ? -1 : 1;
}

export function displayText(value: Value): string {
  switch (typeof value) {
    case 'string':
      return value;
    case 'number':
    case 'bigint':
    case 'boolean':
      return String(value);
    default:
  }
  if (value === null) return '';
  if (value instanceof Char) return value.text;
  if (value instanceof Float) return floatText(value.value);
  return debugText(value);
}

const ESCAPES: Record<string, string> = {
  '"': '\\"',
  '\\': '\\\\',
  '\n': '\\n',
  '\r': '\\r',
  '\t': '\\t',
  '\0': '\\0',
};

const UNPRINTABLE = /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Zs}\p{Cn}\p{Co}\p{Mn}\p{Me}]/u;

/** A string in quotes, with Rust's escapes. */
export function quoted(text: string): string {
  let out = '"';
  for (const c of text) {
    const escape = ESCAPES[c];
    if (escape !== undefined) out += escape;
    else if (c !== ' ' && UNPRINTABLE.test(c))
      out += `\\u{${(c.codePointAt(0) as number).toString(16)}}`;
    else out += c;
  }
  return `${out}"`;
}

/** A container on its way to text: what stands around its values and before each. */
export interface Opened {
  readonly open: string;
  readonly close: string;
  readonly values: readonly Value[];
  /** What stands before each value; null: nothing. */
  readonly keys: readonly string[] | null;
}

export interface TextStyle {
  readonly separator: string;
  /** Null for what holds no other values. */
  opened(value: Value): Opened | null;
  leaf(value: Value): string;
}

/** Values of one text, and how deep they nest: what goes round, or branches for ever, ends here. */
const TEXT_VALUES_MAX = 4_194_304;
const TEXT_DEPTH_MAX = 200_000;
/** A text is put together of pieces of about this length, because V8 keeps each `+=` as a node. */
const PIECE_LENGTH = 65_536;

/** The text of nested values. Has its own stack, so that no nesting is too deep for the host's. */
export function nestedText(root: Value, style: TextStyle): string {
  const stack: { readonly of: Opened; at: number }[] = [];
  const pieces: string[] = [];
  let text = '';
  let value: Value | undefined = root;
  for (let count = 0; value !== undefined; count++) {
    if (count > TEXT_VALUES_MAX || stack.length > TEXT_DEPTH_MAX) {
      throw new RangeError('Too many nested values for a text');
    }
    if (text.length > PIECE_LENGTH) {
      // Asking for a character makes it one piece.
      text.charCodeAt(0);
      pieces.push(text);
      text = '';
    }
    const opened = style.opened(value);
    if (opened === null) text += style.leaf(value);
    else {
      text += opened.open;
      stack.push({ of: opened, at: 0 });
    }
    value = undefined;
    for (let top = stack.at(-1); top !== undefined; top = stack.at(-1)) {
      const { values, keys, close } = top.of;
      const i = top.at++;
      value = values[i];
      if (value !== undefined) {
        if (i > 0) text += style.separator;
        if (keys !== null) text += keys[i] as string;
        break;
      }
      text += close;
      stack.pop();
    }
  }
  return pieces.length === 0 ? text : pieces.join('') + text;
}

/** A map with its keys in order; `after` stands between key and value. */
export function openedMap(map: RMap, open: string, after: string): Opened {
  const keys = sortedKeys(map.items.keys());
  return {
    open,
    close: '}',
    values: keys.map((key) => map.items.get(key) as Value),
    keys: keys.map((key) => quoted(key) + after),
  };
}

const DEBUG_STYLE: TextStyle = {
  separator: ', ',
  opened: (value) => {
    if (value instanceof RArray) return { open: '[', close: ']', values: value.items, keys: null };
    return value instanceof RMap ? openedMap(value, '#{', ': ') : null;
  },
  leaf: debugText,
};

export function debugText(value: Value): string {
  switch (typeof value) {
    case 'string':
      return quoted(value);
    case 'number':
    case 'bigint':
    case 'boolean':
      return String(value);
    default:
  }
  if (value === null) return '()';
  if (value instanceof Char) return value.text;
  if (value instanceof Float) return debugFloat(value.value);
  if (value instanceof RArray || value instanceof RMap) return nestedText(value, DEBUG_STYLE);
  if (value instanceof RBlob) return blobText(value.bytes);
  if (value instanceof Range) return rangeText(value);
  if (value instanceof FnPtr) return `Fn(${value.name})`;
  if (value instanceof Timestamp) return '<timestamp>';
  return (value as HostObject).type;
}

function rangeText(range: Range): string {
  const dots = range.inclusive ? '..=' : '..';
  const end = range.end === 9223372036854775807n ? '' : String(range.end);
  return `${range.start}${dots}${end}`;
}

function blobText(bytes: readonly number[]): string {
  let out = '[';
  bytes.forEach((byte, i) => {
    if (i > 0 && i % 8 === 0) out += ' ';
    out += byte.toString(16).padStart(2, '0');
  });
  return `${out}]`;
}
