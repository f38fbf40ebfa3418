/**
 * The packs of one flow that wait to be sent, and those that were sent and are not claimed yet.
 *
 *   B1 a node's queue holds few packs of a flow beyond what its runners take at once: the rest waits here,
 *      so that another flow's pack never stands behind all of them, and no server holds them;
 *   B2 how few follows from how long claims take: packs that are claimed at once make the window wider,
 *      packs that lie there make it narrower, and each node and class has a window of its own;
 *   B3 what is lost in a queue is sent again by whoever says so (`again`).
 */
import type { PackState } from '../actors/flow/fold.ts';
import type { PackId } from '../schemas/ids.ts';

export const WINDOW_FIRST = 32;
export const WINDOW_MIN = 4;
export const WINDOW_MAX = 256;
/** A claim within this says that runners wait for packs. */
const PROMPT_MS = 250;
/** One that took longer says that packs wait for runners. */
const SLOW_MS = 2000;
/** Handed out in one go. */
const AT_ONCE_MAX = 256;

type Lane = { unsent: Set<PackId>; sent: Map<PackId, number>; window: number };

export class Outbox {
  readonly #lanes = new Map<string, Lane>();
  readonly #laneOf = new Map<PackId, Lane>();
  readonly #now: () => number;

  /** `now` is monotonic, in ms. */
  constructor(now: () => number = () => performance.now()) {
    this.#now = now;
  }

  /** A pack the log has as queued; known ones stay as they are. */
  add(pack: Pick<PackState, 'pack' | 'class' | 'node'>): void {
    if (this.#laneOf.has(pack.pack)) return;
    const key = `${pack.class}.${pack.node}`;
    let lane = this.#lanes.get(key);
    if (lane === undefined) {
      lane = { unsent: new Set(), sent: new Map(), window: WINDOW_FIRST };
      this.#lanes.set(key, lane);
    }
    lane.unsent.add(pack.pack);
    this.#laneOf.set(pack.pack, lane);
  }

  /** The packs to send now, oldest first in each lane. */
  ready(): PackId[] {
    const found: PackId[] = [];
    for (const { unsent, sent, window } of this.#lanes.values()) {
      let room = Math.min(window - sent.size, AT_ONCE_MAX - found.length);
      for (const pack of unsent) {
        if (room-- <= 0) break;
        found.push(pack);
      }
    }
    return found;
  }

  sent(pack: PackId): void {
    const lane = this.#laneOf.get(pack);
    if (lane?.unsent.delete(pack)) lane.sent.set(pack, this.#now());
  }

  /** Claimed, or void: it waits no more. */
  gone(pack: PackId, how: 'claimed' | 'void'): void {
    const lane = this.#laneOf.get(pack);
    if (lane === undefined) return;
    this.#laneOf.delete(pack);
    lane.unsent.delete(pack);
    const sentMs = lane.sent.get(pack);
    if (!lane.sent.delete(pack) || how === 'void' || sentMs === undefined) return;
    const tookMs = this.#now() - sentMs;
    if (tookMs < PROMPT_MS) lane.window = Math.min(WINDOW_MAX, lane.window + 1);
    else if (tookMs > SLOW_MS) lane.window = Math.max(WINDOW_MIN, Math.floor(lane.window / 2));
  }

  /** The message of a pack may have been lost; of all packs, when none is named. */
  again(packs?: Iterable<PackId>): void {
    for (const lane of this.#lanes.values()) {
      for (const pack of packs ?? [...lane.sent.keys()]) {
        if (lane.sent.delete(pack)) lane.unsent.add(pack);
      }
    }
  }
}
