/**
 * The intake: pulls packs of the contexts a runner serves, checks them, and hands them to execution.
 *
 *   I1 a queue message is acked only after its pack's claim is committed, or is certain to be somebody's;
 *   I2 two deliveries of one pack in one incarnation are one execution;
 *   I3 a message is kept waiting for a slot only briefly: a runner that stays full gives the queue back,
 *      and others of its node get the pack;
 *   I4 contexts take turns at the door, by the jobs they got (turns.ts);
 *   I5 of the jobs that may be what kills runners one runs at a time, so that none is taken for another.
 */
import { setImmediate as turnEnd, setTimeout as delay } from 'node:timers/promises';
import { backoffMs } from '../actors/supervise.ts';
import { type Consumption, FenceLost, type QueueMessage } from '../bus/bus.ts';
import { subjects } from '../bus/subjects.ts';
import { Pack } from '../schemas/job.ts';
import { readJson } from '../schemas/json.ts';
import type { Refused } from '../schemas/node.ts';
import { type Desk, PackExecution } from './execution.ts';
import { Turns } from './turns.ts';

const FULL_PATIENCE_MS = 250;
const RETRY = { firstMs: 100, maxMs: 5000 };
const CLAIM_AGAIN_MS = 500;
/** How soon a suspect is looked at again while another one runs. */
const SUSPECT_AGAIN_MS = 500;
/** Long enough for this runner's own pull to be gone, so that the pack goes to another one. */
const TURNED_AWAY_MS = 50;
const MESSAGES_MAX = 32;
/** Packs remembered after their claim; beyond it, the fence refuses a redelivery. */
const REMEMBERED_MAX = 4096;

/** `turned away`: nobody tried to claim it, there was no room. */
type Claimed = 'claimed' | 'lost' | 'failed' | 'turned away' | 'not now';

const AGAIN_MS = {
  failed: CLAIM_AGAIN_MS,
  'turned away': TURNED_AWAY_MS,
  'not now': SUSPECT_AGAIN_MS,
} as const;

export type IntakeStats = { packs: number; garbage: number; misplaced: number; duplicates: number };

export class Intake {
  readonly stats: IntakeStats = { packs: 0, garbage: 0, misplaced: 0, duplicates: 0 };
  #lastRefused = '';
  readonly held = new Map<string, PackExecution>();
  readonly #desk: Desk;
  readonly #known = new Map<string, Promise<Claimed>>();
  readonly #consuming = new Map<string, Consumption>();
  #wanted = new Set<string>();
  #full = false;
  #patience: NodeJS.Timeout | undefined;
  #closed = false;
  #adjusting: Promise<void> | undefined;
  /** Aborted to give back what waits at the door. */
  #door = new AbortController();
  /** Packs at the door; each is told how many slots it got. */
  readonly #turns = new Turns<{ jobs: number; enter: (slots: number) => void }>();
  #admitting = false;
  /** One of the suspects is in hand. */
  #suspected = false;

  constructor(desk: Desk) {
    this.#desk = desk;
  }

  /** Pulls from these contexts and no others. */
  serve(contexts: string[]): void {
    this.#wanted = new Set(contexts);
    void this.#adjust();
  }

  /** What it serves; and what a queue held that is no pack for this node: it never comes again. */
  get report(): { contexts: string[]; refused?: Refused } {
    const contexts = [...this.#wanted].sort();
    const count = this.stats.garbage + this.stats.misplaced;
    return count === 0 ? { contexts } : { contexts, refused: { count, last: this.#lastRefused } };
  }

  /** To be told of every change in the number of free slots. */
  slotsChanged(free: number): void {
    if (free > 0) {
      clearTimeout(this.#patience);
      this.#patience = undefined;
      if (!this.#full) return;
      this.#full = false;
      void this.#adjust();
    } else {
      this.#patience ??= setTimeout(() => {
        this.#full = true;
        this.#giveBack();
        void this.#adjust();
      }, FULL_PATIENCE_MS);
    }
  }

  /** Takes nothing any more. */
  async close(): Promise<void> {
    this.#closed = true;
    clearTimeout(this.#patience);
    this.#giveBack();
    await this.#adjust();
  }

  #giveBack(): void {
    this.#door.abort(new Error('no new packs'));
    this.#door = new AbortController();
    for (const { enter } of this.#turns.clear()) enter(0);
  }

  /** Makes what is consumed what is wanted; one adjustment at a time. */
  #adjust(): Promise<void> {
    this.#adjusting ??= this.#adjustUntilRight().finally(() => {
      this.#adjusting = undefined;
    });
    return this.#adjusting;
  }

  async #adjustUntilRight(): Promise<void> {
    for (let tries = 0; ; ) {
      const wanted = this.#closed || this.#full ? new Set<string>() : this.#wanted;
      const surplus = [...this.#consuming.keys()].find((context) => !wanted.has(context));
      // Whoever is asked first has the first slot: it is the one whose turn it is.
      const missing = this.#turns
        .order([...wanted])
        .find((context) => !this.#consuming.has(context));
      if (surplus !== undefined) {
        const consumption = this.#consuming.get(surplus);
        this.#consuming.delete(surplus);
        await consumption?.stop().catch(() => undefined);
      } else if (missing !== undefined) {
        try {
          this.#consuming.set(missing, await this.#consume(missing));
          tries = 0;
        } catch {
          await delay(backoffMs(tries++, RETRY));
        }
      } else {
        return;
      }
    }
  }

  #consume(context: string): Promise<Consumption> {
    const { bus, work, slots } = this.#desk;
    return bus.queues.consume(
      { queue: 'jobs', context, class: work.class },
      { inFlight: Math.min(slots.size, MESSAGES_MAX) },
      (message) => this.#take(message, context),
    );
  }

  async #take(message: QueueMessage, context: string): Promise<void> {
    const pack = this.#read(message, context);
    if (pack === undefined) return;
    const key = `${pack.context}.${pack.flow}.${pack.pack}`;
    const known = this.#known.get(key);
    if (known !== undefined) this.stats.duplicates++;
    const claim = known ?? this.#claim(pack);
    this.#known.set(key, claim);
    const claimed = await claim;
    if (claimed !== 'claimed' && claimed !== 'lost') {
      // Not in the log: whoever gets it next may claim it.
      this.#known.delete(key);
      message.nak(AGAIN_MS[claimed]);
      return;
    }
    message.ack();
    this.#forgetOldest();
  }

