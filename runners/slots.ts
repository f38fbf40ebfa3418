/**
 * Slots: how many jobs a runner executes at a time, handed out in the order they were asked for.
 *
 *   S1 never more than `size` are out;
 *   S2 who waits longest gets the next one, whatever pack it is for.
 */
export class Slots {
  readonly size: number;
  #free: number;
  readonly #waiting: { grant: () => void; refuse: (reason: unknown) => void }[] = [];
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

  /** Waits for one slot; rejects with the signal's reason. */
  acquire(signal: AbortSignal): Promise<void> {
    signal.throwIfAborted();
    if (this.#free > 0) {
      this.#set(this.#free - 1);
      return Promise.resolve();
    }
    return new Promise((resolve, reject) => {
      const waiter = {
        grant: () => {
          signal.removeEventListener('abort', onAbort);
          resolve();
        },
        refuse: reject,
      };
      const onAbort = (): void => {
        const at = this.#waiting.indexOf(waiter);
        if (at >= 0) this.#waiting.splice(at, 1);
        waiter.refuse(signal.reason);
      };
      signal.addEventListener('abort', onAbort, { once: true });
      this.#waiting.push(waiter);
    });
  }

  /** As many more as are free now, at most `max`. */
  takeMore(max: number): number {
    const taken = Math.max(0, Math.min(max, this.#free));
    if (taken > 0) this.#set(this.#free - taken);
    return taken;
  }

  release(count = 1): void {
    for (let left = count; left > 0; left--) {
      const next = this.#waiting.shift();
      if (next === undefined) this.#set(this.#free + 1);
      else next.grant();
    }
  }

  #set(free: number): void {
    this.#free = free;
    this.#onChange(free);
  }
}
