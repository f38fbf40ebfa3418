/** Strings and characters. Those that change their receiver put the new one into `args[0]`. */
import { characters } from '../access.ts';
import { RhaiError } from '../errors.ts';
import { sequence } from '../iterate.ts';
import type { NativeContext, NativeTable } from '../natives.ts';
import { utf8 } from '../operators.ts';
import { compareText, displayText } from '../text.ts';
import { utf8Length } from '../tokens.ts';
import {
  Char,
  type Int,
  INT_MAX,
  makeChar,
  RArray,
  type Range,
  RBlob,
  type Value,
} from '../values.ts';
import { decodeUtf8 } from './blobs.ts';
import { property } from './core.ts';
import { startAndCount, startAndCountOrEmpty } from './ranges.ts';

/** The text of a string or a character. */
function textOf(value: Value | undefined): string {
  return value instanceof Char ? value.text : (value as string);
}

function length(text: string): number {
  return characters(text).length;
}

function join(list: string | string[]): string {
  return typeof list === 'string' ? list : list.join('');
}

function slice(text: string, from: number, to?: number): string {
  return join(characters(text).slice(from, to));
}

/** Rust's idea of white space. */
const BLANKS = /[\t-\r \u0085\u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]+/;
const TRIM = new RegExp(`^${BLANKS.source}|${BLANKS.source}$`, 'g');

function replaceAll(text: string, find: string, substitute: string): string {
  if (find === '') {
    const list = Array.from(text);
    return substitute + list.map((c) => c + substitute).join('');
  }
  return text.split(find).join(substitute);
}

/** Change the receiver: `args[0]` becomes what the function returns. */
function changing(change: (args: Value[], context: NativeContext) => string) {
  return (args: Value[], context: NativeContext): Value => {
    args[0] = change(args, context);
    return null;
  };
}

function upper(c: string): string {
  const result = c.toUpperCase();
  return Array.from(result).length === 1 ? result : c;
}
function lower(c: string): string {
  const result = c.toLowerCase();
  return Array.from(result).length === 1 ? result : c;
}

/** The characters from `start`, at most `count`; both clamped. */
function part(text: string, start: Int, count: Int): string {
  if (text === '' || count <= 0) return '';
  const list = characters(text);
  let from = Number(start);
  if (start < 0) from = Math.max(list.length + from, 0);
  else if (from >= list.length) return '';
  return join(list.slice(from, Math.min(from + Number(count), list.length)));
}

function indexOf(text: string, find: string, start: Int): Int {
  if (text === '') return -1;
  const list = characters(text);
  let from = 0;
  if (start < 0) from = Math.max(list.length + Number(start), 0);
  else if (start > 0) {
    if (Number(start) >= list.length) return -1;
    from = Number(start);
  }
  const skipped = join(list.slice(0, from));
  const at = text.indexOf(find, skipped.length);
  return at < 0 ? -1 : length(text.slice(0, at));
}

function tooLong(): RhaiError {
  return new RhaiError('ErrorDataTooLarge', { name: 'Length of string' });
}

function pad(text: string, size: Int, padding: string, context: NativeContext): string {
  if (size <= 0) return text;
  const max = context.settings.maxStringSize;
  if (max > 0 && size > max) throw tooLong();
  if (size > 500_000_000) throw tooLong();
  const missing = Number(size) - length(text);
  if (missing <= 0 || padding === '') return text;
  const list = Array.from(padding);
  const whole = padding.repeat(Math.floor(missing / list.length));
  const result = text + whole + list.slice(0, missing % list.length).join('');
  if (max > 0 && utf8Length(result) > max) throw tooLong();
  return result;
}

function strings(list: readonly string[]): RArray {
  return new RArray([...list]);
}

/** At most `count` parts, the last with the rest. */
function splitAtMost(text: string, delimiter: string, count: Int): string[] {
  const parts: string[] = [];
  let rest = text;
  if (delimiter === '') {
    const all = ['', ...Array.from(text), ''];
    if (all.length <= count) return all;
    const head = all.slice(0, Number(count) - 1);
    return [...head, all.slice(Number(count) - 1).join('')];
  }
  while (parts.length < Number(count) - 1) {
    const at = rest.indexOf(delimiter);
    if (at < 0) break;
    parts.push(rest.slice(0, at));
    rest = rest.slice(at + delimiter.length);
  }
  parts.push(rest);
  return parts;
}

