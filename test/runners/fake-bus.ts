/**
 * A bus in memory for tests of the runner: one node, one supervisor (the test), a log with true fences,
 * queues that deliver again, a link to cut. `events` is the order in which things were committed.
 */
import { randomBytes } from 'node:crypto';
import {
  type Appended,
  type Bus,
  type Entry,
  FenceLost,
  type Follower,
  type LinkState,
  type QueueMessage,
  type Subscription,
} from '../../bus/bus.ts';
import { parseFlowSubject, subjects } from '../../bus/subjects.ts';
import { HeroError } from '../../schemas/errors.ts';
import type { ClaimEntry, DecisionKind, RunEntry } from '../../schemas/flow.ts';
import type { FlowRef } from '../../schemas/ids.ts';
import type { LogLines, Pack } from '../../schemas/job.ts';
import type { RunnerBeat } from '../../schemas/node.ts';
import { FakeBlobs } from './fake-blobs.ts';

export const NODE = 'a'.repeat(32);
const COORD = 'c'.repeat(32);

type Consumer = {
  inFlight: number;
  busy: number;
  handle: (message: QueueMessage) => Promise<void>;
};

export type Delivered = { subject: string; data: Uint8Array; fate: 'out' | 'ack' | 'nak' | 'term' };

const next = (): Promise<void> =>
  new Promise((resolve) => {
    setImmediate(resolve);
  });

export class FakeBus {
  readonly principal = `U${'A'.repeat(55)}`;
  readonly address = NODE;
  readonly incarnation = randomBytes(8).toString('hex');
  readonly blobs = new FakeBlobs();
  readonly entries: Entry[] = [];
  readonly events: string[] = [];
  readonly logs: { n: string; lines: LogLines['lines'] }[] = [];
  readonly delivered: Delivered[] = [];
  readonly beats: RunnerBeat[] = [];
  /** What the supervisor answers to a beat; undefined: nothing. */
  lease: { lease_ms: number; drain: boolean; contexts: string[] } | undefined = {
    lease_ms: 5000,
    drain: false,
    contexts: ['acme'],
  };
  /** Awaited before each commit of a claim or fact: a test holds or fails it here. */
  beforeCommit: (lane: 'claim' | 'run', body: ClaimEntry | RunEntry) => Promise<void> = () =>
    next();
  beforeLog: () => Promise<void> = () => next();
  readonly #consumers = new Map<string, Consumer>();
  readonly #queue: Delivered[] = [];
  readonly #watchers = new Set<{ ref: FlowRef; onEntry: (entry: Entry) => void }>();
  readonly #linkListeners = new Set<(state: LinkState) => void>();
  #link: LinkState = { up: true, sinceMs: 0 };
  #seq = 100;

  // What the test does.

  publishPack(pack: Pack): void {
    this.deliver(
      subjects.jobs(pack.context, pack.jobs[0]?.spec.kind ?? 'process', pack.node),
      Buffer.from(JSON.stringify(pack)),
    );
  }

  deliver(subject: string, data: Uint8Array): Delivered {
    const message: Delivered = { subject, data, fate: 'out' };
    this.delivered.push(message);
    this.#queue.push(message);
    this.#pump();
    return message;
  }

  /** Nobody who watches hears of a decision. */
  losesCopies = false;

  decide(ref: FlowRef, kind: DecisionKind, body: object): number {
    const entry = this.#append(subjects.decision(ref, COORD, kind), body);
    if (this.#link.up && !this.losesCopies) {
      for (const watcher of this.#watchers) {
        if (watcher.ref.flow === ref.flow) watcher.onEntry(entry);
      }
    }
    return entry.seq;
  }

  setLink(up: boolean): void {
    this.#link = { up, sinceMs: 0 };
    for (const listener of this.#linkListeners) listener(this.#link);
  }

  get consumed(): string[] {
    return [...this.#consumers.keys()].sort();
  }

  get watching(): number {
    return this.#watchers.size;
  }

  facts(): RunEntry[] {
    return this.entries.filter(({ lane }) => lane === 'run').map(({ body }) => body as RunEntry);
  }

  results(): RunEntry['results'] {
    return this.facts().flatMap(({ results }) => results);
  }

  claims(): ClaimEntry[] {
    return this.entries
      .filter(({ lane }) => lane === 'claim')
      .map(({ body }) => body as ClaimEntry);
  }

  lines(n: number): string[] {
    return this.logs
      .filter((batch) => batch.n === String(n))
      .flatMap(({ lines }) => lines.map(({ line }) => line));
  }

  /** Another writer's entry on the claim lane: a void, or a claim of a former incarnation. */
  occupy(ref: FlowRef, pack: string): void {
    this.#append(subjects.claim(ref, pack, NODE), {
      v: 1,
      inc: 'another0',
      type: 'void',
      term: 1,
      reason: '',
    });
  }

  // The interface.

