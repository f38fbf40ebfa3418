/**
 * The watch over all nodes: who was heard when, and whether silence means anything. No clock, no bus: time
 * comes with each call, monotonic milliseconds; roster.ts feeds it.
 *
 * Silence of everybody is my own fault. Invariants:
 *   W1 nobody becomes suspect or dead unless the own link has been good for a whole `DEAD_MS`: the start
 *      counts as the link coming back, and so does a stall of this process;
 *   W2 nor while more than one node should be heard and none is;
 *   W3 a node's silence counts from when it could be heard again, so nothing stored makes anyone dead;
 *   W4 an address belongs to its registered principal; an incarnation that was replaced does not come back;
 *   W5 a beat and a tick cost constant time for each node, whatever the number of nodes.
 */
import {
  BEAT_MS,
  DEAD_MS,
  SUSPECT_MS,
  type Liveness,
  type NodeBeat,
  type RosterNode,
} from '../../schemas/node.ts';
import type { Address, Principal } from '../../schemas/ids.ts';
import { freshNode, restoredNode, step, type NodeSnapshot } from './roster.effects.ts';

export type RosterChange = 'new' | 'liveness' | 'restart' | 'changed';
export type RosterListener = (node: RosterNode, what: RosterChange) => void;

/** Nobody heard for this long, of several: the last time before anyone could be suspect for it. */
const DEAF_MS = SUSPECT_MS - BEAT_MS;
/** A tick this late means that this process, not the nodes, was away. */
const STALL_MS = 2000;
const PAST_INCARNATIONS_MAX = 8;

type Entry = {
  node: RosterNode;
  snapshot: NodeSnapshot;
  heardMs: number;
  seq: number;
  /** Incarnations that were replaced, the newest last. */
  past: string[];
};

export type WatchOptions = {
  nowMs: number;
  linkUp: boolean;
  /** The registered principal of an address. */
  principalAt: (address: Address) => Principal | undefined;
  /** Why an admin keeps the node of an address drained; null where nobody does. */
  drainAt?: (address: Address) => string | null;
  /** Bus time, epoch ms: for the records only. */
  busNow: () => number;
  onChange: RosterListener;
  /** A beat without a change: load and time of the node are new. */
  onLoad?: (node: RosterNode) => void;
};

export class Watch {
  readonly #options: WatchOptions;
  readonly #entries = new Map<Address, Entry>();
  #nodes: RosterNode[] | undefined;
  #linkUp: boolean;
  /** Since when everything needed to hear has been in order. */
  #goodSinceMs: number;
  #heardMs: number;
  #tickMs: number;
  /** Nodes that should be heard: live or suspect. */
  #expected = 0;
  refused = 0;

  constructor(options: WatchOptions) {
    this.#options = options;
    this.#linkUp = options.linkUp;
    this.#goodSinceMs = options.nowMs;
    this.#heardMs = options.nowMs;
    this.#tickMs = options.nowMs;
  }

  /** The same array until a node is added; the nodes in it carry their latest load. */
  nodes(): readonly RosterNode[] {
    this.#nodes ??= [...this.#entries.values()].map(({ node }) => node);
    return this.#nodes;
  }

  node(address: Address): RosterNode | undefined {
    return this.#entries.get(address)?.node;
  }

