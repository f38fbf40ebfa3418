/**
 * The decisions of the flows whose jobs are executed here: one watch for each flow, however many packs.
 *
 * Live decisions can be missed while the link is down, so every link that comes back is a reason to read
 * what was stored meanwhile; and a copy can be lost without that, so now and then the log is looked at. What a decision means for jobs is `unwanted.ts`; a listener may be told twice.
 */
import { setTimeout as delay } from 'node:timers/promises';
import { backoffMs } from '../actors/supervise.ts';
import type { Bus, Entry, Follower, Subscription } from '../bus/bus.ts';
import type { FlowRef } from '../schemas/ids.ts';
import { type Unwanted, unwantedBy } from './unwanted.ts';

type Listener = (unwanted: Unwanted) => void;

type Watch = {
  ref: FlowRef;
  live: Follower;
  listeners: Set<Listener>;
  /** The last decision seen: what is read again starts after it. */
  seen: number;
  /** The last decision when the log was looked at: what ends jobs up to there has been told. */
  looked: number;
  /** The link was down: decisions may have been missed, until they are read again. */
  gap: boolean;
  reading: boolean;
};

const RETRY = { firstMs: 50, maxMs: 2000 };
const LOOK_EVERY_MS = 5000;

export class FlowWatches {
  readonly #bus: Bus;
  readonly #watches = new Map<string, Watch>();
  readonly #link: Subscription;
  readonly #lookEveryMs: number;
  #looking: NodeJS.Timeout | undefined;
  #stopped = false;

  /** `lookEveryMs`: how often the log of each flow is looked at, whatever was heard. */
  constructor(bus: Bus, lookEveryMs = LOOK_EVERY_MS) {
    this.#bus = bus;
    this.#lookEveryMs = lookEveryMs;
    this.#link = bus.link.onChange(({ up }) => {
      for (const watch of this.#watches.values()) {
        watch.gap = true;
        if (up) void this.#catchUp(watch);
      }
    });
    this.#lookLater();
  }

  /** Hears of the jobs that decisions after `plan` take away: the sequence of the plan of the pack. */
  listen(ref: FlowRef, plan: number, listener: Listener): Subscription {
    const key = `${ref.context}.${ref.flow}`;
    let watch = this.#watches.get(key);
    if (watch === undefined) {
      const live = this.#bus.log.watchDecisions(ref, (entry) => this.#hear(key, entry));
      watch = {
        ref,
        live,
        listeners: new Set(),
        seen: plan,
        looked: plan,
        gap: false,
        reading: false,
      };
      this.#watches.set(key, watch);
    }
    watch.listeners.add(listener);
    const { listeners, live } = watch;
    return {
      stop: () => {
        listeners.delete(listener);
        if (listeners.size > 0 || this.#watches.get(key)?.listeners !== listeners) return;
        live.stop();
        this.#watches.delete(key);
      },
    };
  }

  /**
   * Tells a listener of a cancel or end that stands in the log since its plan: it may have been decided
   * while the pack waited in the queue, before anybody here listened.
   */
  async look(ref: FlowRef, plan: number, listener: Listener): Promise<void> {
    const watch = this.#watches.get(`${ref.context}.${ref.flow}`);
    if (watch === undefined) return;
    // What was decided before its decisions were followed ends here, what came since was seen.
    const before = await watch.live.caughtUp;
    if (Math.max(before, watch.seen) <= plan && !watch.gap) return;
    await this.#readSince(ref, plan, listener);
  }

  async #readSince(ref: FlowRef, plan: number, listener: Listener): Promise<void> {
    const { log } = this.#bus;
    const [cancel, end, call] = await Promise.all([
      log.lastDecision(ref, 'cancel'),
      log.lastDecision(ref, 'end'),
      log.lastDecision(ref, 'call'),
    ]);
    for (const entry of [end, cancel]) {
      if (entry !== undefined && entry.seq > plan) unwantedBy(entry).forEach(listener);
    }
    // A cancel of one job, by a command or by its script, can hide earlier ones of others.
    const newest = Math.max(cancel?.seq ?? 0, call?.seq ?? 0);
    if (newest <= plan) return;
    for await (const entry of log.readDecisions(ref)) {
      if (entry.seq > plan) unwantedBy(entry).forEach(listener);
    }
  }

  stop(): void {
    this.#stopped = true;
    clearTimeout(this.#looking);
    this.#link.stop();
    for (const { live } of this.#watches.values()) live.stop();
    this.#watches.clear();
  }

  /** One flow after the other, with jitter: who executes much asks little of the server at a time. */
  #lookLater(): void {
    if (this.#stopped) return;
    this.#looking = setTimeout(
      () => {
        void this.#lookAtAll().finally(() => this.#lookLater());
      },
      this.#lookEveryMs * (0.75 + Math.random() / 2),
    );
    this.#looking.unref();
  }

  async #lookAtAll(): Promise<void> {
    for (const watch of this.#watches.values()) {
      if (watch.listeners.size === 0 || !this.#bus.link.state().up) continue;
      try {
        const last = await this.#bus.log.lastDecision(watch.ref);
        if (last === undefined || last.seq <= watch.looked) continue;
        await this.#readSince(watch.ref, watch.looked, (unwanted) => {
          watch.listeners.forEach((listener) => listener(unwanted));
        });
        watch.looked = last.seq;
      } catch {
        // The next round looks again.
      }
    }
  }

  #hear(key: string, entry: Entry): void {
    const watch = this.#watches.get(key);
    if (watch === undefined) return;
    // `seen` must not jump over what a gap holds.
    if (!watch.gap) watch.seen = Math.max(watch.seen, entry.seq);
    tell(watch, entry);
  }

  async #catchUp(watch: Watch): Promise<void> {
    if (watch.reading) return;
    watch.reading = true;
    const { log, link } = this.#bus;
    try {
      for (let tries = 0; watch.listeners.size > 0 && link.state().up; tries++) {
        try {
          for await (const entry of log.readDecisions(watch.ref)) {
            if (entry.seq <= watch.seen) continue;
            watch.seen = entry.seq;
            tell(watch, entry);
          }
          watch.gap = false;
          return;
        } catch {
          await delay(backoffMs(tries, RETRY));
        }
      }
    } finally {
      watch.reading = false;
    }
  }
}

function tell({ listeners }: Watch, entry: Entry): void {
  for (const unwanted of unwantedBy(entry)) listeners.forEach((listener) => listener(unwanted));
}
