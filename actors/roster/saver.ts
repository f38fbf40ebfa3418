/**
 * Which nodes go into the bucket `roster`, and when: what people and placement act on at once, load seldom.
 *
 * Ten thousand nodes that each beat once a second must not become ten thousand writes. Invariants:
 *   S1 a change of liveness, state, groups, offers, runners or incarnation is written at the next round;
 *   S2 load alone is written at most every `LOAD_MS` for a node, and at most `LOAD_ROUND_MAX` nodes a round;
 *   S3 one round at a time; what could not be written is tried again, so the bucket ends up right.
 */
import type { Kv } from '../../bus/bus.ts';
import type { Address } from '../../schemas/ids.ts';
import type { RosterNode } from '../../schemas/node.ts';

const LOAD_MS = 10_000;
const LOAD_ROUND_MAX = 50;
const ROUND_MAX = 1000;
const AT_ONCE = 32;

export class Saver {
  readonly #kv: Kv;
  readonly #nodeAt: (address: Address) => RosterNode | undefined;
  readonly #onFault: (message: string) => void;
  readonly #changed = new Set<Address>();
  readonly #loaded = new Set<Address>();
  readonly #savedMs = new Map<Address, number>();
  #saving: Promise<void> | undefined;

  constructor(
    kv: Kv,
    nodeAt: (address: Address) => RosterNode | undefined,
    onFault: (message: string) => void,
  ) {
    this.#kv = kv;
    this.#nodeAt = nodeAt;
    this.#onFault = onFault;
  }

  changed(address: Address): void {
    this.#changed.add(address);
  }

  loaded(address: Address): void {
    this.#loaded.add(address);
  }

  /** Starts a round unless one is running. */
  round(nowMs: number): Promise<void> {
    this.#saving ??= this.#write(this.#due(nowMs), nowMs).finally(() => {
      this.#saving = undefined;
    });
    return this.#saving;
  }

  #due(nowMs: number): Address[] {
    const due = [...this.#changed].slice(0, ROUND_MAX);
    let loads = 0;
    for (const address of this.#loaded) {
      if (loads >= LOAD_ROUND_MAX) break;
      if (nowMs - (this.#savedMs.get(address) ?? -LOAD_MS) < LOAD_MS) continue;
      if (!this.#changed.has(address)) due.push(address);
      // Taken out and put in again by the next beat: the order is who waited longest.
      this.#loaded.delete(address);
      loads++;
    }
    return due;
  }

  async #write(due: Address[], nowMs: number): Promise<void> {
    const queue = due.values();
    let failed = 0;
    const work = async () => {
      for (const address of queue) {
        const node = this.#nodeAt(address);
        this.#changed.delete(address);
        if (node === undefined) continue;
        try {
          await this.#kv.put(address, node);
          this.#savedMs.set(address, nowMs);
        } catch {
          this.#changed.add(address);
          failed++;
        }
      }
    };
    await Promise.all(Array.from({ length: Math.min(AT_ONCE, due.length) }, work));
    if (failed > 0) this.#onFault(`${failed} nodes were not written to the roster; tried again`);
  }
}
