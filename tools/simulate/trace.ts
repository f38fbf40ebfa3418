/** What happened, in order, with virtual time: kept when asked for, and always summed up in a digest. */
import { createHash } from 'node:crypto';

export class Trace {
  readonly lines: string[] = [];
  readonly #hash = createHash('sha256');
  readonly #nowMs: () => number;
  readonly #keep: boolean;

  constructor(nowMs: () => number, keep: boolean) {
    this.#nowMs = nowMs;
    this.#keep = keep;
  }

  note(what: string, text: string, data?: Uint8Array): void {
    const sum =
      data === undefined ? '' : ` ${createHash('sha256').update(data).digest('hex').slice(0, 8)}`;
    const line = `${this.#nowMs().toFixed(3).padStart(12)} ${what.padEnd(6)} ${text}${sum}`;
    this.#hash.update(line);
    if (this.#keep) this.lines.push(line);
  }

  digest(): string {
    return this.#hash.copy().digest('hex').slice(0, 32);
  }
}