  #forgetOldest(): void {
    for (const oldest of this.#known.keys()) {
      if (this.#known.size <= REMEMBERED_MAX || this.held.has(oldest)) break;
      this.#known.delete(oldest);
    }
  }

  /** The pack of a message; undefined when it is none of ours, which is final for the message. */
  #read(message: QueueMessage, context: string): Pack | undefined {
    const { bus, work } = this.#desk;
    const { data: pack, error } = Pack.safeParse(readJson(message.data));
    if (pack === undefined) {
      return this.#refuse('garbage', message, `not a pack: ${error.issues[0]?.message ?? ''}`);
    }
    if (new Set(pack.jobs.map(({ n }) => n)).size < pack.jobs.length) {
      return this.#refuse('garbage', message, 'not a pack: a job stands in it twice');
    }
    // The writer of a message chooses its subject and its body; both must tell the same.
    const expected = subjects.jobs(pack.context, work.class, pack.node);
    if (message.subject !== expected || pack.context !== context || pack.node !== bus.address) {
      return this.#refuse('misplaced', message, `a pack for ${expected} on ${message.subject}`);
    }
    return pack;
  }

  #refuse(what: 'garbage' | 'misplaced', message: QueueMessage, why: string): undefined {
    this.stats[what] += 1;
    this.#lastRefused = `message ${message.seq} of ${message.subject}: ${why}`.slice(0, 300);
    message.term(why);
  }

  /** Slots for a pack of this many jobs; 0 when it is turned away. */
  #enter(jobs: number, context: string): Promise<number> {
    if (this.#full || this.#closed) return Promise.resolve(0);
    return new Promise((enter) => {
      this.#turns.wait(context, jobs, { jobs, enter });
      if (!this.#admitting) void this.#admit();
    });
  }

  /** One pack at a time: it gets all that is free, not one slot as everybody else. */
  async #admit(): Promise<void> {
    const { slots, holdsLease, refusing } = this.#desk;
    this.#admitting = true;
    while (!this.#turns.isEmpty) {
      try {
        await slots.acquire(AbortSignal.any([this.#door.signal, refusing]));
      } catch {
        for (const { enter } of this.#turns.clear()) enter(0);
        break;
      }
      await turnEnd();
      const next = this.#turns.next();
      if (next !== undefined && holdsLease() && !refusing.aborted) {
        next.enter(1 + slots.takeMore(next.jobs - 1));
      } else {
        slots.release();
        next?.enter(0);
      }
    }
    this.#admitting = false;
  }

  async #claim(pack: Pack): Promise<Claimed> {
    if (pack.suspect !== true) return this.#claimNow(pack);
    if (this.#suspected) return 'not now';
    this.#suspected = true;
    const free = (): void => {
      this.#suspected = false;
    };
    const claimed = await this.#claimNow(pack, free);
    if (claimed !== 'claimed') free();
    return claimed;
  }

  async #claimNow(pack: Pack, ended: () => void = () => undefined): Promise<Claimed> {
    const { send } = this.#desk;
    const taken = await this.#enter(pack.jobs.length, pack.context);
    if (taken === 0) return 'turned away';
    const execution = new PackExecution(pack, this.#desk);
    this.held.set(execution.id, execution);
    send({ type: 'PACK_TAKEN' });
    try {
      await execution.claim(taken);
    } catch (error) {
      this.held.delete(execution.id);
      send({ type: 'PACK_DROPPED' });
      return error instanceof FenceLost ? 'lost' : 'failed';
    }
    this.stats.packs++;
    send({ type: 'PACK_CLAIMED' });
    void execution.run().finally(() => {
      this.held.delete(execution.id);
      ended();
    });
    return 'claimed';
  }
}