  /** A stored node: as it was, and silent only from now on (W3). */
  restore(node: RosterNode, nowMs: number): void {
    if (this.#entries.has(node.address)) return;
    this.#entries.set(node.address, {
      node,
      snapshot: restoredNode(node),
      heardMs: nowMs,
      seq: -1,
      past: [],
    });
    this.#nodes = undefined;
    if (isExpected(node.liveness)) this.#expected++;
  }

  link(up: boolean, nowMs: number): void {
    this.#linkUp = up;
    if (up) this.#listenAnew(nowMs);
  }

  /** May silence be held against anyone? */
  trusted(nowMs: number): boolean {
    return this.#linkUp && nowMs - this.#goodSinceMs >= DEAD_MS && !this.#isDeaf(nowMs);
  }

  /** False when the beat counts for nothing. */
  beat(address: Address, beat: NodeBeat, nowMs: number): boolean {
    if (this.#options.principalAt(address) !== beat.principal) return this.#refuse();
    const entry = this.#entries.get(address);
    if (entry?.past.includes(beat.inc)) return this.#refuse();
    if (entry?.node.inc === beat.inc && beat.seq <= entry.seq) return this.#refuse();
    if (this.#isDeaf(nowMs)) this.#goodSinceMs = nowMs;
    this.#heardMs = nowMs;
    if (entry === undefined) this.#add(address, beat, nowMs);
    else this.#hear(entry, beat, nowMs);
    return true;
  }

  tick(nowMs: number): void {
    if (nowMs - this.#tickMs > STALL_MS) this.#listenAnew(nowMs);
    this.#tickMs = nowMs;
    if (!this.trusted(nowMs)) return;
    for (const entry of this.#entries.values()) {
      if (entry.node.liveness === 'dead') continue;
      const silentMs = nowMs - Math.max(entry.heardMs, this.#goodSinceMs);
      if (silentMs < SUSPECT_MS) continue;
      this.#step(entry, { type: 'SILENCE', silentMs, trusted: true });
    }
  }

  #listenAnew(nowMs: number): void {
    this.#goodSinceMs = nowMs;
    this.#heardMs = nowMs;
  }

  #isDeaf(nowMs: number): boolean {
    return this.#expected > 1 && nowMs - this.#heardMs >= DEAF_MS;
  }

  #refuse(): false {
    this.refused++;
    return false;
  }

  #add(address: Address, beat: NodeBeat, nowMs: number): void {
    const busNow = this.#options.busNow();
    const node: RosterNode = {
      v: 1,
      address,
      ...described(beat),
      liveness: 'live',
      reason: null,
      since_ms: busNow,
      beat_ms: busNow,
    };
    const entry = { node, snapshot: freshNode(), heardMs: nowMs, seq: beat.seq, past: [] };
    this.#entries.set(address, entry);
    this.#nodes = undefined;
    this.#expected++;
    this.#step(entry, this.#beatEvent(address, beat), true);
    this.#options.onChange(node, 'new');
  }

  #hear(entry: Entry, beat: NodeBeat, nowMs: number): void {
    const { node } = entry;
    const restarted = node.inc !== beat.inc;
    const changed = restarted || isChanged(node, beat);
    if (restarted) entry.past = [...entry.past, node.inc].slice(-PAST_INCARNATIONS_MAX);
    entry.heardMs = nowMs;
    entry.seq = beat.seq;
    Object.assign(node, described(beat));
    node.beat_ms = this.#options.busNow();
    // A live node that goes on living is most of what is heard: the machine would stay where it is.
    const event = this.#beatEvent(node.address, beat);
    const ordinary = node.liveness === 'live' && !isLeaving(beat) && event.ordered === null;
    const announced = !ordinary && this.#step(entry, event);
    if (restarted) this.#options.onChange(node, 'restart');
    else if (changed && !announced) this.#options.onChange(node, 'changed');
    else if (!announced) this.#options.onLoad?.(node);
  }

  #beatEvent(address: Address, { state }: NodeBeat) {
    return { type: 'BEAT', state, ordered: this.#options.drainAt?.(address) ?? null } as const;
  }

  /** True when the liveness changed, and was told. */
  #step(entry: Entry, event: Parameters<typeof step>[1], silently = false): boolean {
    const { node } = entry;
    let announced = false;
    entry.snapshot = step(entry.snapshot, event, {
      announceLiveness: (liveness, reason) => {
        this.#expected += Number(isExpected(liveness)) - Number(isExpected(node.liveness));
        Object.assign(node, { liveness, reason, since_ms: this.#options.busNow() });
        announced = true;
      },
    });
    node.reason = entry.snapshot.context.reason;
    if (announced && !silently) this.#options.onChange(node, 'liveness');
    return announced;
  }
}

const isExpected = (liveness: Liveness) => liveness === 'live' || liveness === 'suspect';
const isLeaving = ({ state }: NodeBeat) => state === 'draining' || state === 'stopped';

/** What a beat says of its node. */
function described(beat: NodeBeat) {
  const { principal, name, groups, offers, state, inc, runners, flows, version } = beat;
  const { cpus, memory_mib, load1, refused } = beat;
  return {
    principal,
    name,
    groups,
    offers,
    state,
    inc,
    runners,
    flows,
    version,
    cpus,
    memory_mib,
    load1,
    ...(refused === undefined ? {} : { refused }),
  };
}

/** More than load and time: who places by it has to know at once. */
function isChanged(node: RosterNode, beat: NodeBeat): boolean {
  return (
    node.state !== beat.state ||
    node.name !== beat.name ||
    node.version !== beat.version ||
    node.cpus !== beat.cpus ||
    node.memory_mib !== beat.memory_mib ||
    !sameList(node.groups, beat.groups) ||
    !sameList(node.offers, beat.offers) ||
    node.runners.length !== beat.runners.length ||
    node.runners.some((runner, i) => {
      const other = beat.runners[i];
      return (
        runner.runner !== other?.runner ||
        runner.inc !== other.inc ||
        runner.class !== other.class ||
        runner.slots !== other.slots ||
        !sameList(runner.contexts, other.contexts)
      );
    })
  );
}

const sameList = (a: readonly string[], b: readonly string[]) =>
  a.length === b.length && a.every((value, i) => value === b[i]);
