/** Blobs: byte arrays, numbers and text in them. */
import { RhaiError } from '../errors.ts';
import type { NativeTable } from '../natives.ts';
import { utf8 } from '../operators.ts';
import {
  Char,
  Float,
  type Int,
  INT_MAX,
  makeInt,
  ownBytes,
  RArray,
  type Range,
  RBlob,
  type Value,
} from '../values.ts';
import { property } from './core.ts';
import { clamp, indexIn, startAndCount } from './ranges.ts';

const bytes = (value: Value | undefined): number[] => (value as RBlob).bytes;
const own = (value: Value | undefined): number[] => ownBytes(value as RBlob);
const toByte = (value: Value | undefined): number =>
  Number(BigInt.asUintN(8, BigInt(value as Int)));

/** UTF-8 to text; what is malformed becomes U+FFFD, as Rust's lossy decoding has it. */
export function decodeUtf8(list: readonly number[]): string {
  let out = '';
  let i = 0;
  while (i < list.length) {
    const first = list[i] as number;
    const size =
      first < 0x80
        ? 1
        : first >= 0xc2 && first < 0xe0
          ? 2
          : first >= 0xe0 && first < 0xf0
            ? 3
            : first >= 0xf0 && first < 0xf5
              ? 4
              : 0;
    if (size === 1) {
      out += String.fromCharCode(first);
      i++;
      continue;
    }
    let used = 1;
    let code = size === 0 ? 0 : first & (0xff >> (size + 1));
    while (used < size && continues(list, i, used, first)) {
      code = (code << 6) | ((list[i + used] as number) & 63);
      used++;
    }
    out += size > 0 && used === size ? String.fromCodePoint(code) : '\ufffd';
    i += used;
  }
  return out;
}

function continues(list: readonly number[], start: number, at: number, first: number): boolean {
  const byte = list[start + at] ?? 0;
  if (at === 1) {
    if (first === 0xe0) return byte >= 0xa0 && byte < 0xc0;
    if (first === 0xed) return byte >= 0x80 && byte < 0xa0;
    if (first === 0xf0) return byte >= 0x90 && byte < 0xc0;
    if (first === 0xf4) return byte >= 0x80 && byte < 0x90;
  }
  return byte >= 0x80 && byte < 0xc0;
}

function refill(target: Value | undefined, list: number[]): void {
  const blob = target as RBlob;
  blob.bytes = list;
  blob.shared = false;
}

function makeBlob(size: Int, value: Value | undefined, max: number): Value {
  if (size <= 0) return new RBlob([]);
  if ((max > 0 && size > max) || size > 200_000_000) {
    throw new RhaiError('ErrorDataTooLarge', { name: 'Size of array/BLOB' });
  }
  return new RBlob(Array.from({ length: Number(size) }, () => toByte(value)));
}

