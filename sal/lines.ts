/**
 * Bytes of a running process as lines of text, and the end of them as one bounded text.
 *
 * Both take chunks as the pipe gave them. `LineSplitter` loses nothing and keeps order; a line without a
 * newline is cut at `LINE_BYTES_MAX` and goes on as the next line, so memory stays bounded. `Tail` keeps
 * the last bytes only. Neither ever splits a UTF-8 character that a later byte completes.
 */

export const LINE_BYTES_MAX = 64 * 1024;
export const TAIL_BYTES_MAX = 64 * 1024;

const NEWLINE = 0x0a;
const SMALL_CHUNK_BYTES = 4096;

/** Length of the longest prefix of at most `max` bytes that ends at a character's edge. */
function edgeBefore(bytes: Uint8Array, max: number): number {
  for (let at = max; at > max - 4 && at > 0; at--) {
    if (((bytes[at] ?? 0) & 0xc0) !== 0x80) return at;
  }
  // Not UTF-8 at all: any place is as good.
  return max;
}

export class LineSplitter {
  #pieces: Uint8Array[] = [];
  #length = 0;

  /** The lines this chunk completes. */
  push(chunk: Uint8Array): string[] {
    const lines: string[] = [];
    let start = 0;
    for (;;) {
      const newline = chunk.indexOf(NEWLINE, start);
      if (newline < 0) break;
      this.#keep(chunk.subarray(start, newline), lines);
      lines.push(this.#take());
      start = newline + 1;
    }
    if (start < chunk.length) this.#keep(chunk.subarray(start), lines);
    return lines;
  }

  /** What is left when the stream has ended. */
  end(): string[] {
    return this.#length === 0 ? [] : [this.#take()];
  }

  #keep(bytes: Uint8Array, lines: string[]): void {
    this.#pieces.push(bytes);
    this.#length += bytes.length;
    while (this.#length > LINE_BYTES_MAX) {
      const all = Buffer.concat(this.#pieces);
      const cut = edgeBefore(all, LINE_BYTES_MAX);
      lines.push(all.toString('utf8', 0, cut));
      this.#pieces = [all.subarray(cut)];
      this.#length = all.length - cut;
    }
  }

  #take(): string {
    const [only, ...more] = this.#pieces;
    const bytes = only === undefined || more.length > 0 ? Buffer.concat(this.#pieces) : only;
    this.#pieces = [];
    this.#length = 0;
    return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length).toString('utf8');
  }
}

export class Tail {
  #chunks: Uint8Array[] = [];
  #length = 0;
  #truncated = false;
  readonly #max: number;

  constructor(max = TAIL_BYTES_MAX) {
    this.#max = max;
  }

  get truncated(): boolean {
    return this.#truncated;
  }

  push(chunk: Uint8Array): void {
    const last = this.#chunks.at(-1);
    // A process that writes byte by byte would otherwise cost an object for each byte kept.
    if (last !== undefined && last.length + chunk.length <= SMALL_CHUNK_BYTES) {
      this.#chunks[this.#chunks.length - 1] = Buffer.concat([last, chunk]);
    } else {
      this.#chunks.push(chunk);
    }
    this.#length += chunk.length;
    // Whole chunks go first; the slice of the oldest one waits until the text is asked for.
    for (;;) {
      const oldest = this.#chunks[0];
      if (oldest === undefined || this.#length - oldest.length < this.#max) break;
      this.#chunks.shift();
      this.#length -= oldest.length;
      this.#truncated = true;
    }
    if (this.#length > this.#max) this.#truncated = true;
  }

  text(): string {
    const all = Buffer.concat(this.#chunks);
    let start = Math.max(0, all.length - this.#max);
    // A cut inside a character would show as a replacement mark that the process never wrote.
    for (let step = 0; this.#truncated && step < 3; step++) {
      if (((all[start] ?? 0) & 0xc0) !== 0x80) break;
      start++;
    }
    return all.toString('utf8', start);
  }
}
