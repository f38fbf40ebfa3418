/**
 * The bus as the actors see it: the one interface between what is decided and what carries it.
 *
 * `bus/nats.ts` implements it on JetStream. Nothing outside `bus/` imports a NATS package, and no actor
 * depends on more than this page, so a simulated bus can stand in for the real one.
 */
import type { EntryProof } from './entry-signature.ts';
import type { FlowSubject } from './subjects.ts';
import type {
  Address,
  ContextName,
  FlowId,
  FlowRef,
  Incarnation,
  PackId,
  Principal,
} from '../schemas/ids.ts';
import type { ClaimEntry, DecisionKind, RunEntry } from '../schemas/flow.ts';
import type { JobKind } from '../schemas/job.ts';

/**
 * One stored entry of a flow's log. `at` is the stream's timestamp in epoch ms; `body` is parsed JSON, not yet
 * trusted. `proof` is what its writer's signature says; null where there is no valid one.
 */
export type Entry = FlowSubject & {
  seq: number;
  at: number;
  body: unknown;
  proof: EntryProof | null;
};

/** Where it stands in its stream. */
export type Appended = { seq: number };

/** What a fence answers to who lost it: the sequence that stands in the way. */
export class FenceLost extends Error {
  override readonly name = 'FenceLost';
  readonly last: number;
  constructor(last: number) {
    super(`another decision stands at sequence ${last}`);
    this.last = last;
  }
}

/** A running follow: entries arrive in order, each once, from the sequence asked for. */
export interface Follower {
  /**
   * Settles when everything stored at the time of the call has been delivered. Gives the sequence up to
   * which it had read then; for a follow of what comes after a filter: that of the last message under it.
   */
  readonly caughtUp: Promise<number>;
  /** Reads again what the log stored since the last entry delivered: for who suspects a gap. */
  poke(): void;
  /** The same; settles when it has been read, or the follow was stopped. */
  check(): Promise<void>;
  stop(): void;
}

export interface FlowLog {
  /**
   * Appends a decision fenced by the last decision its writer has folded (0: none).
   * Resolves after the commit; throws FenceLost when another decision was first. A lost acknowledgement
   * is resolved by reading the log, so "it threw" means "it is not there".
   */
  decide(ref: FlowRef, kind: DecisionKind, body: object, expected: number): Promise<Appended>;
  /** Claims or voids a pack; exactly one of all claims and voids of a pack wins. */
  claim(ref: FlowRef, pack: PackId, body: ClaimEntry): Promise<Appended>;
  /** Appends what happened; never fenced. */
  fact(ref: FlowRef, pack: PackId, body: RunEntry): Promise<Appended>;
  /** All entries of one flow stored so far, in order, from `from` (default: the first). */
  read(ref: FlowRef, from?: number): AsyncIterable<Entry>;
  /**
   * All entries of several flows of a context stored so far, from `from` on, in the order of the log; at most
   * FLOWS_FOLLOWED_MAX flows. For who follows by leave of the ledger, not for the control plane.
   */
  readSeveral(context: ContextName, flows: readonly FlowId[], from: number): AsyncIterable<Entry>;
  /**
   * Entries from `from` on, past and future, until stopped. `onMissed` is told of an entry older than others
   * that were told already: what was folded without it is to be folded anew. A `poke` or `check` finds it.
   */
  follow(
    ref: FlowRef,
    from: number,
    onEntry: (entry: Entry) => void,
    onMissed?: (entry: Entry) => void,
  ): Follower;
  /** Where the last entry of a flow stands, of whatever kind; 0 when it has none. */
  lastEntry(ref: FlowRef): Promise<number>;
  /** The last decision of a flow, or of one kind in it; undefined when there is none. */
  lastDecision(ref: FlowRef, kind?: DecisionKind): Promise<Entry | undefined>;
  /**
   * Live decisions of one flow: what a runner watches while it executes. They come from where the log stood
   * at `caughtUp` at the latest: what was before is read after that, or there may be a gap between the two.
   */
  watchDecisions(ref: FlowRef, onEntry: (entry: Entry) => void): Follower;
  /** Live decisions of all flows, in the same way. Control plane only. */
  watchAllDecisions(onEntry: (entry: Entry) => void): Follower;
  /** All decisions of one flow stored so far, in order: `read` without claims and facts. */
  readDecisions(ref: FlowRef): AsyncIterable<Entry>;
  /**
   * Takes a flow's log up to that sequence away, and its output; false where it has to stay, since it holds
   * the newest entry of all, by which a log that went back is told. Control plane only.
   */
  forget(ref: FlowRef, upTo: number): Promise<boolean>;
  /** The last entry of each of these kinds of every flow of a context. Control plane only. */
  overview(context: ContextName, kinds: readonly DecisionKind[]): AsyncIterable<Entry>;
}

