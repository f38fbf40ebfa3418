/**
 * Deadlines: absolute moments in bus time, each with a name, fired once and at once when overdue.
 *
 * They are data of whoever arms them (a log entry, a machine's context) and are armed again on recovery;
 * nothing that must survive lives in here. One timer for all, on the next deadline; a heap, since thousands
 * of flows may sleep at a time.
 */
import type { Bus } from '../bus/bus.ts';

/** The longest sleep of the one timer: also how late a jump of the bus clock is noticed. */
const LOOK_MS = 1000;

type Deadline = { name: string; atMs: number; fire: () => void };

export class Deadlines {
  readonly #now: () => number;
  readonly #due = new Map<string, Deadline>();
  /** The earliest first; what was moved or disarmed is left in and passed over. */
  #heap: Deadline[] = [];
  #timer: NodeJS.Timeout | undefined;
  /** The moment the timer looks at the heap. */
  #lookMs = Number.POSITIVE_INFINITY;

  constructor(bus: Pick<Bus, 'now'>) {
    this.#now = () => bus.now();
  }

  /** Arms, or moves, the deadline of that name. */
  arm(name: string, atMs: number, fire: () => void): void {
    const deadline = { name, atMs, fire };
    this.#due.set(name, deadline);
    this.#push(deadline);
    if (atMs < this.#lookMs) this.#schedule();
  }

  disarm(name: string): void {
    this.#due.delete(name);
    // Nothing but leftovers: they must not hold what their functions hold.
    if (this.#heap.length > 64 && this.#heap.length > 2 * this.#due.size) this.#sweep();
    if (this.#due.size === 0) this.#schedule();
  }

  stop(): void {
    this.#due.clear();
    this.#heap = [];
    this.#schedule();
  }

  #schedule(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    this.#lookMs = Number.POSITIVE_INFINITY;
    const next = this.#first();
    if (next === undefined) return;
    const now = this.#now();
    const waitMs = Math.min(LOOK_MS, Math.max(0, next.atMs - now));
    this.#lookMs = now + waitMs;
    this.#timer = setTimeout(() => this.#look(), waitMs);
  }

  #look(): void {
    const now = this.#now();
    const overdue: Deadline[] = [];
    for (let next = this.#first(); next !== undefined && next.atMs <= now; next = this.#first()) {
      this.#due.delete(next.name);
      overdue.push(next);
    }
    for (const { fire } of overdue) fire();
    this.#schedule();
  }

  /** The earliest that is still armed. */
  #first(): Deadline | undefined {
    for (;;) {
      const [first] = this.#heap;
      if (first === undefined || this.#due.get(first.name) === first) return first;
      this.#pop();
    }
  }

  #sweep(): void {
    // Sorted is a heap, too.
    this.#heap = [...this.#due.values()].toSorted((a, b) => a.atMs - b.atMs);
  }

  #push(deadline: Deadline): void {
    const heap = this.#heap;
    let at = heap.push(deadline) - 1;
    while (at > 0) {
      const above = (at - 1) >> 1;
      const parent = heap[above] as Deadline;
      if (parent.atMs <= deadline.atMs) break;
      heap[at] = parent;
      at = above;
    }
    heap[at] = deadline;
  }

  #pop(): void {
    const heap = this.#heap;
    const last = heap.pop();
    if (last === undefined || heap.length === 0) return;
    let at = 0;
    for (;;) {
      const left = 2 * at + 1;
      if (left >= heap.length) break;
      const right = left + 1;
      const smaller =
        right < heap.length && (heap[right] as Deadline).atMs < (heap[left] as Deadline).atMs
          ? right
          : left;
      const child = heap[smaller] as Deadline;
      if (child.atMs >= last.atMs) break;
      heap[at] = child;
      at = smaller;
    }
    heap[at] = last;
  }
}
