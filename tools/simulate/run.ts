/**
 * One simulation: a world under a seed, faults for a while, quiet afterwards, and a judgement at the end.
 * The same seed is the same simulation, event for event.
 */
import { Random } from '../../bus/simulated/random.ts';
import { Scheduler } from '../../bus/simulated/scheduler.ts';
import { ensureError } from '../../schemas/errors.ts';
import { scheduleFaults } from './faults.ts';
import { judgeFlow, judgeRuns, judgeUnknown, type Judging, type Violation } from './invariants.ts';
import { currentProcess, enter } from './process.ts';
import { installVirtualTime, type RealTurn } from './time.ts';
import { Trace } from './trace.ts';
import { User } from './user.ts';
import { World } from './world.ts';

export type SimulationResult = {
  seed: number;
  violations: Violation[];
  digest: string;
  trace: string[];
  virtualMs: number;
  steps: number;
  flows: number;
  runs: number;
  faults: number;
};

/** The first start of everything, before anything goes wrong. */
const START_MS = 2500;
/** After the last fault, and while no job begins or ends, every flow ends within this: ack waits and back-offs. */
const PATIENCE_MS = 240_000;
/** However much there is to do: a slot may have a minute of work for each of a hundred attempts. */
const WORK_MAX_MS = 2 * 3600_000;
const LOOK_MS = 500;
/** What is closed after its end is closed within this. */
const SETTLE_MS = 2000;
/** Real turns of the event loop asked for at once: each costs a pass through it otherwise. */
const TURNS_AT_ONCE = 64;

export type SimulateOptions = { trace?: boolean };

export async function simulate(
  seed: number,
  { trace: keepTrace = false }: SimulateOptions = {},
): Promise<SimulationResult> {
  const random = new Random(seed);
  const violations: Violation[] = [];
  const scheduler = new Scheduler({
    enter,
    onError: (party, error) => {
      const { message, stack } = ensureError(error);
      trace.note('fault', `${party?.name ?? 'world'} threw: ${message}`);
      violations.push({ invariant: 'no_fault', detail: `${party?.name ?? 'world'}: ${stack}` });
    },
  });
  const trace = new Trace(() => scheduler.nowMs, keepTrace);
  const time = installVirtualTime(scheduler, random.fork());
  const onRejection = (reason: unknown): void => {
    const process = currentProcess();
    if (process?.alive === false) return;
    const { message, stack } = ensureError(reason);
    trace.note('fault', `${process?.name ?? 'world'} rejected: ${message}`);
    violations.push({ invariant: 'no_fault', detail: `unhandled: ${stack}` });
  };
  process.on('unhandledRejection', onRejection);
  try {
    const simulation = new Simulation(seed, random, scheduler, trace, violations);
    return await simulation.run(time.realTurn);
  } finally {
    process.off('unhandledRejection', onRejection);
    time.restore();
  }
}

class Simulation {
  readonly #seed: number;
  readonly #scheduler: Scheduler;
  readonly #trace: Trace;
  readonly #violations: Violation[];
  readonly #world: World;
  readonly #user: User;
  readonly #quietMs: number;
  readonly #faults: number;
  #over = false;
  #throughSinceMs = 0;
  #work = '';
  #workedMs = 0;

