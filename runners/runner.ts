/**
 * A runner: pulls packs of one class, claims them, executes their jobs, reports; until it is told to end
 * or loses its lease. Its statechart (`runner.machine.ts`) decides, here is what it is made of.
 *
 * One runner is one process in a node (tools start it), or one of several in a test. It starts nothing by
 * itself again: how it ended is told to its parent, who starts a new one with a new incarnation.
 */
import { setTimeout as delay } from 'node:timers/promises';
import type { Host } from '../actors/host.ts';
import { newIncarnation } from '../actors/incarnation.ts';
import type { Running } from '../actors/supervise.ts';
import type { Bus } from '../bus/bus.ts';
import { atMoment } from '../sal/deadline.ts';
import type { ContextName, Incarnation } from '../schemas/ids.ts';
import type { RunnerBeat } from '../schemas/node.ts';
import { startBeating } from './beat.ts';
import type { RunnerClass } from './classes/class.ts';
import type { Desk, Verify } from './execution.ts';
import { Intake, type IntakeStats } from './intake.ts';
import { holdsLease, type Lease, NO_LEASE, observeLease, renewLease } from './lease.ts';
import { provideRunner } from './runner.effects.ts';
import type { RunnerEvent } from './runner.machine.ts';
import { Slots } from './slots.ts';
import { FlowWatches } from './watch.ts';

export type RunnerOptions = {
  bus: Bus;
  host: Host;
  /** Unique on the node. */
  name: string;
  work: RunnerClass;
  /** Jobs at a time. */
  slots: number;
  /** Serves only these of the node's contexts; empty for all. */
  contexts: ContextName[];
  verify?: Verify;
  inc?: Incarnation;
};

export type Runner = Running & {
  readonly name: string;
  readonly inc: Incarnation;
  /** Takes no new packs, lets what runs finish, then ends with `drained`. */
  drain: () => void;
  stats: () => IntakeStats & { busy: number };
};

/** What a stop waits for results to be stored and the queue to be let go. */
const FLUSH_WAIT_MS = 2000;

export function startRunner(options: RunnerOptions): Runner {
  const { bus, host, name, work } = options;
  const inc = options.inc ?? newIncarnation(bus.now());
  const refusing = new AbortController();
  const slots: Slots = new Slots(options.slots, (free) => intake.slotsChanged(free));
  const watches = new FlowWatches(bus);
  const lease = new LeaseClock(() => send({ type: 'LEASE_LOST' }));
  const desk: Desk = {
    bus,
    name,
    inc,
    work,
    slots,
    watches,
    verify: options.verify,
    holdsLease: () => lease.holds(),
    send: (event) => send(event),
    refusing: refusing.signal,
  };
  const intake: Intake = new Intake(desk);
  const ended = Promise.withResolvers<string>();

  const finish = async (reason: string): Promise<void> => {
    const closed = intake.close();
    if (reason !== 'lease_lost') {
      const packs = [...intake.held.values()].map((execution) => execution.settled());
      const patience = new AbortController();
      const limit = delay(FLUSH_WAIT_MS, undefined, { signal: patience.signal });
      await Promise.race([Promise.all([closed, ...packs]), limit.catch(() => undefined)]);
      patience.abort();
    }
    stopBeating();
    lease.stop();
    watches.stop();
    work.close();
    ended.resolve(reason);
  };

  const machine = provideRunner({
    serveContexts: (contexts) => intake.serve(contexts),
    refuseWork: () => {
      refusing.abort(new Error('no further work'));
      void intake.close();
    },
    killJobs: (flush) => {
      work.killAll();
      for (const execution of intake.held.values()) execution.kill(flush);
    },
    finish: (reason) => void finish(reason),
  });
  const actor = host.start(`runner:${name}`, machine, undefined);
  const send = (event: RunnerEvent): void => {
    if (actor.getSnapshot().status === 'active') actor.send(event);
  };

  const beat = (seq: number): RunnerBeat => ({
    v: 1,
    role: 'runner',
    inc,
    seq,
    report: {
      runner: name,
      inc,
      class: work.class,
      slots: slots.size,
      busy: slots.busy,
      ...intake.report,
    },
    packs: [...intake.held.keys()],
  });
  const stopBeating = startBeating({
    bus,
    beat,
    onLease: (sentMs, { lease_ms, drain, contexts }) => {
      if (!lease.renew(sentMs, lease_ms)) return;
      const served = contexts.filter(
        (context) => options.contexts.length === 0 || options.contexts.includes(context),
      );
      send({ type: 'LEASE_RENEWED', contexts: served, drain });
    },
  });

  return {
    name,
    inc,
    ended: ended.promise,
    drain: () => send({ type: 'DRAIN' }),
    stop: async () => {
      send({ type: 'STOP' });
      await ended.promise;
    },
    stats: () => ({ ...intake.stats, busy: slots.busy }),
  };
}

/** The lease on this process's clock. Tells once that it is lost: by a timer, or by whoever asks first. */
class LeaseClock {
  #lease: Lease = NO_LEASE;
  #forget: () => void = () => undefined;
  readonly #onLost: () => void;

  constructor(onLost: () => void) {
    this.#onLost = onLost;
  }

  holds(): boolean {
    this.#observe();
    return holdsLease(this.#lease, performance.now());
  }

  /** False when it is lost for good. */
  renew(sentMs: number, leaseMs: number): boolean {
    this.#observe();
    this.#lease = renewLease(this.#lease, sentMs, leaseMs, performance.now());
    if (this.#lease.lost || this.#lease.untilMs === null) return false;
    this.#forget();
    this.#forget = atMoment(this.#lease.untilMs, () => this.#observe());
    return true;
  }

  stop(): void {
    this.#forget();
  }

  #observe(): void {
    const before = this.#lease.lost;
    this.#lease = observeLease(this.#lease, performance.now());
    if (this.#lease.lost && !before) this.#onLost();
  }
}
