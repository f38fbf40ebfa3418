/** Offsets, lengths and ranges as library functions clamp them. */
import { RhaiError } from '../errors.ts';
import { INT_MAX, type Int, makeInt, type Range } from '../values.ts';

/** Start and length clamped into a list: a negative start counts from the end. */
export function clamp(length: number, start: Int, count: Int): [start: number, count: number] {
  let from = Number(start);
  if (start < 0) from = Math.max(length + from, 0);
  else if (from >= length) return [length, 0];
  const take = count <= 0 ? 0 : Math.min(Number(count), length - from);
  return [from, take];
}

/** A range as start and count, as most functions read it. */
export function startAndCount(range: Range): [start: Int, count: Int] {
  const start = range.start < 0 ? 0n : BigInt(range.start);
  let end = BigInt(range.end) < start ? start : BigInt(range.end);
  if (range.inclusive) {
    if (end > INT_MAX - 1n) end = INT_MAX - 1n;
    return [makeInt(start), makeInt(end - start + 1n)];
  }
  return [makeInt(start), makeInt(end - start)];
}

/** As `startAndCount`, for the functions where an inclusive range may be empty. */
export function startAndCountOrEmpty(range: Range): [start: Int, count: Int] {
  if (!range.inclusive) return startAndCount(range);
  const start = range.start < 0 ? 0n : BigInt(range.start);
  let end = BigInt(range.end) < start - 1n ? start - 1n : BigInt(range.end);
  if (end > INT_MAX - 1n) end = INT_MAX - 1n;
  return [makeInt(start), makeInt(end - start + 1n)];
}

/** The index in a list, negative from the end; -1 when outside. */
export function indexIn(length: number, index: Int): number {
  const i = index < 0 ? Number(index) + length : Number(index);
  return i >= 0 && i < length ? i : -1;
}

export function bitBounds(index: Int): RhaiError {
  return new RhaiError('ErrorBitFieldBounds', { length: 64, index });
}
