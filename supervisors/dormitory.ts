/**
 * Flows of this supervisor that wait, and are kept as little more than their name: what they wait for.
 *
 * A flow whose script sleeps for days, or whose jobs run for hours, needs neither its log nor its script in
 * memory: both are rebuilt by replay. It is woken by whatever may mean that there is something to do:
 *   D1 an entry in its log; it is listened for before the flow is let go, and what came in between is asked;
 *   D2 the moment it waits for;
 *   D3 another state of a node that has jobs of it;
 *   D4 a link that was down, or a long time: then its log is asked whether something was missed.
 * To wake is to tell: bringing it up is the gate's (start-gate.ts), and a flow woken for nothing dozes again.
 */
import type { Deadlines } from '../actors/deadlines.ts';
import type { Bus, Subscription } from '../bus/bus.ts';
import { subjects } from '../bus/subjects.ts';
import type { FlowRef } from '../schemas/ids.ts';

export type Doze = {
  ref: FlowRef;
  /** Its log up to here was folded. */
  seq: number;
  term: number;
  dueMs: number | null;
  /** Nodes with jobs of it; `any`: it has jobs that no node has. */
  nodes: ReadonlySet<string>;
  /** Has packs in a queue, which may lose them. */
  queued: boolean;
};

type Dozing = Doze & { listening: Subscription; sinceMs: number; checkedMs: number };

export const ANY_NODE = 'any';
/** Logs asked at the same time. */
const CHECKS_AT_ONCE = 8;
/** Copies of stored entries may be lost: each log is asked as often as this. */
const CHECK_EACH_MS = 60_000;
/** A runner's death shows by its silence, which nobody tells: flows with jobs are looked at in any case. */
const LOOK_EACH_MS = 300_000;

export type DormitoryOptions = {
  bus: Pick<Bus, 'log' | 'subscribe' | 'link'>;
  deadlines: Deadlines;
  wake: (ref: FlowRef) => void;
};

export class Dormitory {
  readonly #options: DormitoryOptions;
  readonly #dozing = new Map<string, Dozing>();
  readonly #due: Dozing[] = [];
  #checking = 0;

  constructor(options: DormitoryOptions) {
    this.#options = options;
  }

  get size(): number {
    return this.#dozing.size;
  }

  get(flow: string): Doze | undefined {
    return this.#dozing.get(flow);
  }

  /**
   * Lets a flow doze. Once its log is listened to, `confirm` reads what was stored by then; `letGo` gives the
   * flow up and tells what it waits for, or keeps it since it has something to do after all.
   */
  async take(
    ref: FlowRef,
    confirm: () => Promise<void>,
    letGo: () => Doze | undefined,
  ): Promise<void> {
    const { bus, deadlines } = this.#options;
    let heard = false;
    const listening = bus.subscribe(subjects.stored(ref), () => {
      heard = true;
      if (this.#dozing.get(ref.flow)?.listening === listening) this.#wake(ref.flow);
    });
    await confirm();
    const doze = heard ? undefined : letGo();
    if (doze === undefined) return listening.stop();
    const nowMs = performance.now();
    const dozing: Dozing = { ...doze, listening, sinceMs: nowMs, checkedMs: nowMs };
    this.#dozing.set(ref.flow, dozing);
    const { dueMs } = doze;
    if (dueMs !== null) deadlines.arm(`doze ${ref.flow}`, dueMs, () => this.#wake(ref.flow));
  }

  /** No longer kept here: somebody brings it up. */
  release(flow: string): void {
    const dozing = this.#dozing.get(flow);
    if (dozing === undefined) return;
    this.#dozing.delete(flow);
    dozing.listening.stop();
    this.#options.deadlines.disarm(`doze ${flow}`);
  }

  /** A node is another than before, or gone. */
  nodeChanged(address: string): void {
    for (const { ref, nodes } of this.#dozing.values()) {
      if (nodes.has(address) || nodes.has(ANY_NODE)) this.#wake(ref.flow);
    }
  }

  /** The link was down: what was sent meanwhile is lost, and so may be what waited in a queue. */
  reconnected(): void {
    for (const dozing of this.#dozing.values()) {
      if (dozing.queued) this.#wake(dozing.ref.flow);
      else this.#check(dozing);
    }
  }

  /** To be called now and then. */
  review(): void {
    const nowMs = performance.now();
    for (const dozing of this.#dozing.values()) {
      if (dozing.nodes.size > 0 && nowMs - dozing.sinceMs > LOOK_EACH_MS) {
        this.#wake(dozing.ref.flow);
      } else if (nowMs - dozing.checkedMs > CHECK_EACH_MS) this.#check(dozing);
    }
  }

  /** Something may have been missed of this one. */
  look(flow: string): void {
    const dozing = this.#dozing.get(flow);
    if (dozing !== undefined) this.#check(dozing);
  }

  stop(): void {
    for (const flow of this.#dozing.keys()) this.release(flow);
    this.#due.length = 0;
  }

  #wake(flow: string): void {
    const dozing = this.#dozing.get(flow);
    if (dozing !== undefined) this.#options.wake(dozing.ref);
  }

  #check(dozing: Dozing): void {
    dozing.checkedMs = performance.now();
    this.#due.push(dozing);
    if (this.#checking >= CHECKS_AT_ONCE) return;
    this.#checking += 1;
    void this.#checkOn().finally(() => {
      this.#checking -= 1;
    });
  }

  async #checkOn(): Promise<void> {
    for (let dozing = this.#due.shift(); dozing !== undefined; dozing = this.#due.shift()) {
      const { ref, seq } = dozing;
      if (this.#dozing.get(ref.flow) !== dozing) continue;
      // Whoever cannot be asked is asked again by the next review, or when the link is back.
      const last = await this.#options.bus.log.lastEntry(ref).catch(() => undefined);
      if (last !== undefined && last > seq && this.#dozing.get(ref.flow) === dozing) {
        this.#wake(ref.flow);
      }
    }
  }
}