export function blobFunctions(t: NativeTable): void {
  t.def('blob', '- i ii', ([size = 0, value = 0], { settings }) =>
    makeBlob(size as Int, value, settings.maxArraySize),
  );
  t.def('to_array', 'B', ([b]) => new RArray(bytes(b).slice()));
  t.def('as_string', 'B', ([b]) => decodeUtf8(bytes(b)));
  property(t, 'len', 'B', (b) => bytes(b).length);
  property(t, 'is_empty', 'B', (b) => bytes(b).length === 0);
  t.def('contains', 'Bi', ([b, value]) => bytes(b).includes(toByte(value)));
  t.def('get', 'Bi', ([b, index]) => bytes(b)[clamp(bytes(b).length, index as Int, 0)[0]] ?? 0);
  t.def('set', '!Bii', ([b, index, value]) => {
    const [i] = clamp(bytes(b).length, index as Int, 0);
    if (i < bytes(b).length) own(b)[i] = toByte(value);
    return null;
  });
  t.def('push append', '!Bi', ([b, value]) => {
    own(b).push(toByte(value));
    return null;
  });
  t.def('append', '!BB !Bs !Bc', ([b, value]) => {
    const more =
      value instanceof RBlob
        ? value.bytes.slice()
        : utf8(value instanceof Char ? value.text : (value as string));
    const list = own(b);
    for (const byte of more) list.push(byte);
    return null;
  });
  t.def('insert', '!Bii', ([b, index, value]) => {
    own(b).splice(clamp(bytes(b).length, index as Int, 0)[0], 0, toByte(value));
    return null;
  });
  t.def('pad', '!Bii', ([b, size, value], { settings }) => {
    const max = settings.maxArraySize;
    if ((max > 0 && (size as Int) > max) || (size as Int) > 200_000_000) {
      throw new RhaiError('ErrorDataTooLarge', { name: 'Size of BLOB' });
    }
    const list = own(b);
    while (list.length < Number(size)) list.push(toByte(value));
    return null;
  });
  t.def('pop', '!B', ([b]) => own(b).pop() ?? 0);
  t.def('shift', '!B', ([b]) => own(b).shift() ?? 0);
  t.def('remove', '!Bi', ([b, index]) => {
    const i = indexIn(bytes(b).length, index as Int);
    return i < 0 ? 0 : (own(b).splice(i, 1)[0] ?? 0);
  });
  t.def('clear', '!B', ([b]) => {
    refill(b, []);
    return null;
  });
  t.def('truncate', '!Bi', ([b, size]) => {
    const keep = (size as Int) <= 0 ? 0 : Number(size);
    if (keep < bytes(b).length) own(b).length = keep;
    return null;
  });
  t.def('chop', '!Bi', ([b, size]) => {
    const keep = (size as Int) <= 0 ? 0 : Number(size);
    if (keep < bytes(b).length) own(b).splice(0, bytes(b).length - keep);
    return null;
  });
  t.def('reverse', '!B', ([b]) => {
    own(b).reverse();
    return null;
  });
}

function spliceBytes(b: Value | undefined, start: Int, count: Int, replace: Value): Value {
  const list = own(b);
  const [from, n] = clamp(list.length, start, count);
  const more = bytes(replace);
  if (n === 0) refill(b, [...list, ...more]);
  else refill(b, [...list.slice(0, from), ...more, ...list.slice(from + n)]);
  return null;
}

function extractBytes(b: Value | undefined, start: Int, count: Int): Value {
  const [from, n] = clamp(bytes(b).length, start, count);
  return new RBlob(bytes(b).slice(from, from + n));
}

function drainBytes(b: Value | undefined, start: Int, count: Int): Value {
  const [from, n] = clamp(bytes(b).length, start, count);
  return new RBlob(own(b).splice(from, n));
}

function retainBytes(b: Value | undefined, start: Int, count: Int): Value {
  if (bytes(b).length === 0 || count <= 0) return new RBlob([]);
  const list = own(b);
  const [from, n] = clamp(list.length, start, count);
  refill(b, list.slice(from, from + n));
  return new RBlob([...list.slice(0, from), ...list.slice(from + n)]);
}

export function blobPartFunctions(t: NativeTable): void {
  t.def('splice', '!BiiB', ([b, from, n, c]) => spliceBytes(b, from as Int, n as Int, c as Value));
  t.def('splice', '!BrB', ([b, r, c]) => spliceBytes(b, ...startAndCount(r as Range), c as Value));
  t.def('extract', '!Bii', ([b, from, n]) => extractBytes(b, from as Int, n as Int));
  t.def('extract', '!Bi', ([b, from]) => extractBytes(b, from as Int, INT_MAX));
  t.def('extract', '!Br', ([b, r]) => extractBytes(b, ...startAndCount(r as Range)));
  t.def('split', '!Bi', ([b, index]) => {
    const [from] = clamp(bytes(b).length, index as Int, INT_MAX);
    return new RBlob(own(b).splice(from));
  });
  t.def('drain', '!Bii', ([b, from, n]) => drainBytes(b, from as Int, n as Int));
  t.def('drain', '!Br', ([b, r]) => drainBytes(b, ...startAndCount(r as Range)));
  t.def('retain', '!Bii', ([b, from, n]) => retainBytes(b, from as Int, n as Int));
  t.def('retain', '!Br', ([b, r]) => retainBytes(b, ...startAndCount(r as Range)));
}

