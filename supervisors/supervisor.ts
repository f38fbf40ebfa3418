/**
 * supervisor: the actor of a node. Admits flows it is assigned, drives their scripts, keeps its runners.
 *
 * It beats once a second, answers its runners' beats (their lease), takes wake-ups from `hb.assign.<addr>`
 * and hosts one script for each flow. All it knows of a flow is in the log: losing this process loses
 * nothing, and a second supervisor that believes the same is stopped by the fence.
 */
import os from 'node:os';
import { setTimeout as delay } from 'node:timers/promises';
import type { Actor } from 'xstate';
import { Deadlines } from '../actors/deadlines.ts';
import type { Host } from '../actors/host.ts';
import { backoffMs } from '../actors/supervise.ts';
import type { Bus, Consumption, Incoming, QueueMessage, Subscription } from '../bus/bus.ts';
import { subjects } from '../bus/subjects.ts';
import { ensureError, HeroError } from '../schemas/errors.ts';
import { AssignWake } from '../schemas/flow.ts';
import type { FlowRef } from '../schemas/ids.ts';
import { readJson } from '../schemas/json.ts';
import {
  BEAT_MS,
  type NodeBeat,
  type Refused,
  type RosterNode,
  RunnerBeat,
} from '../schemas/node.ts';
import { type Doze, Dormitory } from './dormitory.ts';
import { JobBudget } from './job-budget.ts';
import { LedgerView } from './ledger-view.ts';
import { Outstanding } from './outstanding.ts';
import { RunnerRegistry } from './runner-registry.ts';
import { ScriptHost } from './script-host.ts';
import { scriptHostMachine } from './script-host.machine.ts';
import { ScriptPool, type ScriptWorker } from './script-pool.ts';
import { StartGate } from './start-gate.ts';
import { supervisorMachine } from './supervisor.machine.ts';

export type RosterView = {
  nodes(): readonly RosterNode[];
  onChange(listener: (node: RosterNode, what: string) => void): Subscription;
};

export type SupervisorOptions = {
  bus: Bus;
  host: Host;
  roster: RosterView;
  name: string;
  groups: string[];
  /** Capabilities this node offers. */
  offers: string[];
  version: string;
  /** Told when the node serves other contexts than before: its credentials name them. */
  contextsChanged: () => void;
  alarm: (message: string) => void;
  /** Where scripts run; by default in a worker thread. */
  startScriptWorker?: () => ScriptWorker;
};

export type RunningSupervisor = {
  /** Takes nothing new; resolves when what runs has ended or `graceMs` have passed. */
  drain(reason: string, graceMs: number): Promise<void>;
  stop(): Promise<void>;
};

const FLOWS_MAX = 20_000;
/** How soon a node serves a context that was made after it joined. */
const LEDGER_REFRESH_MS = 2_000;
/** How often every hosted flow is looked at again, whatever happens: no wait without a wake. */
const REVIEW_MS = 5_000;
const LEDGER_BACKOFF = { firstMs: LEDGER_REFRESH_MS, maxMs: 60_000 };
const START_BACKOFF = { firstMs: 100, maxMs: 2_000 };
/** How often hosted flows are looked through for those that may doze (dormitory.ts). */
const TIDY_MS = 1_000;
/** A flow that waits is hosted so long: with open jobs, and without; and more briefly where many wait. */
const DOZE_AFTER_MS = 30_000;
const DOZE_IDLE_AFTER_MS = 1_000;
const HOSTED_MAX = 500;
/** What falls due that soon is not worth letting go. */
const DUE_SOON_MS = 5_000;
const TROUBLE_BACKOFF = { firstMs: 200, maxMs: 10_000 };

type Hosted = { script: ScriptHost; actor: Actor<typeof scriptHostMachine>; leaving: boolean };

/** What a flow tells when it is up: from then on it needs no place at the gate. */
const UP: ReadonlySet<string> = new Set(['WAITS', 'PAUSES', 'TROUBLE', 'ENDED', 'MOVED']);

export async function startSupervisor(options: SupervisorOptions): Promise<RunningSupervisor> {
  const supervisor = new Supervisor(options);
  await supervisor.start();
  return supervisor;
}

