/**
 * The bucket `open_flows`: which flows have not ended, so that a coord finds them without reading the log.
 *
 * A key is written before the deploy message is acknowledged and removed after `end`; it may outlive its
 * flow for a moment, never the other way round.
 */
import { type Bus, type Kv, RevisionLost } from '../../bus/bus.ts';
import { ContextName, FlowId, type FlowRef } from '../../schemas/ids.ts';

export const OPEN_FLOWS_BUCKET = 'open_flows';

export class OpenFlows {
  readonly #kv: Kv;
  /** The last write of each flow: a retry opens what its end is still closing, in that order. */
  readonly #tails = new Map<string, Promise<unknown>>();

  constructor(bus: Pick<Bus, 'kv'>) {
    this.#kv = bus.kv(OPEN_FLOWS_BUCKET);
  }

  /** Gives the revision by which this very opening can be taken back. */
  async add(ref: FlowRef): Promise<number> {
    return this.#inTurn(ref, (key) => this.#kv.put(key, { v: 1, unplaced: null }));
  }

  /** Takes an opening back that came after the flow's end, unless the flow was opened again since. */
  async takeBack(ref: FlowRef, revision: number): Promise<void> {
    try {
      await this.#inTurn(ref, (key) => this.#kv.delete(key, revision));
    } catch (error) {
      if (!(error instanceof RevisionLost)) throw error;
    }
  }

  /** Keeps, for people, why the flow has no node. */
  async explain(ref: FlowRef, unplaced: string): Promise<void> {
    await this.#inTurn(ref, (key) => this.#kv.put(key, { v: 1, unplaced }));
  }

  /** Why the flow has no node, when it is open and has none. */
  async unplaced(ref: FlowRef): Promise<string | null> {
    const value = (await this.#kv.get(keyOf(ref)))?.value as { unplaced?: unknown } | undefined;
    return typeof value?.unplaced === 'string' ? value.unplaced : null;
  }

  async remove(ref: FlowRef): Promise<void> {
    await this.#inTurn(ref, (key) => this.#kv.delete(key));
  }

  async #inTurn<T>(ref: FlowRef, write: (key: string) => Promise<T>): Promise<T> {
    const key = keyOf(ref);
    const act = (): Promise<T> => write(key);
    const turn = (this.#tails.get(key) ?? Promise.resolve()).then(act, act);
    this.#tails.set(key, turn);
    try {
      return await turn;
    } finally {
      if (this.#tails.get(key) === turn) this.#tails.delete(key);
    }
  }

  async list(): Promise<FlowRef[]> {
    const refs: FlowRef[] = [];
    for (const key of await this.#kv.list()) {
      const dot = key.lastIndexOf('.');
      const context = ContextName.safeParse(key.slice(0, dot));
      const flow = FlowId.safeParse(key.slice(dot + 1));
      if (context.success && flow.success) refs.push({ context: context.data, flow: flow.data });
    }
    return refs;
  }
}

const keyOf = ({ context, flow }: FlowRef): string => `${context}.${flow}`;
