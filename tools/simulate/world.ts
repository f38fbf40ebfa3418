/**
 * The simulated world: a server, and processes that start, die and start again, each made of the product's
 * own parts. What goes wrong is decided elsewhere (faults.ts); here is how it is done to whom.
 */
import { startCoord } from '../../actors/coord/coord.ts';
import { Host } from '../../actors/host.ts';
import { newIncarnation } from '../../actors/incarnation.ts';
import { register } from '../../actors/identity/register.ts';
import { openDirectory } from '../../actors/ledger/directory.ts';
import { startLedger } from '../../actors/ledger/ledger.ts';
import { startRoster } from '../../actors/roster/roster.ts';
import { startRosterView } from '../../actors/roster/view.ts';
import { type Identity, identityFromSeed } from '../../bus/identity.ts';
import { askLedger, type NatsBus } from '../../bus/nats.ts';
import { openSimulatedBus } from '../../bus/simulated/bus.ts';
import type { Cut } from '../../bus/simulated/connection.ts';
import type { Random } from '../../bus/simulated/random.ts';
import type { Party, Scheduler } from '../../bus/simulated/scheduler.ts';
import { SimulatedServer } from '../../bus/simulated/server.ts';
import { startRunner } from '../../runners/runner.ts';
import { ensureError } from '../../schemas/errors.ts';
import { LEASE_MS } from '../../schemas/node.ts';
import { startSupervisor } from '../../supervisors/supervisor.ts';
import { SimulatedProcess } from './process.ts';
import { Reality, SimulatedWork } from './reality.ts';
import { startScriptWorker, type SimulatedScriptWorker } from './script-worker.ts';
import { EPOCH_MS } from './time.ts';
import type { Trace } from './trace.ts';

/** A machine: what stands still, or loses its wire, when the whole node does. */
export class Machine implements Party {
  readonly alive = true;
  readonly name: string;
  readonly identity: Identity;
  readonly slots: Slot[] = [];
  pausedUntilMs = 0;
  stoodStillMs = 0;

  constructor(name: string, identity: Identity) {
    this.name = name;
    this.identity = identity;
  }

  pause(nowMs: number, forMs: number): void {
    const fromMs = Math.max(nowMs, this.pausedUntilMs);
    this.pausedUntilMs = Math.max(fromMs, nowMs + forMs);
    this.stoodStillMs += this.pausedUntilMs - fromMs;
  }
}

/** A place for a process: the one that runs there now, and how the next one is started. */
export type Slot = {
  name: string;
  role: 'control' | 'coord' | 'supervisor' | 'runner' | 'client';
  machine: Machine;
  start: (process: SimulatedProcess, slot: Slot) => Promise<void>;
  process: SimulatedProcess | undefined;
  starts: number;
};

export type Topology = { nodes: number; runners: number; slots: number; coords: number };

/** What a parent waits for a sign of life of its runner (tools/up/runner-child.ts). */
const SILENCE_MAX_MS = LEASE_MS - 500;
/** As in tools/up: what runs may finish within this, and then a child has this long to go. */
const DRAIN_GRACE_MS = 10_000;
const STOP_DEADLINE_MS = 8_000;
/** A child that was told to go comes back with its parent, or when this one is back. */
const CHILD_BACK_MS = 3000;
const CONTEXT = 'default';
/** Nobody reads the tokens: the simulated server knows who connects. */
const NO_TOKEN = 'e30.e30.e30';

export type WorldOptions = {
  scheduler: Scheduler;
  random: Random;
  trace: Trace;
  topology: Topology;
  onFault: (process: string, error: Error) => void;
};

export class World {
  readonly server: SimulatedServer;
  readonly reality: Reality;
  readonly slots: Slot[] = [];
  readonly machines: Machine[] = [];
  readonly user: Identity;
  readonly coords: Identity[];
  readonly scriptWorkers = new Map<Slot, SimulatedScriptWorker>();
  /** How a process that is told to end (SIGTERM) does so, where it is through with its start. */
  readonly #endings = new Map<SimulatedProcess, () => Promise<unknown>>();
  serverUpAtMs = 0;
  serverWallOffMs = 0;
  client: NatsBus | undefined;
  readonly #options: WorldOptions;

