/**
 * coord: takes in what users publish, and sees that every open flow has a living assignee until it ends.
 *
 * Coords are many and equal; all they know is derived from the log, `open_flows` and the roster:
 *   C1 at start, and whenever the link was down, the decisions of every open flow are read again;
 *   C2 in between, the stored decisions of all flows are followed live;
 *   C3 a changed incarnation or a death of a node is passed to the coords of its flows;
 *   C4 a copy may be lost on its way: flows that stand still are read again now and then, and it is said.
 */
import { setTimeout as delay } from 'node:timers/promises';
import type { Actor } from 'xstate';
import type { Bus, Entry, Subscription } from '../../bus/bus.ts';
import { open } from '../../bus/envelope.ts';
import { Deployment } from '../../schemas/deployment.ts';
import { ensureError } from '../../schemas/errors.ts';
import type { FlowRef } from '../../schemas/ids.ts';
import { parseStrictBytes } from '../../schemas/json.ts';
import type { RosterNode } from '../../schemas/node.ts';
import { Deadlines } from '../deadlines.ts';
import type { Host } from '../host.ts';
import { backoffMs } from '../supervise.ts';
import type { Directory } from '../ledger/directory.ts';
import { provideCoord } from './coord.effects.ts';
import type { coordMachine } from './coord.machine.ts';
import { intake } from './intake.ts';
import { QuotaDesk } from './quota.ts';
import { OpenFlows } from './open-flows.ts';
import { emptyTrack, type Track, track } from './track.ts';

export type RosterSource = {
  nodes(): readonly RosterNode[];
  onChange(listener: (node: RosterNode, what: string) => void): Subscription;
};

export type CoordOptions = {
  bus: Bus;
  host: Host;
  directory: Directory;
  roster: RosterSource;
  /** What an operator should know. */
  alarm: (message: string) => void;
};

/** Unacknowledged deploy messages at a time: enough to keep the disk busy, few enough to redeliver soon. */
const INTAKE_IN_FLIGHT = 256;
/** How often every open flow is held against the roster, whatever was told. */
const REVIEW_MS = 10_000;
/** Flows whose log is read at the same time after a start or a reconnect: everything at once is a storm. */
const REFRESH_AT_ONCE = 16;
const REFRESH_RETRY = { firstMs: 500, maxMs: 10_000 };
/** A flow in which nothing happened for so long is read again now and then: a copy may have been lost. */
const STILL_MS = 8_000;
/** How many of them in a review, at least; with many, each one's turn comes within so many reviews. */
const REREAD_MIN = 16;
const REREAD_WITHIN = 30;
const ON_ITS_WAY_MS = 2_000;

type OpenFlow = {
  ref: FlowRef;
  track: Track;
  actor: Actor<typeof coordMachine>;
  selector: string | null;
  /** Incarnation of the assignee that was woken last; empty: none was. */
  wokenInc: string;
  movedMs: number;
};

export async function startCoord(options: CoordOptions): Promise<{ stop: () => Promise<void> }> {
  const coord = new Coord(options);
  return coord.start();
}

class Coord {
  readonly #options: CoordOptions;
  readonly #flows = new Map<string, OpenFlow>();
  readonly #perNode = new Map<string, number>();
  /** Flows whose log is being read, and whether it is to be read again: it may have ended meanwhile. */
  readonly #reading = new Map<string, { again: boolean }>();
  readonly #openFlows: OpenFlows;
  readonly #quotas = new QuotaDesk();
  readonly #deadlines: Deadlines;
  readonly #machine: typeof coordMachine;
  readonly #subscriptions: Subscription[] = [];
  #stopped = false;
  #rereading = false;

