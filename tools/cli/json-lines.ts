/**
 * Cases in, answers out, a line each, in order (reference/rhai-protocol.md). For conformance suites, editors
 * and fuzzers: whatever a line holds, it has one answer, and the next line is read.
 *
 * L1 memory holds one line and what is read ahead of it, at most `LINE_BYTES_MAX`;
 * L2 the next case is begun when the last answer has been taken.
 */
import { once } from 'node:events';
import type { Readable, Writable } from 'node:stream';
import { ensureError } from '../../schemas/errors.ts';

const LINE_BYTES_MAX = 64 * 1024 * 1024;
const NEWLINE = 0x0a;

export async function answerLines(
  input: Readable,
  output: Writable,
  runCase: (testCase: object) => object,
): Promise<void> {
  for await (const line of splitLines(input, LINE_BYTES_MAX)) {
    const text = line === 'too long' ? line : line.toString();
    if (text.trim() === '') continue;
    if (!output.write(`${answerTo(text, runCase)}\n`)) await once(output, 'drain');
  }
}

function answerTo(line: string, runCase: (testCase: object) => object): string {
  let id: unknown = null;
  try {
    if (line === 'too long') throw new RangeError(`a line has more than ${LINE_BYTES_MAX} bytes`);
    const testCase: unknown = JSON.parse(line);
    if (testCase === null || typeof testCase !== 'object' || Array.isArray(testCase)) {
      throw new TypeError('a case is a JSON object');
    }
    if ('id' in testCase) id = testCase.id;
    return JSON.stringify(runCase(testCase));
  } catch (error) {
    // A fault of the line or of the engine: told like any error, so that the stream goes on.
    return JSON.stringify({ id, error: 'ErrorSystem', message: ensureError(error).message });
  }
}

/** Lines without their newline; one that is longer than `max` is passed over and told as such. */
export async function* splitLines(
  input: AsyncIterable<Uint8Array>,
  max: number,
): AsyncIterable<Buffer | 'too long'> {
  let parts: Buffer[] = [];
  let size = 0;
  const take = (): Buffer | 'too long' => {
    const line = size > max ? 'too long' : Buffer.concat(parts);
    parts = [];
    size = 0;
    return line;
  };
  const add = (part: Buffer): void => {
    size += part.length;
    if (size > max) parts = [];
    else if (part.length > 0) parts.push(part);
  };
  for await (const chunk of input) {
    const bytes = Buffer.from(chunk);
    let from = 0;
    for (let at = bytes.indexOf(NEWLINE); at >= 0; at = bytes.indexOf(NEWLINE, from)) {
      add(bytes.subarray(from, at));
      yield take();
      from = at + 1;
    }
    add(bytes.subarray(from));
  }
  if (size > 0) yield take();
}