function splitAtMostBack(text: string, delimiter: string, count: Int): string[] {
  const parts: string[] = [];
  let rest = text;
  if (delimiter === '') {
    const all = ['', ...Array.from(text), ''].toReversed();
    if (all.length <= count) return all;
    const head = all.slice(0, Number(count) - 1);
    return [
      ...head,
      all
        .slice(Number(count) - 1)
        .toReversed()
        .join(''),
    ];
  }
  while (parts.length < Number(count) - 1) {
    const at = rest.lastIndexOf(delimiter);
    if (at < 0) break;
    parts.push(rest.slice(at + delimiter.length));
    rest = rest.slice(0, at);
  }
  parts.push(rest);
  return parts;
}

function splitText(text: string, delimiter: string): string[] {
  return delimiter === '' ? ['', ...Array.from(text), ''] : text.split(delimiter);
}

function splitAt(text: string, index: Int): RArray {
  const list = characters(text);
  if (index <= 0) {
    const from = list.length + Number(index);
    if (from < 0) return strings(['', text]);
    return strings([slice(text, 0, from), slice(text, from)]);
  }
  return strings([slice(text, 0, Number(index)), slice(text, Number(index))]);
}

function chars(text: string, start: Int, count: Int): Value {
  return sequence('chars', () => {
    const list = characters(part(text, start, count));
    let i = 0;
    return () => (i < list.length ? makeChar(list[i++] as string) : undefined);
  });
}

/** `text op any` where there is no faster way in operators.ts. */
export function stringFunctions(t: NativeTable): void {
  t.def('+', 'sB', ([text, blob]) => (text as string) + decodeUtf8((blob as RBlob).bytes));
  t.def('+', 'Bs', ([blob, text]) => decodeUtf8((blob as RBlob).bytes) + (text as string));
  t.def(
    'append',
    '!s*',
    changing(([text, item]) => textOf(text) + displayText(item as Value)),
  );
  t.def(
    'append',
    '!sB',
    changing(([text, b]) => textOf(text) + decodeUtf8((b as RBlob).bytes)),
  );
  t.def('to_blob', 's', ([text]) => new RBlob(utf8(text as string)));
  property(t, 'len', 's', (text) => length(text as string));
  property(t, 'is_empty', 's', (text) => text === '');
  property(t, 'bytes', 's', (text) => utf8Length(text as string));
  for (const s of ['!ss', '!sc']) {
    t.def(
      'remove',
      s,
      changing(([text, x]) =>
        textOf(x) === '' ? textOf(text) : textOf(text).split(textOf(x)).join(''),
      ),
    );
  }
  t.def(
    'clear',
    '!s',
    changing(() => ''),
  );
  t.def(
    'truncate',
    '!si',
    changing(([text, n]) => ((n as Int) <= 0 ? '' : slice(textOf(text), 0, Number(n)))),
  );
  t.def(
    'trim',
    '!s',
    changing(([text]) => textOf(text).replace(TRIM, '')),
  );
  t.def('pop', '!s', (args) => {
    const text = args[0] as string;
    if (text === '') return null;
    const list = Array.from(text);
    const last = list.pop() as string;
    args[0] = list.join('');
    return makeChar(last);
  });
  t.def('pop', '!si', (args) => {
    const [text, n] = args as [string, Int];
    if (text === '' || n <= 0) return '';
    const size = length(text);
    if (n >= size) {
      args[0] = '';
      return text;
    }
    args[0] = slice(text, 0, size - Number(n));
    return slice(text, size - Number(n));
  });
  t.def('to_upper', 's', ([text]) => (text as string).toUpperCase());
  t.def('to_lower', 's', ([text]) => (text as string).toLowerCase());
  t.def(
    'make_upper',
    '!s',
    changing(([text]) => textOf(text).toUpperCase()),
  );
  t.def(
    'make_lower',
    '!s',
    changing(([text]) => textOf(text).toLowerCase()),
  );
  t.def(
    'replace',
    '!sss !ssc !scs !scc',
    changing(([text, a, b]) => (text === '' ? '' : replaceAll(textOf(text), textOf(a), textOf(b)))),
  );
  t.def(
    'pad',
    '!sic !sis',
    changing(([text, n, p], context) => pad(textOf(text), n as Int, textOf(p), context)),
  );
  t.def('max', 'ss', ([a, b]) =>
    compareText(a as string, b as string) >= 0 ? (a as string) : (b as string),
  );
  t.def('min', 'ss', ([a, b]) =>
    compareText(a as string, b as string) <= 0 ? (a as string) : (b as string),
  );
}