  constructor(options: CoordOptions) {
    this.#options = options;
    this.#openFlows = new OpenFlows(options.bus);
    this.#deadlines = new Deadlines(options.bus);
    this.#machine = provideCoord({
      bus: options.bus,
      deadlines: this.#deadlines,
      openFlows: this.#openFlows,
      nodes: () => options.roster.nodes(),
      load: (address) => this.#perNode.get(address) ?? 0,
      trackOf: (ref) => this.#flows.get(ref.flow)?.track ?? emptyTrack(),
      selectorOf: (ref) => this.#selectorOf(ref),
      woken: (ref, inc) => {
        const flow = this.#flows.get(ref.flow);
        if (flow !== undefined) flow.wokenInc = inc;
      },
      refresh: (ref) => this.#refreshSoon(ref),
      closed: (ref) => this.#forget(ref),
      alarm: options.alarm,
    });
  }

  async start(): Promise<{ stop: () => Promise<void> }> {
    const { bus, roster, directory } = this.#options;
    const decisions = bus.log.watchAllDecisions((entry) => this.#observe(entry));
    this.#subscriptions.push(
      decisions,
      roster.onChange((node, what) => this.#rosterChanged(node, what)),
      bus.link.onChange(({ up }) => {
        if (!up) return;
        this.#openNow()
          .then((refs) => this.#refreshAll(refs))
          .then(
            () => this.#wakeUndecided(),
            (error: unknown) => this.#alarm('reading open flows', error),
          );
      }),
    );
    // In this order: what is decided before they are followed is read then.
    await decisions.caughtUp;
    const open = await this.#openNow();
    for (const ref of open) this.#quotas.opened(ref);
    // A few at a time, and what is new does not wait for them: there may be many thousand.
    void this.#refreshAll(open);
    const readTrack = (ref: FlowRef) => this.#read(ref);
    const consumption = await bus.queues.consume(
      { queue: 'deploy' },
      { inFlight: INTAKE_IN_FLIGHT },
      intake({ bus, directory, openFlows: this.#openFlows, quotas: this.#quotas, readTrack }),
    );
    const review = setInterval(() => {
      this.#reviewAll();
      this.#rereadStill().catch((error: unknown) => this.#alarm('reading flows again', error));
    }, REVIEW_MS);
    return {
      stop: async () => {
        this.#stopped = true;
        clearInterval(review);
        await consumption.stop();
        for (const subscription of this.#subscriptions) subscription.stop();
        this.#deadlines.stop();
        for (const { actor } of this.#flows.values()) actor.stop();
      },
    };
  }

  #alarm(what: string, error: unknown): void {
    this.#options.alarm(`${what}: ${ensureError(error).message}`);
  }

  async #openNow(): Promise<FlowRef[]> {
    const refs = new Map<string, FlowRef>();
    for (const ref of await this.#openFlows.list()) refs.set(ref.flow, ref);
    for (const { ref } of this.#flows.values()) refs.set(ref.flow, ref);
    return [...refs.values()];
  }

  /** Another path to the same end: whatever was missed live is read from the log, each until it could be. */
  async #refreshAll(refs: readonly FlowRef[]): Promise<void> {
    let waiting = [...refs];
    for (let round = 0; waiting.length > 0 && !this.#stopped; round++) {
      if (round > 0) await delay(backoffMs(round - 1, REFRESH_RETRY));
      const failed: FlowRef[] = [];
      const workers = Array.from({ length: REFRESH_AT_ONCE }, async () => {
        for (let ref = waiting.pop(); ref !== undefined && !this.#stopped; ref = waiting.pop()) {
          await this.#refresh(ref).catch((error: unknown) => {
            if (failed.length === 0) this.#alarm('reading open flows, tried again', error);
            failed.push(ref as FlowRef);
          });
        }
      });
      await Promise.all(workers);
      waiting = failed;
    }
  }

  #refreshSoon(ref: FlowRef): void {
    this.#refresh(ref).catch((error: unknown) => this.#alarm(`reading flow ${ref.flow}`, error));
  }

  async #refresh(ref: FlowRef): Promise<void> {
    const underWay = this.#reading.get(ref.flow);
    if (underWay !== undefined) {
      underWay.again = true;
      return;
    }
    const reading = { again: true };
    this.#reading.set(ref.flow, reading);
    try {
      while (reading.again) {
        reading.again = false;
        try {
          const read = await this.#read(ref);
          // Opened, but its deploy entry was never committed: its message is still in the queue.
          if (read.mainSeq > 0) this.#take(ref, read);
        } catch (error) {
          if (!reading.again) throw error;
        }
      }
    } finally {
      this.#reading.delete(ref.flow);
    }
  }

  /** With the time of the last decision. */
  async #read(ref: FlowRef): Promise<Track & { at: number }> {
    let read = emptyTrack();
    let at = 0;
    for await (const entry of this.#options.bus.log.readDecisions(ref)) {
      read = track(read, entry, this.#authority);
      at = entry.at;
    }
    return { ...read, at };
  }

  readonly #authority = {
    isCoord: (address: string): boolean => this.#options.directory.coords().includes(address),
  };

  #observe(entry: Entry): void {
    const known = this.#flows.get(entry.flow);
    const ref = { context: entry.context, flow: entry.flow };
    const reading = this.#reading.get(entry.flow);
    // What is being read may not hold it, and a flow that has ended is told of no more.
    if (reading !== undefined && entry.lane === 'main' && entry.kind === 'end')
      reading.again = true;
    if (known === undefined) {
      // The first decision of a flow is its deploy; anything later was missed from the beginning.
      if (entry.lane === 'main' && entry.kind === 'deploy') {
        this.#take(ref, track(emptyTrack(), entry, this.#authority));
      } else if (entry.lane === 'main' && entry.kind !== 'end') this.#refreshSoon(ref);
      return;
    }
    if (isBeyond(known.track, entry)) return this.#refreshSoon(ref);
    this.#take(ref, track(known.track, entry, this.#authority));
  }

  #take(ref: FlowRef, next: Track): void {
    const known = this.#flows.get(ref.flow);
    if (known !== undefined && next.mainSeq <= known.track.mainSeq) {
      if (next.mainSeq < known.track.mainSeq || isSame(next, known.track)) return;
    }
    const flow = known ?? this.#begin(ref, next);
    flow.movedMs = performance.now();
    const before = known?.track ?? emptyTrack();
    flow.track = next;
    this.#count(before.term?.node, next.term?.node);
    const same =
      before.term === next.term && before.cancelled === next.cancelled && before.end === next.end;
    if (known === undefined || !same) flow.actor.send({ type: 'LOG', track: next });
    this.#reviewAssignee(flow, (address) =>
      this.#options.roster.nodes().find((each) => each.address === address),
    );
  }

  /** What the roster told of an assignee may have been told before its flow was here, or while it moved. */
  #reviewAssignee(
    { track: { term, end }, actor, wokenInc }: OpenFlow,
    nodeAt: (address: string) => RosterNode | undefined,
  ): void {
    if (term === null || end !== null) return;
    const node = nodeAt(term.node);
    if (node === undefined || node.liveness === 'dead' || node.liveness === 'drained') {
      const reason = node === undefined ? 'is not in the roster' : `is ${node.liveness}`;
      actor.send({ type: 'NODE_LOST', node: term.node, reason });
    } else if (node.liveness === 'live' && node.inc !== wokenInc) {
      actor.send({ type: 'NODE_BACK', node: term.node });
    }
  }

  /** A server that was killed may have lost what waited in a queue: wakes nobody has answered go again. */
  #wakeUndecided(): void {
    for (const flow of this.#flows.values()) {
      if (flow.track.term?.decided === false) flow.wokenInc = '';
    }
    this.#reviewAll();
  }

  /** No state waits without a wake: now and then every flow is held against the roster. */
  #reviewAll(): void {
    const byAddress = new Map(this.#options.roster.nodes().map((node) => [node.address, node]));
    for (const flow of this.#flows.values()) {
      this.#reviewAssignee(flow, (address) => byAddress.get(address));
    }
  }

  /** A copy lost on its way is told by nobody: what stands in the log is read, of some flows at a time. */
  async #rereadStill(): Promise<void> {
    if (this.#rereading || !this.#options.bus.link.state().up) return;
    this.#rereading = true;
    try {
      const list = await this.#openFlows.list();
      const unseen = list.filter(({ flow }) => !this.#flows.has(flow));
      const count = Math.max(REREAD_MIN, Math.ceil(this.#flows.size / REREAD_WITHIN));
      const stillSinceMs = performance.now() - STILL_MS;
      const still = [...this.#flows.values()]
        .filter(({ movedMs }) => movedMs < stillSinceMs)
        .toSorted((a, b) => a.movedMs - b.movedMs)
        .slice(0, count);
      for (const ref of [...unseen, ...still.map((flow) => flow.ref)]) await this.#reread(ref);
    } finally {
      this.#rereading = false;
    }
  }

  async #reread(ref: FlowRef): Promise<void> {
    const flow = this.#flows.get(ref.flow);
    if (flow !== undefined) flow.movedMs = performance.now();
    const read = await this.#read(ref);
    // What was decided just now may be on its way.
    if (read.mainSeq === 0 || this.#options.bus.now() - read.at < ON_ITS_WAY_MS) return;
    const known = this.#flows.get(ref.flow)?.track ?? emptyTrack();
    if (known.mainSeq > read.mainSeq || isSame(known, read)) return;
    this.#options.alarm(`flow ${ref.flow}: a copy of it was lost; its log was read again`);
    this.#take(ref, read);
  }

  /** A cancelled flow only has to end: any node will do. */
  #selectorOf(ref: FlowRef): string | null {
    const flow = this.#flows.get(ref.flow);
    return flow === undefined || flow.track.cancelled ? null : flow.selector;
  }

  #begin(ref: FlowRef, { deploy, reopened, end }: Track): OpenFlow {
    const name = `coord-${ref.flow}`;
    const actor = this.#options.host.start(name, this.#machine, ref);
    const selector = deploy === null ? null : selectorIn(deploy.envelope);
    const flow: OpenFlow = { ref, track: emptyTrack(), actor, selector, wokenInc: '', movedMs: 0 };
    this.#flows.set(ref.flow, flow);
    this.#quotas.opened(ref);
    // Its end may have closed it just before: it stays findable whatever becomes of this process.
    if (reopened > 0 && end === null) {
      this.#openFlows
        .add(ref)
        .catch((error: unknown) => this.#alarm('opening a flow again', error));
    }
    return flow;
  }

  #forget(ref: FlowRef): void {
    const flow = this.#flows.get(ref.flow);
    if (flow === undefined) return;
    this.#flows.delete(ref.flow);
    this.#quotas.closed(ref);
    this.#count(flow.track.term?.node, undefined);
  }

  #count(before: string | undefined, after: string | undefined): void {
    if (before === after) return;
    if (before !== undefined) this.#perNode.set(before, (this.#perNode.get(before) ?? 1) - 1);
    if (after !== undefined) this.#perNode.set(after, (this.#perNode.get(after) ?? 0) + 1);
  }

  #rosterChanged(node: RosterNode, what: string): void {
    const gone = node.liveness === 'dead' || node.liveness === 'drained';
    const back =
      node.liveness === 'live' && (what === 'restart' || what === 'liveness' || what === 'new');
    for (const {
      actor,
      track: { term },
    } of this.#flows.values()) {
      if (term?.node === node.address) {
        const reason = node.reason ?? `is ${node.liveness}`;
        if (gone) actor.send({ type: 'NODE_LOST', node: node.address, reason });
        else if (back) actor.send({ type: 'NODE_BACK', node: node.address });
      }
      if (node.liveness === 'live') actor.send({ type: 'ROSTER_CHANGED' });
    }
  }
}

