/**
 * Whose pack is next: contexts take turns by how many jobs they got, whoever asks more often.
 *
 *   T1 among those that wait, the context that got the fewest jobs is next; its own packs come in order;
 *   T2 a context that did not ask for a while has no claim to what it left: it starts where the others are.
 */
import type { ContextName } from '../schemas/ids.ts';

export class Turns<T> {
  readonly #waiting = new Map<ContextName, { jobs: number; item: T }[]>();
  /** Jobs each context got, as if all had begun together. */
  readonly #got = new Map<ContextName, number>();
  /** What the context served last had got before. */
  #level = 0;

  get isEmpty(): boolean {
    return this.#waiting.size === 0;
  }

  wait(context: ContextName, jobs: number, item: T): void {
    const queue = this.#waiting.get(context);
    if (queue !== undefined) {
      queue.push({ jobs, item });
      return;
    }
    this.#waiting.set(context, [{ jobs, item }]);
    this.#got.set(context, Math.max(this.#gotBy(context), this.#level));
  }

  /** Takes the next one. */
  next(): T | undefined {
    const [context] = this.order([...this.#waiting.keys()]);
    const queue = context === undefined ? undefined : this.#waiting.get(context);
    const first = queue?.shift();
    if (context === undefined || first === undefined) return undefined;
    if (queue?.length === 0) this.#waiting.delete(context);
    this.#level = this.#gotBy(context);
    this.#got.set(context, this.#level + first.jobs);
    return first.item;
  }

  /** Takes all that wait. */
  clear(): T[] {
    const all = [...this.#waiting.values()].flat().map(({ item }) => item);
    this.#waiting.clear();
    return all;
  }

  /** These contexts, the one whose turn it is first. */
  order(contexts: readonly ContextName[]): ContextName[] {
    return contexts.toSorted((a, b) => this.#gotBy(a) - this.#gotBy(b));
  }

  #gotBy(context: ContextName): number {
    return this.#got.get(context) ?? 0;
  }
}
