/**
 * The roster: the control plane's live picture of all nodes.
 *
 * Binds the watch (watch.ts: what a beat and a silence mean) to the bus: beats in, the bucket `roster` out
 * (saver.ts), and the list for coord in the same process and for `hb.ledger.nodes`. One timer for all nodes.
 * Nodes follow the picture with view.ts. A beat is believed only under the address of its registered
 * principal: the bus lets a node publish under its own address only, the ledger knows whose that is.
 */
import { setTimeout as delay } from 'node:timers/promises';
import type { Bus, Incoming, Subscription } from '../../bus/bus.ts';
import { parseBeatSubject, subjects } from '../../bus/subjects.ts';
import type { Address } from '../../schemas/ids.ts';
import { readJson } from '../../schemas/json.ts';
import type { PageRequest, PrincipalRecord } from '../../schemas/ledger.ts';
import { NodeBeat, RosterNode, type NodesReply } from '../../schemas/node.ts';
import { followBucket } from '../ledger/bucket.ts';
import type { Directory } from '../ledger/directory.ts';
import { pageOf } from '../ledger/pages.ts';
import { Saver } from './saver.ts';
import { Watch, type RosterListener } from './watch.ts';

export const ROSTER_BUCKET = 'roster';
const TICK_MS = 500;
const LAST_ROUND_MS = 1000;
const UNREF = { ref: false };
/** A reply fits into one message of the bus (1 MiB), with room for its frame. */
const PAGE_BYTES_MAX = 768 * 1024;

export type RosterOptions = {
  bus: Pick<Bus, 'kv' | 'subscribe' | 'now' | 'link'>;
  directory: Pick<Directory, 'nodeAt'>;
  monotonicMs?: () => number;
  tickMs?: number;
  onFault?: (message: string) => void;
};

export type Roster = {
  /** All nodes that ever joined; each object carries the latest load of its node. */
  nodes: () => readonly RosterNode[];
  node: (address: Address) => RosterNode | undefined;
  onChange: (listener: RosterListener) => Subscription;
  /** For the ledger's `serveNodes`. */
  page: (request: PageRequest) => NodesReply;
  /** Beats that counted for nothing: foreign, repeated, or not readable. */
  refused: () => number;
  /** False while silence is held against nobody. */
  trusted: () => boolean;
  stop: () => Promise<void>;
};

export async function startRoster(options: RosterOptions): Promise<Roster> {
  const { bus, directory } = options;
  const onFault = options.onFault ?? (() => undefined);
  const monotonicMs = options.monotonicMs ?? (() => performance.now());
  const listeners = new Set<RosterListener>();
  const watch = new Watch({
    nowMs: monotonicMs(),
    linkUp: bus.link.state().up,
    principalAt: (address) => directory.nodeAt(address)?.principal,
    drainAt: (address) => drainReason(directory.nodeAt(address)?.drain ?? null),
    busNow: () => Math.round(bus.now()),
    onChange: (node, what) => {
      saver.changed(node.address);
      for (const listener of listeners) listener(node, what);
    },
    onLoad: (node) => saver.loaded(node.address),
  });
  const kv = bus.kv(ROSTER_BUCKET);
  const saver = new Saver(kv, (address) => watch.node(address), onFault);
  // The stored nodes come before the first beat, so that a restart while nobody watched is seen as one.
  const load = await followBucket(kv, (key, entry) => {
    if (entry === undefined) return;
    const parsed = RosterNode.safeParse(entry.value);
    if (parsed.success) watch.restore(parsed.data, monotonicMs());
    else onFault(`the record ${key} of the roster cannot be read; it counts as absent`);
  });
  load.stop();
  const beats = bus.subscribe(subjects.beats, hearing(watch, monotonicMs));
  const links = bus.link.onChange(({ up }) => watch.link(up, monotonicMs()));
  watch.link(bus.link.state().up, monotonicMs());
  const timer = setInterval(() => {
    watch.tick(monotonicMs());
    void saver.round(monotonicMs());
  }, options.tickMs ?? TICK_MS);
  return {
    nodes: () => watch.nodes(),
    node: (address) => watch.node(address),
    onChange: (listener) => {
      listeners.add(listener);
      return { stop: () => listeners.delete(listener) };
    },
    page: (request) => page(watch.nodes(), request),
    refused: () => watch.refused,
    trusted: () => watch.trusted(monotonicMs()),
    stop: async () => {
      clearInterval(timer);
      beats.stop();
      links.stop();
      // A goodbye that was heard last is worth writing, a bus that is away not worth waiting for.
      if (bus.link.state().up) {
        await Promise.race([saver.round(monotonicMs()), delay(LAST_ROUND_MS, undefined, UNREF)]);
      }
    },
  };
}

type Order = Pick<NonNullable<PrincipalRecord['drain']>, 'by' | 'reason'>;

/** What the roster gives as the reason of a node that an admin keeps drained. */
export function drainReason(drain: Order | null): string | null {
  if (drain === null) return null;
  const order = `by order of ${drain.by}`;
  return drain.reason === null ? order : `${drain.reason}, ${order}`;
}

/** A runner's beat on the same subject is a matter between it and its supervisor. */
function hearing(watch: Watch, monotonicMs: () => number): (message: Incoming) => void {
  return ({ subject, data }) => {
    const address = parseBeatSubject(subject);
    const body = readBeat(data);
    if (address === undefined || body === undefined || body.role === 'runner') return;
    const beat = NodeBeat.safeParse(body);
    if (beat.success) watch.beat(address, beat.data, monotonicMs());
    else watch.refused++;
  };
}

function readBeat(data: Uint8Array): { role?: unknown } | undefined {
  const body = readJson(data);
  return typeof body === 'object' && body !== null ? body : undefined;
}

function page(nodes: readonly RosterNode[], request: PageRequest): NodesReply {
  const { items, next } = pageOf(nodes, ({ address }) => address, request);
  let bytes = 0;
  const fitting = items.findIndex((node, i) => {
    bytes += JSON.stringify(node).length;
    return i > 0 && bytes > PAGE_BYTES_MAX;
  });
  if (fitting < 0) return { nodes: items, next };
  const kept = items.slice(0, fitting);
  return { nodes: kept, next: kept.at(-1)?.address ?? null };
}
