/** Chance under a seed: the same seed, the same numbers in the same order (sfc32). */

export class Random {
  #a: number;
  #b: number;
  #c: number;
  #d = 1;

  constructor(seed: number) {
    this.#a = seed >>> 0;
    this.#b = Math.floor(seed / 2 ** 32) >>> 0;
    this.#c = 0x9e3779b9;
    for (let i = 0; i < 15; i++) this.word();
  }

  /** A stream of its own, so that what one part draws does not move what another gets. */
  fork(): Random {
    return new Random(this.word() * 2 ** 20 + (this.word() >>> 12));
  }

  /** 32 bits. */
  word(): number {
    const t = (((this.#a + this.#b) | 0) + this.#d) | 0;
    this.#d = (this.#d + 1) | 0;
    this.#a = this.#b ^ (this.#b >>> 9);
    this.#b = (this.#c + (this.#c << 3)) | 0;
    this.#c = (this.#c << 21) | (this.#c >>> 11);
    this.#c = (this.#c + t) | 0;
    return t >>> 0;
  }

  /** In [0, 1). */
  float(): number {
    return this.word() / 2 ** 32;
  }

  between(min: number, max: number): number {
    return min + this.float() * (max - min);
  }

  /** A whole number, both ends included. */
  whole(min: number, max: number): number {
    return min + Math.floor(this.float() * (max - min + 1));
  }

  chance(probability: number): boolean {
    return this.float() < probability;
  }

  pick<T>(from: readonly T[]): T {
    const one = from[this.whole(0, from.length - 1)];
    if (one === undefined) throw new RangeError('nothing to pick from');
    return one;
  }

  bytes(count: number): Buffer {
    return Buffer.from(Array.from({ length: count }, () => this.word() & 0xff));
  }
}