class Supervisor implements RunningSupervisor {
  readonly #options: SupervisorOptions;
  readonly #ledger: LedgerView;
  readonly #registry = new RunnerRegistry();
  readonly #outstanding = new Outstanding();
  readonly #pool: ScriptPool;
  readonly #budget = new JobBudget();
  readonly #deadlines: Deadlines;
  readonly #hosted = new Map<string, Hosted>();
  readonly #gate = new StartGate({ start: (ref) => this.#hostFlow(ref) });
  readonly #dormitory: Dormitory;
  readonly #actor: Actor<typeof supervisorMachine>;
  readonly #machine: typeof scriptHostMachine;
  readonly #subscriptions: Subscription[] = [];
  readonly #timers: NodeJS.Timeout[] = [];
  #assignments: Consumption | undefined;
  #finished: (() => void) | undefined;
  #seq = 0;
  #unreadable: Refused | undefined;
  /** Rounds in which the ledger refused or was away, what it said last, and when it is asked again. */
  #refusals = 0;
  #refused = '';
  #askAgainMs = 0;
  #drainingSinceMs = Number.POSITIVE_INFINITY;

  constructor(options: SupervisorOptions) {
    this.#options = options;
    this.#ledger = new LedgerView(options.bus);
    this.#pool = new ScriptPool(1, options.startScriptWorker);
    this.#deadlines = new Deadlines(options.bus);
    this.#dormitory = new Dormitory({
      bus: options.bus,
      deadlines: this.#deadlines,
      wake: (ref) => this.#gate.ask(ref, 'returning'),
    });
    this.#machine = this.#provideScriptHost();
    this.#actor = options.host.start('supervisor', this.#provideSupervisor(), {
      flowsMax: FLOWS_MAX,
    });
  }

  async start(): Promise<void> {
    const { bus, roster } = this.#options;
    await this.#patiently('asking the ledger', () => this.#ledger.refresh());
    this.#subscriptions.push(
      bus.subscribe(subjects.beat(bus.address), (message) => this.#takeBeat(message)),
      roster.onChange(({ address }) => this.#lookAtAll(address)),
      bus.link.onChange(({ up }) => {
        if (!up) return;
        this.#askAgainMs = 0;
        this.#registry.restartListening();
        for (const { script } of this.#hosted.values()) script.reconnected();
        this.#dormitory.reconnected();
      }),
    );
    this.#every(BEAT_MS, () => this.#beat());
    this.#every(LEDGER_REFRESH_MS, () => this.#refreshLedger());
    this.#every(REVIEW_MS, () => this.#review());
    this.#every(TIDY_MS, () => this.#tidy());
    this.#assignments = await this.#patiently('opening its queue', () =>
      bus.queues.consume({ queue: 'assign' }, { inFlight: 64 }, (message) =>
        this.#takeAssignment(message),
      ),
    );
    this.#actor.send({ type: 'STARTED' });
  }

  async drain(reason: string, graceMs: number): Promise<void> {
    const finished = new Promise<void>((resolve) => {
      this.#finished = resolve;
    });
    this.#actor.send({ type: 'DRAIN', reason });
    const deadline = setTimeout(() => this.#actor.send({ type: 'DEADLINE' }), graceMs);
    this.#reportIdle();
    await finished;
    clearTimeout(deadline);
  }

  async stop(): Promise<void> {
    for (const timer of this.#timers) clearInterval(timer);
    for (const subscription of this.#subscriptions) subscription.stop();
    await this.#assignments?.stop();
    this.#gate.stop();
    this.#dormitory.stop();
    this.#deadlines.stop();
    for (const { script, actor } of this.#hosted.values()) {
      actor.stop();
      script.close();
    }
    this.#hosted.clear();
    await this.#pool.stop();
  }

  #provideSupervisor(): typeof supervisorMachine {
    return supervisorMachine.provide({
      actions: {
        // The beat tells the state; one at once makes a change known without waiting a second.
        announce: () => setImmediate(() => this.#beat()),
        refuseFlows: () => {
          this.#assignments
            ?.stop()
            .catch((error: unknown) => this.#alarm('stopping assignments', error));
        },
        // The answer to each runner's next beat tells it (runner-registry.ts).
        drainRunners: () => {
          this.#drainingSinceMs = performance.now();
        },
        finish: () => this.#finished?.(),
      },
    });
  }

  #provideScriptHost(): typeof scriptHostMachine {
    const hosted = (ref: FlowRef): Hosted | undefined => this.#hosted.get(ref.flow);
    const due = (ref: FlowRef, atMs: number, send: () => void): void =>
      this.#deadlines.arm(`script ${ref.flow}`, atMs, send);
    return scriptHostMachine.provide({
      actions: {
        admit: ({ context: ref, self }) => {
          hosted(ref)
            ?.script.admit()
            .catch((error: unknown) => {
              self.send({ type: 'TROUBLE', reason: ensureError(error).message });
            });
        },
        drive: ({ context: ref }) => hosted(ref)?.script.drive(),
        armDeadline: ({ context, self }) => {
          if (context.dueMs !== null) due(context, context.dueMs, () => self.send({ type: 'DUE' }));
        },
        armRetry: ({ context, self }) => {
          this.#options.alarm(`flow ${context.flow}: ${context.reason ?? 'trouble'}; tried again`);
          const waitMs = backoffMs(context.troubles, TROUBLE_BACKOFF);
          due(context, this.#options.bus.now() + waitMs, () => self.send({ type: 'DUE' }));
        },
        disarmDeadline: ({ context: ref }) => this.#deadlines.disarm(`script ${ref.flow}`),
        release: ({ context: ref }) => this.#release(ref),
      },
    });
  }

  async #takeAssignment(message: QueueMessage): Promise<void> {
    const wake = AssignWake.safeParse(readJson(message.data));
    if (!wake.success) {
      const last = `message ${message.seq} of ${message.subject}: no assignment can be read in it`;
      this.#options.alarm(`${last}; it is dropped`);
      this.#unreadable = { count: (this.#unreadable?.count ?? 0) + 1, last };
      return message.term('no assignment can be read in it');
    }
    const { context, flow, term, fresh } = wake.data;
    const known = this.#hosted.get(flow);
    const dozing = this.#dormitory.get(flow);
    if (known !== undefined) {
      if (known.script.term < term) known.script.poke();
      else known.script.look();
    } else if (dozing !== undefined && dozing.term >= term) this.#dormitory.look(flow);
    else this.#gate.ask({ context, flow }, fresh === true ? 'fresh' : 'returning');
    message.ack();
  }

  #hostFlow(ref: FlowRef): void {
    if (this.#hosted.has(ref.flow)) return this.#gate.isUp(ref);
    const { bus, host, roster } = this.#options;
    const script: ScriptHost = new ScriptHost(ref, {
      bus,
      ledger: this.#ledger,
      pool: this.#pool,
      budget: this.#budget,
      nodes: () => roster.nodes(),
      nodeView: (address) => {
        if (address === bus.address) return this.#registry.view(this.#state(), bus.now());
        const node = roster.nodes().find((each) => each.address === address);
        return node === undefined
          ? undefined
          : { ...node, atMs: node.beat_ms, asOfMs: node.beat_ms };
      },
      load: (address) => this.#outstanding.on(address),
      placed: (n, node) => this.#outstanding.move(ref.flow, n, node),
      tell: (event) => {
        this.#hosted.get(ref.flow)?.actor.send(event);
        if (UP.has(event.type)) this.#gate.isUp(ref);
      },
      alarm: this.#options.alarm,
      startAnew: (why) => {
        this.#options.alarm(`flow ${ref.flow}: ${why}`);
        this.#hosted.get(ref.flow)?.actor.send({ type: 'MOVED' });
        this.#hostFlow(ref);
      },
    });
    // The actor's first effect looks the script up: it is entered before the actor starts.
    const entry: Partial<Hosted> & { script: ScriptHost } = { script, leaving: false };
    this.#hosted.set(ref.flow, entry as Hosted);
    entry.actor = host.start(`script-${ref.flow}`, this.#machine, ref);
    this.#dormitory.release(ref.flow);
    this.#actor.send({ type: 'LOAD', flows: this.#flows });
  }

  get #flows(): number {
    return this.#hosted.size + this.#dormitory.size + this.#gate.waiting;
  }

  /** Lets flows doze that wait: the longest still first, and sooner where there are many. */
  #tidy(): void {
    const nowMs = this.#options.bus.now();
    const waiting = [...this.#hosted.values()]
      .filter((hosted) => this.#waits(hosted, nowMs))
      .map((hosted) => ({ hosted, stillMs: hosted.script.stillMs }))
      .toSorted((a, b) => b.stillMs - a.stillMs);
    let surplus = this.#hosted.size - HOSTED_MAX;
    for (const { hosted, stillMs } of waiting) {
      const afterMs = hosted.script.hasOpenJobs ? DOZE_AFTER_MS : DOZE_IDLE_AFTER_MS;
      if (stillMs < afterMs && surplus <= 0) continue;
      surplus -= 1;
      const { script } = hosted;
      hosted.leaving = true;
      const letGo = (): Doze | undefined => this.#letGo(hosted);
      void this.#dormitory
        .take(script.ref, () => script.confirm(), letGo)
        .finally(() => {
          hosted.leaving = false;
        });
    }
  }

  #waits({ actor, leaving }: Hosted, nowMs: number): boolean {
    const { value, context } = actor.getSnapshot();
    if (leaving || (value !== 'waiting' && value !== 'paused')) return false;
    return context.dueMs === null || context.dueMs - nowMs > DUE_SOON_MS;
  }

  /** Gives a flow up that waits and has missed nothing; what is known of its load stays. */
  #letGo(hosted: Hosted): Doze | undefined {
    const { script, actor } = hosted;
    const { flow } = script.ref;
    if (this.#hosted.get(flow) !== hosted) return undefined;
    const { value, context } = actor.getSnapshot();
    if (value !== 'waiting' && value !== 'paused') return undefined;
    const doze = script.doze();
    if (doze === undefined) return undefined;
    this.#hosted.delete(flow);
    this.#options.host.stop(`script-${flow}`);
    this.#deadlines.disarm(`script ${flow}`);
    script.close();
    return { ...doze, dueMs: value === 'waiting' ? context.dueMs : null };
  }

  #release(ref: FlowRef): void {
    const hosted = this.#hosted.get(ref.flow);
    if (hosted === undefined) return;
    this.#hosted.delete(ref.flow);
    hosted.script.close();
    this.#outstanding.forget(ref.flow);
    this.#gate.isUp(ref);
    this.#actor.send({ type: 'LOAD', flows: this.#flows });
    this.#reportIdle();
  }

  #takeBeat({ data, reply }: Incoming): void {
    const beat = RunnerBeat.safeParse(readJson(data));
    if (!beat.success || reply === undefined) return;
    const isNew = this.#registry.take(beat.data);
    if (!this.#registry.isCurrent(beat.data)) return;
    reply(this.#registry.lease(this.#state() === 'draining', this.#ledger.contexts()));
    if (isNew) {
      this.#beat();
      this.#lookAtAll(this.#options.bus.address);
    }
    this.#reportIdle();
  }

  #beat(): void {
    const { bus, name, groups, offers, version } = this.#options;
    const beat: NodeBeat = {
      v: 1,
      role: 'node',
      inc: bus.incarnation,
      seq: this.#seq++,
      principal: bus.principal,
      name,
      groups,
      offers,
      state: this.#state() as NodeBeat['state'],
      runners: this.#registry.reports(),
      flows: this.#flows,
      ...(this.#unreadable === undefined ? {} : { refused: this.#unreadable }),
      version,
      cpus: os.availableParallelism(),
      memory_mib: Math.round(os.totalmem() / 2 ** 20),
      load1: os.loadavg()[0] ?? 0,
    };
    bus.publish(subjects.beat(bus.address), beat);
  }

  #state(): string {
    return String(this.#actor.getSnapshot().value);
  }

  /** A node is another than before. */
  #lookAtAll(address: string): void {
    for (const { script } of this.#hosted.values()) script.look();
    this.#dormitory.nodeChanged(address);
  }

  /** Whatever sleeps wrongly is woken: a lost live entry, a queue message that never came. */
  #review(): void {
    for (const { script } of this.#hosted.values()) script.review();
    this.#dormitory.review();
  }

  /** A ledger that refuses goes on refusing, mostly: it is asked less and less often, and told of once. */
  #refreshLedger(): void {
    if (performance.now() < this.#askAgainMs) return;
    const before = this.#ledger.contexts().join();
    this.#ledger.refresh().then(
      () => {
        if (this.#refusals > 0) this.#options.alarm('the ledger answers again');
        this.#refusals = 0;
        this.#refused = '';
        if (this.#ledger.contexts().join() !== before) this.#options.contextsChanged();
      },
      (error: unknown) => {
        this.#askAgainMs = performance.now() + backoffMs(this.#refusals++, LEDGER_BACKOFF);
        const { message } = ensureError(error);
        if (message !== this.#refused) this.#alarm('asking the ledger', error);
        this.#refused = message;
      },
    );
  }

  /** The control plane may be starting as well: what it cannot answer yet is no reason to end. */
  async #patiently<T>(what: string, act: () => Promise<T>): Promise<T> {
    for (let tries = 0; ; tries++) {
      try {
        return await act();
      } catch (error) {
        if (!(error instanceof HeroError) || error.code !== 'unreachable') throw error;
        if (tries === 0) this.#alarm(`${what}, tried again`, error);
        await delay(backoffMs(tries, START_BACKOFF));
      }
    }
  }

  #reportIdle(): void {
    if (this.#state() !== 'draining') return;
    if (this.#registry.isIdleSince(this.#drainingSinceMs)) this.#actor.send({ type: 'IDLE' });
  }

  /** A loop that no failure of one round ends. */
  #every(periodMs: number, round: () => void): void {
    this.#timers.push(
      setInterval(() => {
        try {
          round();
        } catch (error) {
          this.#alarm('a periodic round', error);
        }
      }, periodMs),
    );
  }

  #alarm(what: string, error: unknown): void {
    this.#options.alarm(`${what}: ${ensureError(error).message}`);
  }
}
