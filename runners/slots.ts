/**
 * Slots: how many jobs a runner executes at a time.
 *
 *   S1 never more than `size` are out;
 *   S2 packs in hand come before new ones, and the one that came first before the others: slots that become
 *      free go where they make one large step, not to many packs one by one;
 *   S3 a slot is free only while no pack in hand could use it.
 */

/** A pack in hand: how many slots more it could use, and taking them. */
export type Eater = { wants: () => number; give: (count: number) => void };

export class Slots {
  readonly size: number;
  #free: number;
  readonly #eaters = new Set<Eater>();
  readonly #waiting: (() => void)[] = [];
  readonly #onChange: (free: number) => void;

  constructor(size: number, onChange: (free: number) => void = () => undefined) {
    this.size = size;
    this.#free = size;
    this.#onChange = onChange;
  }

  get free(): number {
    return this.#free;
  }

  get busy(): number {
    return this.size - this.#free;
  }

  /** Feeds a pack from now on with what becomes free, until the returned function is called. */
  feed(eater: Eater): () => void {
    this.#eaters.add(eater);
    const taken = this.takeMore(eater.wants());
    if (taken > 0) eater.give(taken);
    return () => this.#eaters.delete(eater);
  }

  /** Waits for a slot that no pack in hand can use; rejects with the signal's reason. */
  acquire(signal: AbortSignal): Promise<void> {
    signal.throwIfAborted();
    if (this.takeMore(1) === 1) return Promise.resolve();
    return new Promise((resolve, reject) => {
      const grant = (): void => {
        signal.removeEventListener('abort', onAbort);
        resolve();
      };
      const onAbort = (): void => {
        const at = this.#waiting.indexOf(grant);
        if (at >= 0) this.#waiting.splice(at, 1);
        reject(signal.reason as Error);
      };
      signal.addEventListener('abort', onAbort, { once: true });
      this.#waiting.push(grant);
    });
  }

  /** As many as are free now, at most `max`. */
  takeMore(max: number): number {
    const taken = Math.max(0, Math.min(max, this.#free));
    if (taken > 0) this.#set(this.#free - taken);
    return taken;
  }

  release(count = 1): void {
    let left = count;
    for (const eater of this.#eaters) {
      if (left === 0) return;
      const given = Math.max(0, Math.min(left, eater.wants()));
      if (given > 0) eater.give(given);
      left -= given;
    }
    for (; left > 0; left--) {
      const next = this.#waiting.shift();
      if (next === undefined) break;
      next();
    }
    if (left > 0) this.#set(this.#free + left);
  }

  #set(free: number): void {
    this.#free = free;
    this.#onChange(free);
  }
}
