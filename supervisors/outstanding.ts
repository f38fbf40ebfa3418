/** How many jobs this supervisor has on each node: the part of the load that no beat tells yet. */
export class Outstanding {
  readonly #nodeOf = new Map<string, string>();
  readonly #count = new Map<string, number>();

  on(node: string): number {
    return this.#count.get(node) ?? 0;
  }

  /** A job is now on that node, or on none. */
  move(job: string, node: string | null): void {
    const before = this.#nodeOf.get(job);
    if (before === (node ?? undefined)) return;
    if (before !== undefined) this.#count.set(before, this.on(before) - 1);
    if (node === null) this.#nodeOf.delete(job);
    else {
      this.#nodeOf.set(job, node);
      this.#count.set(node, this.on(node) + 1);
    }
  }
}