  constructor(options: WorldOptions) {
    const { scheduler, random, trace, topology } = options;
    this.#options = options;
    this.reality = new Reality(scheduler, (what) => trace.note('job', what));
    this.server = new SimulatedServer({
      scheduler,
      random: random.fork(),
      wallMs: () => EPOCH_MS + scheduler.nowMs + this.serverWallOffMs,
      onStored: (stream, { subject, seq, data }) =>
        trace.note('stored', `${stream} #${seq} ${subject}`, data),
    });
    const identity = () => identityFromSeed(random.bytes(32));
    this.coords = [identity(), identity()];
    this.user = this.coords[0] ?? identity();
    this.#place(topology, identity);
  }

  #place({ nodes, runners, coords }: Topology, identity: () => Identity): void {
    const [first, second] = this.coords;
    if (first === undefined || second === undefined) throw new Error('no coords');
    const control = this.#machine('control', first);
    this.#slot('control', 'control', control, (process) => this.#startControl(process, first));
    if (coords > 1) {
      const other = this.#machine('control2', second);
      this.#slot('coord2', 'coord', other, (process) => this.#startSecondCoord(process, second));
    }
    for (let i = 0; i < nodes; i++) {
      const machine = this.#machine(`node${i}`, identity());
      this.#slot(`node${i}`, 'supervisor', machine, (process, slot) =>
        this.#startSupervisor(process, slot),
      );
      for (let j = 0; j < runners; j++) {
        this.#slot(`node${i}-r${j}`, 'runner', machine, (process, slot) =>
          this.#startRunner(process, slot, `process-${j}`),
        );
      }
    }
    const outside = this.#machine('user', first);
    this.#slot('user', 'client', outside, async (process) => {
      this.client = await this.#openBus(process, 'user', first);
    });
  }

  #machine(name: string, identity: Identity): Machine {
    const machine = new Machine(name, identity);
    this.machines.push(machine);
    return machine;
  }

  #slot(name: string, role: Slot['role'], machine: Machine, start: Slot['start']): void {
    const slot: Slot = { name, role, machine, start, process: undefined, starts: 0 };
    machine.slots.push(slot);
    this.slots.push(slot);
  }

  start(): void {
    for (const slot of this.slots) this.#startSoon(slot, 1);
  }

  /** Kills the process of a slot; a supervisor takes its runners along, as their parent does. */
  kill(slot: Slot, why: string, backMs: number): void {
    const { process, machine } = slot;
    if (process === undefined) return;
    this.#options.trace.note('kill', `${slot.name}: ${why}`);
    slot.process = undefined;
    this.#endings.delete(process);
    this.scriptWorkers.delete(slot);
    process.die();
    this.#startSoon(slot, backMs);
    if (slot.role !== 'supervisor') return;
    for (const child of machine.slots) if (child.role === 'runner') this.kill(child, why, backMs);
  }

  /** Tells a process to end in order; its children first. */
  stop(slot: Slot, backMs: number): void {
    const { process } = slot;
    const end = process && this.#endings.get(process);
    if (process === undefined || end === undefined) return;
    this.#endings.delete(process);
    this.#options.trace.note('stop', slot.name);
    process.run(() => {
      const gone = () => {
        if (slot.process === process) this.kill(slot, 'has ended in order', backMs);
      };
      end().then(gone, gone);
    });
  }

  pause(slot: Slot, forMs: number): void {
    const { process } = slot;
    if (process === undefined) return;
    this.#options.trace.note('pause', `${slot.name} for ${Math.round(forMs)} ms`);
    const sinceMs = process.pause(forMs);
    if (slot.role === 'runner') this.#watchSilence(slot, process, sinceMs);
  }

  /** The parent kills a runner that gives no sign of life, unless it stands still itself. */
  #watchSilence(slot: Slot, process: SimulatedProcess, sinceMs: number): void {
    const parent = slot.machine.slots.find(({ role }) => role === 'supervisor')?.process;
    this.#options.scheduler.at(sinceMs + SILENCE_MAX_MS, parent, () => {
      if (slot.process === process && process.pausedUntilMs > this.#options.scheduler.nowMs) {
        this.kill(slot, 'gave no sign of life', this.#options.random.between(100, 500));
      }
    });
  }

  pauseMachine(machine: Machine, forMs: number): void {
    const { scheduler, trace } = this.#options;
    trace.note('pause', `machine ${machine.name} for ${Math.round(forMs)} ms`);
    machine.pause(scheduler.nowMs, forMs);
    for (const { process } of machine.slots) process?.pause(forMs);
  }

  /** The wires of one process, or of a whole machine. */
  cut(slots: readonly Slot[], cut: Cut): void {
    for (const { name, process } of slots) {
      const noticed =
        cut.unnoticedMs === null ? 'at once' : `after ${Math.round(cut.unnoticedMs)} ms`;
      this.#options.trace.note(
        'cut',
        `${name} for ${Math.round(cut.forMs)} ms, noticed ${noticed}`,
      );
      for (const connection of process?.connections ?? []) connection.cut(cut);
    }
  }

  stall(slots: readonly Slot[], forMs: number): void {
    for (const { name, process } of slots) {
      this.#options.trace.note('stall', `${name} for ${Math.round(forMs)} ms`);
      for (const connection of process?.connections ?? []) connection.stall(forMs);
    }
  }

  restartServer(downMs: number): void {
    const { scheduler, trace } = this.#options;
    trace.note('server', `dies for ${Math.round(downMs)} ms`);
    this.serverUpAtMs = Math.max(this.serverUpAtMs, scheduler.nowMs + downMs);
    this.cut(this.slots, { forMs: downMs, unnoticedMs: null });
    this.server.restart();
  }

  #startSoon(slot: Slot, waitMs: number): void {
    const { scheduler } = this.#options;
    scheduler.after(waitMs, slot.machine, () => {
      const parent = slot.machine.slots.find(({ role }) => role === 'supervisor');
      // A child is started by its parent: with none, later.
      if (slot.role === 'runner' && parent?.process === undefined) this.#startSoon(slot, 500);
      else if (slot.process === undefined) this.#startNow(slot);
    });
  }

  #startNow(slot: Slot): void {
    const { scheduler, random, trace } = this.#options;
    slot.starts++;
    trace.note('start', `${slot.name} for the ${slot.starts}. time`);
    const process = new SimulatedProcess(`${slot.name}#${slot.starts}`, scheduler, {
      rate: 1 + random.between(-0.002, 0.002),
      wallOffMs: Math.round(random.between(-120_000, 120_000)),
    });
    slot.process = process;
    process.run(() => {
      slot.start(process, slot).catch((error: unknown) => {
        // As a program that cannot start: it says why, ends, and is started again.
        if (process.alive) this.kill(slot, ensureError(error).message, 1000);
      });
    });
  }

  async #openBus(
    process: SimulatedProcess,
    kind: 'control' | 'node' | 'user',
    identity: Identity,
  ): Promise<NatsBus> {
    const { scheduler, random } = this.#options;
    if (this.serverUpAtMs > scheduler.nowMs) throw new Error('the server cannot be reached');
    return openSimulatedBus({
      wire: {
        scheduler,
        random: random.fork(),
        server: this.server,
        serverUpAtMs: () => this.serverUpAtMs,
      },
      client: process,
      kind,
      identity,
      incarnation: newIncarnation(),
      onConnection: (connection) => process.connections.push(connection),
    });
  }

  /** What a process would end by: a machine of its own that fails. */
  #host(process: SimulatedProcess): Host {
    return new Host({
      onFault: (name, error) => {
        if (process.alive) this.#options.onFault(`${process.name} ${name}`, error);
      },
    });
  }

  #alarm(process: SimulatedProcess): (message: string) => void {
    return (message) => {
      if (process.alive) this.#options.trace.note('alarm', `${process.name}: ${message}`);
    };
  }

  async #startControl(process: SimulatedProcess, identity: Identity): Promise<void> {
    const bus = await this.#openBus(process, 'control', identity);
    const alarm = this.#alarm(process);
    await bus.admin.ensureBus();
    const ledger = await startLedger({
      bus,
      open: true,
      issue: () => NO_TOKEN,
      provision: {
        context: (context) => bus.admin.ensureContext(context),
        user: (address) => bus.admin.ensureUserBucket(address),
      },
      makeConsumer: {
        follower: (spec) => bus.admin.follower(spec),
        queue: (spec) => bus.admin.queue(spec),
      },
      readLog: (request) => bus.admin.readLog(request),
      onFault: alarm,
    });
    for (const { principal } of this.coords) await ledger.bootstrap(principal, 'control');
    await bus.admin.ensureUserBucket(this.user.address);
    const { directory } = ledger;
    const roster = await startRoster({ bus, directory, onFault: alarm });
    ledger.serveNodes(roster.page);
    const coord = await startCoord({ bus, host: this.#host(process), directory, roster, alarm });
    this.#endings.set(process, async () => {
      await coord.stop();
      await roster.stop();
      ledger.stop();
      await bus.close();
    });
  }

  async #startSecondCoord(process: SimulatedProcess, identity: Identity): Promise<void> {
    const bus = await this.#openBus(process, 'control', identity);
    const alarm = this.#alarm(process);
    const { directory, stop } = await openDirectory(bus, alarm);
    const roster = startRosterView({ bus, onFault: alarm });
    await roster.ready;
    const coord = await startCoord({ bus, host: this.#host(process), directory, roster, alarm });
    this.#endings.set(process, async () => {
      await coord.stop();
      roster.stop();
      stop();
      await bus.close();
    });
  }

  async #startSupervisor(process: SimulatedProcess, slot: Slot): Promise<void> {
    const { machine } = slot;
    const bus = await this.#openBus(process, 'node', machine.identity);
    const ask = (verb: string, body: object | Uint8Array) => askLedger(bus.nats, verb, body);
    await register(ask, machine.identity, { kind: 'node', name: machine.name, token: null });
    const alarm = this.#alarm(process);
    const host = this.#host(process);
    host.describeOn(bus);
    const roster = startRosterView({ bus, onFault: alarm });
    await roster.ready;
    const supervisor = await startSupervisor({
      bus,
      host,
      roster,
      name: machine.name,
      groups: [],
      offers: ['process'],
      version: '0.0.0',
      contextsChanged: () => undefined,
      alarm,
      startScriptWorker: () => {
        const worker = startScriptWorker(this.#options.scheduler, process);
        this.scriptWorkers.set(slot, worker);
        return worker;
      },
    });
    this.#endings.set(process, async () => {
      await supervisor.drain('told to end', DRAIN_GRACE_MS);
      const children = machine.slots.filter(({ role }) => role === 'runner');
      await Promise.all(children.map((child) => this.#endChild(child)));
      await supervisor.stop();
      roster.stop();
      await bus.close();
    });
  }

  /** SIGTERM, and SIGKILL for a child that does not go. */
  async #endChild(slot: Slot): Promise<void> {
    const { process } = slot;
    if (process === undefined) return;
    this.stop(slot, CHILD_BACK_MS);
    await new Promise<void>((resolve) => {
      process.onDeath(resolve);
      setTimeout(resolve, STOP_DEADLINE_MS);
    });
    if (slot.process === process) this.kill(slot, 'did not go', CHILD_BACK_MS);
  }

  async #startRunner(process: SimulatedProcess, slot: Slot, name: string): Promise<void> {
    const { scheduler, random, topology } = this.#options;
    const { machine } = slot;
    const bus = await this.#openBus(process, 'node', machine.identity);
    const runner = startRunner({
      bus,
      host: this.#host(process),
      name,
      work: new SimulatedWork({
        scheduler,
        random: random.fork(),
        reality: this.reality,
        process,
        machine,
        runner: process.name,
      }),
      slots: topology.slots,
      contexts: [],
    });
    void runner.ended.then((reason) => {
      if (slot.process === process) this.kill(slot, reason, random.between(50, 1000));
    });
    this.#endings.set(process, () => {
      runner.drain();
      return runner.ended;
    });
  }

  get context(): string {
    return CONTEXT;
  }
}