/** Up to eight bytes, zero-filled behind, in little-endian order of the number. */
function eight(b: Value | undefined, start: Int, count: Int): number[] | null {
  if (bytes(b).length === 0 || count <= 0) return null;
  const [from, n] = clamp(bytes(b).length, start, count);
  if (n === 0) return null;
  const part = bytes(b).slice(from, from + Math.min(n, 8));
  while (part.length < 8) part.push(0);
  return part;
}

function intOf(list: readonly number[], little: boolean): bigint {
  const ordered = little ? list.toReversed() : list;
  return ordered.reduce((sum, byte) => (sum << 8n) | BigInt(byte), 0n);
}

function readInt(b: Value | undefined, start: Int, count: Int, little: boolean): Value {
  const list = eight(b, start, count);
  return list === null ? 0 : makeInt(BigInt.asIntN(64, intOf(list, little)));
}

function readFloat(b: Value | undefined, start: Int, count: Int, little: boolean): Value {
  const list = eight(b, start, count);
  if (list === null) return new Float(0);
  const view = new DataView(new ArrayBuffer(8));
  view.setBigUint64(0, intOf(list, little));
  return new Float(view.getFloat64(0));
}

function writeBytes(
  b: Value | undefined,
  start: Int,
  count: Int,
  source: readonly number[],
): Value {
  if (bytes(b).length === 0 || count <= 0) return null;
  const [from, n] = clamp(bytes(b).length, start, count);
  const list = own(b);
  for (let i = 0; i < Math.min(n, source.length); i++) list[from + i] = source[i] as number;
  return null;
}

function numberBytes(value: Value, little: boolean): number[] {
  const view = new DataView(new ArrayBuffer(8));
  if (value instanceof Float) view.setFloat64(0, value.value, little);
  else view.setBigInt64(0, BigInt(value as Int), little);
  return Array.from({ length: 8 }, (_, i) => view.getUint8(i));
}

export function blobNumberFunctions(t: NativeTable): void {
  for (const little of [true, false]) {
    const order = little ? 'le' : 'be';
    t.def(`parse_${order}_int`, 'Bii', ([b, from, n]) => readInt(b, from as Int, n as Int, little));
    t.def(`parse_${order}_int`, 'Br', ([b, r]) => readInt(b, ...startAndCount(r as Range), little));
    t.def(`parse_${order}_float`, 'Bii', ([b, from, n]) =>
      readFloat(b, from as Int, n as Int, little),
    );
    t.def(`parse_${order}_float`, 'Br', ([b, r]) =>
      readFloat(b, ...startAndCount(r as Range), little),
    );
    t.def(`write_${order}`, '!Biin', ([b, from, n, value]) =>
      writeBytes(b, from as Int, n as Int, numberBytes(value as Value, little)),
    );
    t.def(`write_${order}`, '!Brn', ([b, r, value]) =>
      writeBytes(b, ...startAndCount(r as Range), numberBytes(value as Value, little)),
    );
  }
  const ascii = (text: Value | undefined): number[] => utf8(text as string).filter((x) => x < 128);
  t.def('write_utf8', '!Biis', ([b, from, n, s]) =>
    writeBytes(b, from as Int, n as Int, utf8(s as string)),
  );
  t.def('write_utf8', '!Brs', ([b, r, s]) =>
    writeBytes(b, ...startAndCount(r as Range), utf8(s as string)),
  );
  t.def('write_ascii', '!Biis', ([b, from, n, s]) =>
    writeBytes(b, from as Int, n as Int, ascii(s)),
  );
  t.def('write_ascii', '!Brs', ([b, r, s]) =>
    writeBytes(b, ...startAndCount(r as Range), ascii(s)),
  );
}