export interface Subscription {
  stop(): void;
}

/** One message of a work queue. It wakes; the log decides. */
export interface QueueMessage {
  subject: string;
  data: Uint8Array;
  /** The queue stream's sequence and timestamp (epoch ms) of the message. */
  seq: number;
  at: number;
  deliveries: number;
  ack(): void;
  /** Deliver again after the delay. */
  nak(delayMs: number): void;
  /** Never deliver again. */
  term(reason: string): void;
  /** Still at it: starts the ack wait anew. */
  working(): void;
}

export type QueueName =
  | { queue: 'deploy' }
  | { queue: 'assign' }
  | { queue: 'jobs'; context: ContextName; class: JobKind };

export interface Consumption {
  stop(): Promise<void>;
}

export interface Queues {
  /**
   * Calls `handle` for each message, at most `inFlight()` unacknowledged at a time; survives reconnects,
   * and a handler that throws means a nak with back-off, never the end of the loop.
   */
  consume(
    queue: QueueName,
    options: { inFlight: number },
    handle: (message: QueueMessage) => Promise<void>,
  ): Promise<Consumption>;
  /** Published again with the same `id`, which must be unguessable, within two minutes it is stored once. */
  publish(subject: string, body: object, id?: string): Promise<Appended>;
  publishBytes(subject: string, data: Uint8Array): Promise<Appended>;
}

export type KvEntry = { key: string; value: unknown; revision: number; at: number };

/** Compare-and-set failed: the revision that stands. */
export class RevisionLost extends Error {
  override readonly name = 'RevisionLost';
}

/** A bucket of JSON values; keys are any text, escaped inside. */
export interface Kv {
  get(key: string): Promise<KvEntry | undefined>;
  /** Revision of the key's last change, its deletion included; 0 when it never was. */
  revision(key: string): Promise<number>;
  put(key: string, value: unknown): Promise<number>;
  /** Throws RevisionLost when the key exists. */
  create(key: string, value: unknown): Promise<number>;
  /** Throws RevisionLost when the revision is not that of the last change; 0: there was none. */
  update(key: string, value: unknown, revision: number): Promise<number>;
  delete(key: string, revision?: number): Promise<void>;
  /** Keys that start with the prefix, sorted. */
  list(prefix?: string): Promise<string[]>;
  /** All entries now, then every change; `undefined` value = deleted. Control plane only. */
  watch(onChange: (key: string, entry: KvEntry | undefined) => void): Promise<Subscription>;
}

/** Large values, modules, images, files of a context, by the SHA-256 of their bytes (bus/blobs.ts). */
export interface Blobs {
  /** Stores the bytes and gives their digest, 64 hex digits; the same bytes again change nothing. */
  put(context: ContextName, bytes: Uint8Array): Promise<string>;
  /**
   * The bytes of a digest. Throws not_found, or unverifiable when they are not what the digest, or the size
   * that was said, asks for.
   */
  get(context: ContextName, digest: string, size?: number): Promise<Uint8Array>;
}

export type LinkState = { up: boolean; sinceMs: number };

export interface Link {
  state(): LinkState;
  onChange(listener: (state: LinkState) => void): Subscription;
}

export type Incoming = {
  subject: string;
  data: Uint8Array;
  /** Who asked, as the server vouches for it; undefined where the server says nothing. */
  caller: Principal | undefined;
  reply?: (body: object) => void;
};

export type StoredMessage = { subject: string; seq: number; at: number; body: unknown };

export interface Bus {
  readonly principal: Principal;
  readonly address: Address;
  readonly incarnation: Incarnation;
  readonly link: Link;
  readonly log: FlowLog;
  readonly queues: Queues;
  readonly blobs: Blobs;
  kv(bucket: string): Kv;
  /** What a stream holds under a filter, oldest first; bodies are parsed JSON. Control plane only. */
  stored(stream: 'refused', filter: string): AsyncIterable<StoredMessage>;
  /** Bus time, epoch ms: the stream's clock as this process last saw it, carried on by its monotonic clock. */
  now(): number;
  publish(subject: string, body: object): void;
  subscribe(subject: string, onMessage: (message: Incoming) => void): Subscription;
  /** Rejects with HeroError `unreachable` when nobody answers in time. */
  request(subject: string, body: object | Uint8Array, timeoutMs?: number): Promise<unknown>;
  close(): Promise<void>;
}