  constructor(
    seed: number,
    random: Random,
    scheduler: Scheduler,
    trace: Trace,
    violations: Violation[],
  ) {
    this.#seed = seed;
    this.#scheduler = scheduler;
    this.#trace = trace;
    this.#violations = violations;
    this.#world = new World({
      scheduler,
      random: random.fork(),
      trace,
      topology: {
        nodes: random.whole(1, 3),
        runners: random.whole(1, 2),
        slots: random.whole(1, 6),
        coords: random.whole(1, 2),
      },
      onFault: (process, error) => {
        trace.note('fault', `${process}: ${error.message}`);
        violations.push({ invariant: 'no_fault', detail: `${process}: ${error.stack}` });
      },
    });
    this.#quietMs = START_MS + random.between(4000, 18_000);
    const user = random.fork();
    this.#user = new User({
      world: this.#world,
      random: user,
      scheduler,
      flows: user.whole(1, 6),
    });
    this.#user.schedule(START_MS - 1000, this.#quietMs - 2000);
    this.#faults = scheduleFaults(
      { world: this.#world, random: random.fork(), scheduler },
      { fromMs: START_MS, untilMs: this.#quietMs },
    );
  }

  async run(realTurn: RealTurn): Promise<SimulationResult> {
    this.#world.start();
    scheduleEvery(this.#scheduler, LOOK_MS, () => this.#look());
    await this.#drive(realTurn);
    this.#judge();
    const { nowMs, steps } = this.#scheduler;
    return {
      seed: this.#seed,
      violations: this.#violations,
      digest: this.#trace.digest(),
      trace: this.#trace.lines,
      virtualMs: Math.round(nowMs),
      steps,
      flows: this.#user.submitted.length,
      runs: this.#world.reality.executed.length,
      faults: this.#faults,
    };
  }

  /** One event for each turn of the real event loop, so that what it promised happens before the next. */
  #drive(realTurn: RealTurn): Promise<void> {
    return new Promise((resolve) => {
      let left = 0;
      const turn = (): void => {
        left--;
        if (this.#over) {
          if (left === 0) resolve();
          return;
        }
        if (!this.#scheduler.step()) this.#over = true;
        if (left === 0) more();
      };
      const more = (): void => {
        left = TURNS_AT_ONCE;
        for (let i = 0; i < TURNS_AT_ONCE; i++) realTurn(turn);
      };
      more();
    });
  }

  #look(): boolean {
    const { nowMs } = this.#scheduler;
    const { executed } = this.#world.reality;
    const work = `${executed.length} ${this.#world.reality.running().length}`;
    if (work !== this.#work || nowMs < this.#quietMs) this.#workedMs = nowMs;
    this.#work = work;
    if (nowMs > this.#workedMs + PATIENCE_MS || nowMs > WORK_MAX_MS) this.#over = true;
    if (nowMs < this.#quietMs || !this.#isThrough()) this.#throughSinceMs = nowMs;
    // What was through may be opened again: by a retry, by what was under way.
    if (nowMs - this.#throughSinceMs >= SETTLE_MS) this.#over = true;
    return !this.#over;
  }

  #isThrough(): boolean {
    return this.#user.isDone && this.#allEnded() && this.#allClosed();
  }

  #allEnded(): boolean {
    const log = this.#world.server.stream('HB_FLOW');
    const refusals = [...(this.#world.server.stream('HB_REFUSED')?.from(1, ['>']) ?? [])];
    return this.#user.submitted.every(({ flow, invalid }) => {
      if (invalid) return refusals.some(({ data }) => Buffer.from(data).includes(flow));
      const end = log?.last(`hb.flow.*.${flow}.main.*.end`);
      const retry = log?.last(`hb.flow.*.${flow}.main.*.retry`);
      return (end?.seq ?? 0) > (retry?.seq ?? 0) || this.#isCancelledUnborn(flow);
    });
  }

  /** Cancelled before anybody was assigned: the command is its end. */
  #isCancelledUnborn(flow: string): boolean {
    const log = this.#world.server.stream('HB_FLOW');
    return (
      log?.last(`hb.flow.*.${flow}.main.*.cancel`) !== undefined &&
      log.last(`hb.flow.*.${flow}.main.*.assign`) === undefined
    );
  }

  /** Flows that a coord still counts as open. */
  #open(): string[] {
    const stream = this.#world.server.stream('KV_open_flows');
    if (stream === undefined) return [];
    return stream
      .subjects('$KV.open_flows.>')
      .filter((subject) => stream.last(subject)?.headers.get('KV-Operation') === undefined);
  }

  #allClosed(): boolean {
    return this.#open().length === 0 && this.#world.reality.running().length === 0;
  }

  #judge(): void {
    const { server, reality, coords, context } = this.#world;
    const addresses = coords.map(({ address }) => address);
    const judging: Judging = { server, reality, coords: addresses, context };
    for (const submitted of this.#user.submitted) {
      if (!submitted.accepted) {
        this.#say('receipt', `${submitted.flow} was never acknowledged to its user`);
      }
      this.#violations.push(...judgeFlow(judging, submitted));
    }
    this.#violations.push(...judgeRuns(reality), ...judgeUnknown(judging, this.#user.submitted));
    for (const open of this.#open()) this.#say('open_flows_closed', `${open} is left`);
    for (const { flow, n, runner } of reality.running()) {
      this.#say('nothing_runs_on', `${flow}.${n} still runs on ${runner}`);
    }
    for (const { invariant, detail } of this.#violations) {
      this.#trace.note('wrong', `${invariant}: ${detail}`);
    }
  }

  #say(invariant: string, detail: string): void {
    this.#violations.push({ invariant, detail });
  }
}

function scheduleEvery(scheduler: Scheduler, everyMs: number, act: () => boolean): void {
  scheduler.after(everyMs, undefined, () => {
    if (act()) scheduleEvery(scheduler, everyMs, act);
  });
}