export function searchFunctions(t: NativeTable): void {
  t.def('contains', 'ss sc', ([text, x]) => textOf(text).includes(textOf(x)));
  t.def('starts_with', 'ss sc', ([text, x]) => textOf(text).startsWith(textOf(x)));
  t.def('ends_with', 'ss sc', ([text, x]) => textOf(text).endsWith(textOf(x)));
  t.def('index_of', 'ss sc', ([text, x]) => indexOf(textOf(text), textOf(x), 0));
  t.def('index_of', 'ssi sci', ([text, x, from]) => indexOf(textOf(text), textOf(x), from as Int));
  t.def('get', 'si', ([text, index]) => {
    const list = characters(text as string);
    const i = (index as Int) < 0 ? list.length + Number(index) : Number(index);
    const c = list[i];
    return c === undefined ? null : makeChar(c);
  });
  t.def(
    'set',
    '!sic',
    changing(([text, index, c]) => {
      const list = Array.from(textOf(text));
      const i = (index as Int) < 0 ? list.length + Number(index) : Number(index);
      if (i >= 0 && i < list.length) list[i] = textOf(c);
      return list.join('');
    }),
  );
  t.def('sub_string', 'sii', ([text, from, n]) => part(textOf(text), from as Int, n as Int));
  t.def('sub_string', 'si', ([text, from]) => part(textOf(text), from as Int, INT_MAX));
  t.def('sub_string', 'sr', ([text, r]) => part(textOf(text), ...startAndCount(r as Range)));
  t.def(
    'crop',
    '!sii',
    changing(([text, from, n]) => part(textOf(text), from as Int, n as Int)),
  );
  t.def(
    'crop',
    '!si',
    changing(([text, from]) => part(textOf(text), from as Int, INT_MAX)),
  );
  t.def(
    'crop',
    '!sr',
    changing(([text, r]) => part(textOf(text), ...startAndCount(r as Range))),
  );
  property(t, 'chars', 's', (text) => chars(textOf(text), 0, INT_MAX));
  t.def('chars', 'si', ([text, from]) => chars(textOf(text), from as Int, INT_MAX));
  t.def('chars', 'sii', ([text, from, n]) => chars(textOf(text), from as Int, n as Int));
  t.def('chars', 'sr', ([text, r]) => chars(textOf(text), ...startAndCountOrEmpty(r as Range)));
}

export function splitFunctions(t: NativeTable): void {
  const unsplit = (text: string, delimiter: string): boolean =>
    text === '' || (delimiter !== '' && !text.includes(delimiter));
  t.def('to_chars', 's', ([text]) => new RArray(Array.from(textOf(text)).map(makeChar)));
  t.def('split', 's', ([text]) => {
    if (text === '') return strings(['']);
    return strings(
      textOf(text)
        .split(BLANKS)
        .filter((s) => s !== ''),
    );
  });
  t.def('split', 'si', ([text, index]) => splitAt(textOf(text), index as Int));
  t.def('split', 'ss sc', ([text, d]) => {
    const delimiter = textOf(d);
    return strings(
      unsplit(textOf(text), delimiter) ? [textOf(text)] : splitText(textOf(text), delimiter),
    );
  });
  t.def('split', 'ssi sci', ([text, d, n]) => {
    const delimiter = textOf(d);
    if ((n as Int) <= 1 || unsplit(textOf(text), delimiter)) return strings([textOf(text)]);
    return strings(splitAtMost(textOf(text), delimiter, n as Int));
  });
  t.def('split_rev', 'ss sc', ([text, d]) => {
    const delimiter = textOf(d);
    return strings(
      unsplit(textOf(text), delimiter)
        ? [textOf(text)]
        : splitText(textOf(text), delimiter).toReversed(),
    );
  });
  t.def('split_rev', 'ssi sci', ([text, d, n]) => {
    const delimiter = textOf(d);
    if ((n as Int) <= 1 || unsplit(textOf(text), delimiter)) return strings([textOf(text)]);
    return strings(splitAtMostBack(textOf(text), delimiter, n as Int));
  });
}

export function charFunctions(t: NativeTable): void {
  t.def('to_upper', 'c', ([c]) => makeChar(upper(textOf(c))));
  t.def('to_lower', 'c', ([c]) => makeChar(lower(textOf(c))));
  t.def('make_upper', '!c', (args) => {
    args[0] = makeChar(upper(textOf(args[0])));
    return null;
  });
  t.def('make_lower', '!c', (args) => {
    args[0] = makeChar(lower(textOf(args[0])));
    return null;
  });
  t.def('max', 'cc', ([a, b]) =>
    compareText(textOf(a), textOf(b)) >= 0 ? (a as Value) : (b as Value),
  );
  t.def('min', 'cc', ([a, b]) =>
    compareText(textOf(a), textOf(b)) <= 0 ? (a as Value) : (b as Value),
  );
}
