/**
 * Virtual time: what is to happen, in the order in which it happens. Nothing here looks at a clock.
 *
 *   T1 time stands still while something happens, and jumps to the next moment at which something does;
 *   T2 of one moment timers come before messages, messages before the end of the turn, each in the order
 *      in which they were asked for, as in an event loop;
 *   T3 to a party that is gone nothing happens any more, to one that is paused it happens later.
 */

/** A process of the simulation, as far as time goes. */
export type Party = {
  readonly name: string;
  readonly alive: boolean;
  /** Its event loop stands still until then. */
  readonly pausedUntilMs: number;
};

export type Phase = 'timer' | 'message' | 'turn';
export type Scheduled = { cancel(): void };

type Event = {
  atMs: number;
  phase: number;
  order: number;
  party: Party | undefined;
  run: () => void;
  cancelled: boolean;
};

const PHASES: Record<Phase, number> = { timer: 0, message: 1, turn: 2 };

export type SchedulerOptions = {
  /** Runs something on behalf of a party, or of the world. */
  enter: (party: Party | undefined, run: () => void) => void;
  /** Something threw: in a process of its own, the end of it. */
  onError: (party: Party | undefined, error: unknown) => void;
};

export class Scheduler {
  readonly #options: SchedulerOptions;
  readonly #heap: Event[] = [];
  #nowMs = 0;
  #order = 0;
  #steps = 0;

  constructor(options: SchedulerOptions) {
    this.#options = options;
  }

  get nowMs(): number {
    return this.#nowMs;
  }

  get steps(): number {
    return this.#steps;
  }

  after(delayMs: number, party: Party | undefined, run: () => void, phase: Phase = 'timer') {
    return this.at(this.#nowMs + Math.max(0, delayMs), party, run, phase);
  }

  at(atMs: number, party: Party | undefined, run: () => void, phase: Phase = 'timer'): Scheduled {
    const event: Event = {
      atMs: Math.max(atMs, this.#nowMs),
      phase: PHASES[phase],
      order: this.#order++,
      party,
      run,
      cancelled: false,
    };
    this.#push(event);
    return {
      cancel: () => {
        event.cancelled = true;
      },
    };
  }

  /** Lets the next thing happen; false when nothing is left. */
  step(): boolean {
    for (let event = this.#pop(); event !== undefined; event = this.#pop()) {
      const { party } = event;
      if (event.cancelled || party?.alive === false) continue;
      this.#nowMs = event.atMs;
      if (party !== undefined && party.pausedUntilMs > event.atMs) {
        event.atMs = party.pausedUntilMs;
        this.#push(event);
        continue;
      }
      this.#steps++;
      this.#options.enter(party, () => {
        try {
          event.run();
        } catch (error) {
          this.#options.onError(party, error);
        }
      });
      return true;
    }
    return false;
  }

  #push(event: Event): void {
    const heap = this.#heap;
    let at = heap.length;
    heap.push(event);
    while (at > 0) {
      const parent = (at - 1) >> 1;
      const above = heap[parent];
      if (above === undefined || !isBefore(event, above)) break;
      heap[at] = above;
      at = parent;
    }
    heap[at] = event;
  }

  #pop(): Event | undefined {
    const heap = this.#heap;
    const first = heap[0];
    const last = heap.pop();
    if (first === undefined || last === undefined || heap.length === 0) return first;
    let at = 0;
    for (;;) {
      const left = 2 * at + 1;
      const right = left + 1;
      const a = heap[left];
      const b = heap[right];
      if (a === undefined) break;
      const child = b !== undefined && isBefore(b, a) ? right : left;
      const below = child === right ? b : a;
      if (below === undefined || !isBefore(below, last)) break;
      heap[at] = below;
      at = child;
    }
    heap[at] = last;
    return first;
  }
}

function isBefore(a: Event, b: Event): boolean {
  if (a.atMs !== b.atMs) return a.atMs < b.atMs;
  if (a.phase !== b.phase) return a.phase < b.phase;
  return a.order < b.order;
}
