/** Lines are complete, in order and bounded, whatever the chunks are; the tail is the true end. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { LINE_BYTES_MAX, LineSplitter, Tail } from '../../sal/lines.ts';

function split(bytes: Buffer, cuts: number[]): string[] {
  const splitter = new LineSplitter();
  const lines: string[] = [];
  let at = 0;
  for (const cut of [...cuts.map((cut) => cut % (bytes.length + 1)), bytes.length].sort(
    (a, b) => a - b,
  )) {
    lines.push(...splitter.push(bytes.subarray(at, cut)));
    at = cut;
  }
  return [...lines, ...splitter.end()];
}

test('lines - any chunking of any text gives the same lines', () => {
  const texts = fc.array(
    fc.string({ unit: 'grapheme', maxLength: 20 }).map((t) => t.replaceAll('\n', '')),
  );
  fc.assert(
    fc.property(texts, fc.array(fc.nat(400)), (lines, cuts) => {
      const text = lines.map((line) => `${line}\n`).join('');
      assert.deepEqual(split(Buffer.from(text), cuts), lines);
    }),
  );
});

test('lines - the last line needs no newline', () => {
  assert.deepEqual(split(Buffer.from('a\n\nb'), []), ['a', '', 'b']);
  assert.deepEqual(split(Buffer.from(''), []), []);
});

test('lines - a long line is cut at a character and continued', () => {
  const text = 'é'.repeat(LINE_BYTES_MAX);
  const lines = split(Buffer.from(`x${text}\nend\n`), [1, 7, 70_001]);
  assert.equal(lines.at(-1), 'end');
  assert.equal(lines.slice(0, -1).join(''), `x${text}`);
  assert.equal(lines.length, 4);
  for (const line of lines) assert.ok(Buffer.byteLength(line) <= LINE_BYTES_MAX);
});

test('lines - bytes that are no UTF-8 neither stop nor grow it', () => {
  const lines = split(Buffer.alloc(3 * LINE_BYTES_MAX, 0x80), [5]);
  assert.equal(lines.length, 3);
});

test('tail - the last bytes, cut at a character', () => {
  const tail = new Tail(8);
  for (const byte of Buffer.from('abcdeéfghé')) tail.push(Buffer.from([byte]));
  assert.equal(tail.truncated, true);
  assert.equal(tail.text(), 'eéfghé');
  tail.push(Buffer.from('!!'));
  assert.equal(tail.text(), 'fghé!!', 'half an é is no text');
  const whole = new Tail(8);
  whole.push(Buffer.from('12345678'));
  assert.equal(whole.truncated, false);
  assert.equal(whole.text(), '12345678');
});

test('tail - never more than its bytes, always a suffix', () => {
  fc.assert(
    fc.property(
      fc.array(fc.string({ unit: 'grapheme' })),
      fc.integer({ min: 4, max: 40 }),
      (parts, max) => {
        const tail = new Tail(max);
        for (const part of parts) tail.push(Buffer.from(part));
        const text = tail.text();
        assert.ok(Buffer.byteLength(text) <= max);
        assert.ok(parts.join('').endsWith(text));
        assert.equal(tail.truncated, Buffer.byteLength(parts.join('')) > max);
      },
    ),
  );
});
