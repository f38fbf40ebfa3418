/**
 * How many flows are brought up at the same time: read, judged, their script run up to its first wait.
 *
 * When everything comes back at once, all flows want to be up at once. So they wait here, and what is new
 * does not wait behind them:
 *   G1 at most `atOnce` are being brought up, of them at most `returning` that were there before;
 *   G2 a flow that takes long gives its place up after a while: an endless script holds up nobody;
 *   G3 a flow asked for twice is brought up once.
 */
import type { FlowRef } from '../schemas/ids.ts';

export type Lane = 'fresh' | 'returning';

export type StartGateOptions = {
  start: (ref: FlowRef) => void;
  atOnce?: number;
  returning?: number;
  patienceMs?: number;
};

const AT_ONCE = 64;
const RETURNING = 16;
const PATIENCE_MS = 5_000;

export class StartGate {
  readonly #options: Required<StartGateOptions>;
  readonly #waiting: Record<Lane, Map<string, FlowRef>> = {
    fresh: new Map(),
    returning: new Map(),
  };
  readonly #starting = new Map<string, { lane: Lane; patience: NodeJS.Timeout }>();

  constructor(options: StartGateOptions) {
    this.#options = { atOnce: AT_ONCE, returning: RETURNING, patienceMs: PATIENCE_MS, ...options };
  }

  get waiting(): number {
    return this.#waiting.fresh.size + this.#waiting.returning.size;
  }

  ask(ref: FlowRef, lane: Lane): void {
    const { flow } = ref;
    if (this.#starting.has(flow) || this.#waiting.fresh.has(flow)) return;
    if (lane === 'fresh') this.#waiting.returning.delete(flow);
    this.#waiting[lane].set(flow, ref);
    this.#next();
  }

  /** It waits, has ended, or is gone: its place is free. */
  isUp({ flow }: FlowRef): void {
    const starting = this.#starting.get(flow);
    if (starting === undefined) return;
    clearTimeout(starting.patience);
    this.#starting.delete(flow);
    this.#next();
  }

  stop(): void {
    for (const { patience } of this.#starting.values()) clearTimeout(patience);
    this.#starting.clear();
    this.#waiting.fresh.clear();
    this.#waiting.returning.clear();
  }

  #next(): void {
    for (const lane of ['fresh', 'returning'] as const) {
      for (const [flow, ref] of this.#waiting[lane]) {
        if (!this.#hasPlace(lane)) break;
        this.#waiting[lane].delete(flow);
        const patience = setTimeout(() => this.isUp(ref), this.#options.patienceMs);
        this.#starting.set(flow, { lane, patience });
        this.#options.start(ref);
      }
    }
  }

  #hasPlace(lane: Lane): boolean {
    const { atOnce, returning } = this.#options;
    if (this.#starting.size >= atOnce) return false;
    if (lane === 'fresh') return true;
    let back = 0;
    for (const each of this.#starting.values()) if (each.lane === 'returning') back += 1;
    return back < returning;
  }
}
