/**
 * The script's random numbers: seeded by the flow id, so that a replay draws the same ones.
 *
 * Predictable by whoever knows the flow id; secrets come from elsewhere (INTERFACES 3).
 */

/** Mulberry32 on a 32-bit state; seeded from hex digits of a digest. */
export class SeededRandom {
  #state: number;

  constructor(hexSeed: string) {
    this.#state = Number.parseInt(hexSeed.slice(0, 8), 16) >>> 0;
  }

  #next(): number {
    this.#state = (this.#state + 0x6d2b79f5) >>> 0;
    let t = this.#state;
    t = Math.imul(t ^ (t >>> 15), t | 1);
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
    return (t ^ (t >>> 14)) >>> 0;
  }

  /** Uniform in [0, 1), with 53 bits. */
  float(): number {
    return ((this.#next() >>> 5) * 2 ** 26 + (this.#next() >>> 6)) / 2 ** 53;
  }

  /** A UUID of version 4's form. */
  uuid(): string {
    const hex = Array.from({ length: 4 }, () => this.#next().toString(16).padStart(8, '0')).join(
      '',
    );
    const variant = '89ab'[Number.parseInt(hex[16] ?? '0', 16) & 3];
    return `${hex.slice(0, 8)}-${hex.slice(8, 12)}-4${hex.slice(13, 16)}-${variant}${hex.slice(17, 20)}-${hex.slice(20, 32)}`;
  }
}