/**
 * The fence lets no decision of another term in, and hardly a cancel before the first: an assignment between
 * was not heard of. A cancelled flow that is taken for one without an assignee would never be woken.
 */
function isBeyond({ term, mainSeq }: Track, entry: Entry): boolean {
  if (entry.lane !== 'main' || entry.seq <= mainSeq) return false;
  if (entry.kind === 'cancel') return term === null;
  const { term: its } = (entry.body ?? {}) as { term?: unknown };
  return its !== undefined && its !== term?.seq;
}

/** Two tracks up to the same decision differ only where one was made without a decision before it. */
const isSame = (a: Track, b: Track): boolean =>
  a.mainSeq === b.mainSeq &&
  a.jobs === b.jobs &&
  a.terms === b.terms &&
  a.cancelled === b.cancelled &&
  a.reopened === b.reopened &&
  a.commands.length === b.commands.length &&
  a.end?.status === b.end?.status &&
  a.term?.seq === b.term?.seq &&
  a.term?.decided === b.term?.decided;

/** Where the signer wants the flow; the envelope was verified before it came into the log. */
function selectorIn(envelope: string): string | null {
  const { payload } = open(new TextEncoder().encode(envelope));
  const deployment = Deployment.safeParse(parseStrictBytes(payload, 'bad_envelope'));
  return deployment.success ? deployment.data.on : null;
}
