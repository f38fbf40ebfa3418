/**
 * The roster as a node sees it: the same picture, followed from afar.
 *
 * A whole list by `hb.ledger.nodes` at the start, after each reconnect and seldom besides; between them the
 * copies of what the bucket stored (bus/streams.ts). Those may be lost, so the list is what makes it right.
 * Invariants:
 *   O1 a delta that came while a list was under way is newer than the list;
 *   O2 a late record of a node does not replace a newer one, and no clock keeps newer ones out for long;
 *   O3 the loop of lists never ends because one failed.
 * It decides nothing about liveness: that is the roster's alone.
 */
import type { Bus, Incoming, Subscription } from '../../bus/bus.ts';
import { bucketCopies } from '../../bus/streams.ts';
import { subjects } from '../../bus/subjects.ts';
import { HeroError, ensureError } from '../../schemas/errors.ts';
import type { Address } from '../../schemas/ids.ts';
import { readJson } from '../../schemas/json.ts';
import { NodesReply, RosterNode } from '../../schemas/node.ts';
import { backoffMs } from '../supervise.ts';
import { ROSTER_BUCKET } from './roster.ts';
import type { RosterListener } from './watch.ts';

const DELTAS = bucketCopies(ROSTER_BUCKET);
const RETRY = { firstMs: 500, maxMs: 15_000 };
/** Beats are stored every 10 s at the latest, so an older record comes no later than this. */
const DELAY_MAX_MS = 20_000;
const REFRESH = { firstMs: 600_000, maxMs: 600_000 };

export type RosterView = {
  nodes: () => readonly RosterNode[];
  onChange: (listener: RosterListener) => Subscription;
  /** Resolves when the first list is there. */
  ready: Promise<void>;
  stop: () => void;
};

export type ViewOptions = {
  bus: Pick<Bus, 'request' | 'subscribe' | 'link'>;
  onFault?: (message: string) => void;
};

/** The whole roster, page by page; for whoever asks once. Throws what the ledger refused with. */
export async function listNodes(bus: Pick<Bus, 'request'>): Promise<RosterNode[]> {
  const nodes: RosterNode[] = [];
  for (let after: string | null = null; ; ) {
    const reply = (await bus.request(subjects.ledger('nodes'), { after })) as {
      ok?: unknown;
      error?: { message?: string };
    };
    if (reply.ok === undefined) {
      throw new HeroError('not_allowed', reply.error?.message ?? 'the ledger gave no list');
    }
    const page = NodesReply.parse(reply.ok);
    nodes.push(...page.nodes);
    if (page.next === null) return nodes;
    after = page.next;
  }
}

export function startRosterView({ bus, onFault = () => undefined }: ViewOptions): RosterView {
  const view = new View(bus, onFault);
  return {
    nodes: () => view.nodes(),
    onChange: (listener) => {
      view.listeners.add(listener);
      return { stop: () => view.listeners.delete(listener) };
    },
    ready: view.ready.promise,
    stop: () => view.stop(),
  };
}

class View {
  readonly listeners = new Set<RosterListener>();
  readonly ready = Promise.withResolvers<void>();
  readonly #bus: ViewOptions['bus'];
  readonly #onFault: (message: string) => void;
  readonly #nodes = new Map<Address, RosterNode>();
  readonly #subscriptions: Subscription[];
  #list: RosterNode[] | undefined;
  /** Addresses with a delta since the list under way was asked for. */
  #touched = new Set<Address>();
  #timer: NodeJS.Timeout | undefined;
  #listing = false;
  #again = false;
  #stopped = false;
  #failures = 0;

  constructor(bus: ViewOptions['bus'], onFault: (message: string) => void) {
    this.#bus = bus;
    this.#onFault = onFault;
    this.#subscriptions = [
      bus.subscribe(DELTAS, (message) => this.#delta(message)),
      bus.link.onChange(({ up }) => {
        if (up) void this.#refresh();
      }),
    ];
    void this.#refresh();
  }

  nodes(): readonly RosterNode[] {
    this.#list ??= [...this.#nodes.values()];
    return this.#list;
  }

  stop(): void {
    this.#stopped = true;
    clearTimeout(this.#timer);
    for (const subscription of this.#subscriptions) subscription.stop();
  }

  async #refresh(): Promise<void> {
    this.#again = this.#listing;
    if (this.#listing || this.#stopped) return;
    this.#listing = true;
    clearTimeout(this.#timer);
    this.#touched = new Set();
    try {
      const nodes = await listNodes(this.#bus);
      const listed = new Set(nodes.map(({ address }) => address));
      for (const node of nodes) if (!this.#touched.has(node.address)) this.#take(node);
      for (const address of this.#nodes.keys()) {
        if (!listed.has(address) && !this.#touched.has(address)) this.#remove(address);
      }
      this.#failures = 0;
      this.ready.resolve();
    } catch (error) {
      this.#failures++;
      this.#onFault(`the list of nodes was not read: ${ensureError(error).message}`);
    }
    this.#listing = false;
    if (this.#stopped) return;
    if (this.#again) return this.#refresh();
    const waitMs =
      this.#failures > 0 ? backoffMs(this.#failures - 1, RETRY) : backoffMs(0, REFRESH);
    this.#timer = setTimeout(() => void this.#refresh(), waitMs);
    this.#timer.unref();
  }

  #delta({ subject, data }: Incoming): void {
    const address = subject.slice(DELTAS.length - 1);
    this.#touched.add(address);
    if (data.length === 0) return this.#remove(address);
    const node = readNode(data);
    if (node?.address === address) this.#take(node);
  }

  #remove(address: Address): void {
    if (this.#nodes.delete(address)) this.#list = undefined;
  }

  #take(node: RosterNode): void {
    const before = this.#nodes.get(node.address);
    if (before !== undefined && isOlder(node, before)) return;
    this.#nodes.set(node.address, node);
    this.#list = undefined;
    const tell = (what: Parameters<RosterListener>[1]) => {
      for (const listener of this.listeners) listener(node, what);
    };
    if (before === undefined) return tell('new');
    if (before.liveness !== node.liveness) tell('liveness');
    if (before.inc !== node.inc) return tell('restart');
    if (before.liveness === node.liveness && hasChanged(before, node)) tell('changed');
  }
}

/** By when it was heard. A clock that was set back, or another one, is no age: that much is no delay. */
function isOlder(node: RosterNode, than: RosterNode): boolean {
  const behindMs = than.beat_ms - node.beat_ms;
  return behindMs > 0 && behindMs < DELAY_MAX_MS;
}

const LOAD_FIELDS = new Set(['beat_ms', 'load1', 'flows', 'runners']);

/** Load comes and goes; who listens wants to know of more than that. */
function hasChanged(before: RosterNode, after: RosterNode): boolean {
  const told = (node: RosterNode) =>
    JSON.stringify([
      Object.entries(node).filter(([field]) => !LOAD_FIELDS.has(field)),
      node.runners.map((runner) => ({ ...runner, busy: 0 })),
    ]);
  return told(before) !== told(after);
}

const readNode = (data: Uint8Array): RosterNode | undefined =>
  RosterNode.safeParse(readJson(data)).data;
