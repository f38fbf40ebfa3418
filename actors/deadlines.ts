/**
 * Deadlines: absolute moments in bus time, each with a name, fired once and at once when overdue.
 *
 * They are data of whoever arms them (a log entry, a machine's context) and are armed again on recovery;
 * nothing that must survive lives in here. One timer for all, on the next deadline.
 */
import type { Bus } from '../bus/bus.ts';

/** The longest sleep of the one timer: also how late a jump of the bus clock is noticed. */
const LOOK_MS = 1000;

export class Deadlines {
  readonly #now: () => number;
  readonly #due = new Map<string, { atMs: number; fire: () => void }>();
  #timer: NodeJS.Timeout | undefined;

  constructor(bus: Pick<Bus, 'now'>) {
    this.#now = () => bus.now();
  }

  /** Arms, or moves, the deadline of that name. */
  arm(name: string, atMs: number, fire: () => void): void {
    this.#due.set(name, { atMs, fire });
    this.#schedule();
  }

  disarm(name: string): void {
    this.#due.delete(name);
  }

  stop(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    this.#due.clear();
  }

  #schedule(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    if (this.#due.size === 0) return;
    let next = Number.POSITIVE_INFINITY;
    for (const { atMs } of this.#due.values()) next = Math.min(next, atMs);
    const waitMs = Math.min(LOOK_MS, Math.max(0, next - this.#now()));
    this.#timer = setTimeout(() => this.#look(), waitMs);
  }

  #look(): void {
    const now = this.#now();
    const overdue = [...this.#due].filter(([, { atMs }]) => atMs <= now);
    for (const [name, { fire }] of overdue) {
      this.#due.delete(name);
      fire();
    }
    this.#schedule();
  }
}