  readonly link = {
    state: (): LinkState => this.#link,
    onChange: (listener: (state: LinkState) => void): Subscription => {
      this.#linkListeners.add(listener);
      return { stop: () => this.#linkListeners.delete(listener) };
    },
  };

  readonly log = {
    claim: async (ref: FlowRef, pack: string, body: ClaimEntry): Promise<Appended> => {
      await this.beforeCommit('claim', body);
      const standing = this.entries.find(
        (entry) => entry.lane === 'claim' && entry.flow === ref.flow && entry.pack === pack,
      );
      if (standing !== undefined) throw new FenceLost(standing.seq);
      const begun = body.type === 'claim' ? body.begun.map(({ n }) => n) : [];
      this.events.push(`claim ${pack} [${begun.join()}]`);
      return this.#append(subjects.claim(ref, pack, NODE), body);
    },
    fact: async (ref: FlowRef, pack: string, body: RunEntry): Promise<Appended> => {
      await this.beforeCommit('run', body);
      for (const { n } of body.results) this.events.push(`result ${n}`);
      if (body.begun.length > 0) this.events.push(`begun [${body.begun.map(({ n }) => n).join()}]`);
      return this.#append(subjects.run(ref, NODE, pack), body);
    },
    lastDecision: async (ref: FlowRef, kind?: DecisionKind): Promise<Entry | undefined> => {
      await next();
      return this.#decisions(ref)
        .filter((entry) => kind === undefined || (entry.lane === 'main' && entry.kind === kind))
        .at(-1);
    },
    readDecisions: async function* (this: FakeBus, ref: FlowRef): AsyncIterable<Entry> {
      await next();
      yield* this.#decisions(ref);
    }.bind(this),
    watchDecisions: (ref: FlowRef, onEntry: (entry: Entry) => void): Follower => {
      const watcher = { ref, onEntry };
      this.#watchers.add(watcher);
      this.events.push('watch');
      return {
        caughtUp: next().then(() => this.#decisions(ref).at(-1)?.seq ?? 0),
        poke: () => undefined,
        check: () => Promise.resolve(),
        stop: () => this.#watchers.delete(watcher),
      };
    },
  };

  readonly queues = {
    consume: async (
      queue: { context: string; class: string },
      { inFlight }: { inFlight: number },
      handle: (message: QueueMessage) => Promise<void>,
    ): Promise<{ stop: () => Promise<void> }> => {
      await next();
      const key = `${queue.context}.${queue.class}`;
      this.#consumers.set(key, { inFlight, busy: 0, handle });
      this.#pump();
      return {
        stop: async () => {
          await next();
          this.#consumers.delete(key);
        },
      };
    },
    publish: async (subject: string, body: object): Promise<Appended> => {
      await this.beforeLog();
      const n = subject.split('.').at(-1) ?? '';
      this.logs.push({ n, lines: (body as LogLines).lines });
      this.events.push(`log ${n}`);
      return { seq: this.logs.length };
    },
  };

  now(): number {
    return performance.timeOrigin + performance.now();
  }

  async request(subject: string, body: object): Promise<unknown> {
    await next();
    if (subject !== subjects.beat(NODE)) throw new HeroError('unreachable', subject);
    this.beats.push(body as RunnerBeat);
    if (this.lease === undefined || !this.#link.up)
      throw new HeroError('unreachable', 'no supervisor');
    return { v: 1, ...this.lease };
  }

  subscribe(): Subscription {
    return { stop: () => undefined };
  }

  asBus(): Bus {
    return this as unknown as Bus;
  }

  #decisions(ref: FlowRef): Entry[] {
    return this.entries.filter((entry) => entry.lane === 'main' && entry.flow === ref.flow);
  }

  #append(subject: string, body: object): Entry {
    const parsed = parseFlowSubject(subject);
    if (parsed === undefined) throw new Error(`odd subject ${subject}`);
    const entry: Entry = {
      ...parsed,
      seq: ++this.#seq,
      at: this.now(),
      body: JSON.parse(JSON.stringify(body)),
      proof: { fence: null },
    };
    this.entries.push(entry);
    return entry;
  }

  /** Hands what waits to consumers that have room, as a work queue does. */
  #pump(): void {
    for (const message of this.#queue.slice()) {
      const [, , context, kind] = message.subject.split('.');
      const consumer = this.#consumers.get(`${context}.${kind}`);
      if (consumer === undefined || consumer.busy >= consumer.inFlight) continue;
      this.#queue.splice(this.#queue.indexOf(message), 1);
      consumer.busy++;
      const settle = (fate: 'ack' | 'nak' | 'term'): void => {
        if (message.fate !== 'out') return;
        message.fate = fate;
        this.events.push(fate);
        if (fate === 'nak') {
          message.fate = 'out';
          setTimeout(() => {
            this.#queue.push(message);
            this.#pump();
          }, 5);
        }
      };
      void consumer
        .handle({
          subject: message.subject,
          data: message.data,
          seq: 1,
          at: this.now(),
          deliveries: 1,
          ack: () => settle('ack'),
          nak: () => settle('nak'),
          term: () => settle('term'),
          working: () => undefined,
        })
        .finally(() => {
          consumer.busy--;
          this.#pump();
        });
    }
  }
}
