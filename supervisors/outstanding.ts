/** How many jobs this supervisor has on each node: the part of the load that no beat tells yet. */
import type { Address, FlowId } from '../schemas/ids.ts';

export class Outstanding {
  /** For each flow the node of each of its jobs. */
  readonly #nodes = new Map<FlowId, (Address | null)[]>();
  readonly #count = new Map<Address, number>();

  on(node: Address): number {
    return this.#count.get(node) ?? 0;
  }

  /** Job n of a flow is now on that node, or on none. */
  move(flow: FlowId, n: number, node: Address | null): void {
    let nodes = this.#nodes.get(flow);
    if (nodes === undefined) this.#nodes.set(flow, (nodes = []));
    const before = nodes[n] ?? null;
    if (before === node) return;
    nodes[n] = node;
    if (before !== null) this.#count.set(before, this.on(before) - 1);
    if (node !== null) this.#count.set(node, this.on(node) + 1);
  }

  /** The flow is no longer this supervisor's. */
  forget(flow: FlowId): void {
    for (const node of this.#nodes.get(flow) ?? []) {
      if (node) this.#count.set(node, this.on(node) - 1);
    }
    this.#nodes.delete(flow);
  }
}
