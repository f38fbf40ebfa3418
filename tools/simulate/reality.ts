/**
 * What really happened: which attempts of which jobs ran, when, and how they ended, whatever the log says.
 *
 * A job is a process of its machine, not of its runner's event loop: a runner that stands still does not
 * stop it, a runner that dies takes it along, a machine that stands still holds both.
 */
import type { Random } from '../../bus/simulated/random.ts';
import type { Party, Scheduled, Scheduler } from '../../bus/simulated/scheduler.ts';
import type { JobRun, RunnerClass } from '../../runners/classes/class.ts';
import { HeroError } from '../../schemas/errors.ts';
import type { JobKind } from '../../schemas/job.ts';
import type { SimulatedProcess } from './process.ts';

export type Executed = {
  flow: string;
  n: number;
  attempt: number;
  runner: string;
  idempotent: boolean;
  begunMs: number;
  /** Null while it runs. */
  endedMs: number | null;
  end: 'done' | 'failed' | 'killed' | null;
  value: string | null;
  machine: Party;
  /** Other attempts of the job that had not ended when it began, and until when that may be. */
  beside: { other: Executed; untilMs: number }[];
};

/** What a machine that stood still and runs again may take to notice that its leases are over. */
const NOTICED_MS = 200;

/** What a simulated job is told by its arguments. */
type Program = { value: number; ms: number; failures: number };

export class Reality {
  readonly executed: Executed[] = [];
  readonly #scheduler: Scheduler;
  readonly #onChange: (what: string) => void;
  /** Executions of each job, oldest first. */
  readonly #ofJob = new Map<string, Executed[]>();

  constructor(scheduler: Scheduler, onChange: (what: string) => void) {
    this.#scheduler = scheduler;
    this.#onChange = onChange;
  }

  of(flow: string, n: number): readonly Executed[] {
    return this.#ofJob.get(`${flow}.${n}`) ?? [];
  }

  running(): Executed[] {
    return this.executed.filter(({ endedMs }) => endedMs === null);
  }

  begin(run: JobRun, runner: string, machine: Party): Executed {
    const { nowMs } = this.#scheduler;
    const { job, ref } = run;
    const { n, attempt, spec } = job;
    const executed: Executed = {
      flow: ref.flow,
      n,
      attempt,
      runner,
      idempotent: spec.idempotent,
      begunMs: nowMs,
      endedMs: null,
      end: null,
      value: null,
      machine,
      beside: this.of(ref.flow, n)
        .filter(({ endedMs }) => endedMs === null)
        // What stands still with its machine does nothing meanwhile.
        .map((other) => ({
          other,
          untilMs:
            other.machine.pausedUntilMs > nowMs ? other.machine.pausedUntilMs + NOTICED_MS : nowMs,
        })),
    };
    this.executed.push(executed);
    const key = `${ref.flow}.${n}`;
    this.#ofJob.set(key, [...(this.#ofJob.get(key) ?? []), executed]);
    this.#onChange(`${key} attempt ${attempt} begins on ${runner}`);
    return executed;
  }

  end(executed: Executed, end: NonNullable<Executed['end']>, value: string | null = null): void {
    if (executed.endedMs !== null) return;
    Object.assign(executed, { endedMs: this.#scheduler.nowMs, end, value });
    const { flow, n, attempt, runner } = executed;
    this.#onChange(`${flow}.${n} attempt ${attempt} ${end} on ${runner}`);
  }
}

export type WorkOptions = {
  scheduler: Scheduler;
  random: Random;
  reality: Reality;
  process: SimulatedProcess;
  /** Its machine: what stands still when the whole node does, and for how long it has by now. */
  machine: Party & { readonly stoodStillMs: number };
  runner: string;
};

/** How long a process group outlives the runner that dies: its guardian has to notice. */
const GUARDIAN_MS = 40;

export class SimulatedWork implements RunnerClass {
  readonly class: JobKind = 'process';
  readonly valueBytesMax = 64 * 1024;
  readonly #options: WorkOptions;
  readonly #running = new Map<Executed, { timer: Scheduled; reject: (error: Error) => void }>();

  constructor(options: WorkOptions) {
    this.#options = options;
    options.process.onDeath(() => this.#orphaned());
  }

  offers(): Promise<string[]> {
    return Promise.resolve(['process']);
  }

  run(run: JobRun): Promise<string> {
    const { reality, scheduler, process, machine, runner } = this.#options;
    return new Promise<string>((resolve, reject) => {
      // A process that dies just now starts nothing, and nobody is told.
      if (!process.acts()) return;
      const program = programOf(run.job.spec.payload);
      const failedBefore = reality
        .of(run.ref.flow, run.job.n)
        .filter(({ end }) => end === 'failed').length;
      const executed = reality.begin(run, runner, machine);
      let stoodStillMs = machine.stoodStillMs;
      const finish = () => {
        // While its machine stood still it did not get on.
        const leftMs = machine.stoodStillMs - stoodStillMs;
        stoodStillMs += leftMs;
        const running = this.#running.get(executed);
        if (leftMs > 0 && running !== undefined) {
          running.timer = scheduler.after(leftMs, machine, finish);
          return;
        }
        const fails = failedBefore < program.failures;
        this.#end(executed, fails ? 'failed' : 'done', fails ? null : String(program.value));
        // Its runner hears of it when it can.
        const tell = fails
          ? () => reject(new HeroError('job_failed', 'failed by design'))
          : () => resolve(String(program.value));
        scheduler.after(0, process, tell, 'message');
      };
      const timer = scheduler.after(program.ms, machine, finish);
      this.#running.set(executed, { timer, reject });
      run.signal.addEventListener('abort', () => {
        if (this.#end(executed, 'killed')) reject(run.signal.reason as Error);
      });
    });
  }

  killAll(): void {
    for (const [executed, { reject }] of this.#running) {
      this.#end(executed, 'killed');
      reject(new HeroError('cancelled', 'its runner ends'));
    }
  }

  close(): void {
    this.killAll();
  }

  #end(executed: Executed, end: 'done' | 'failed' | 'killed', value?: string | null): boolean {
    const running = this.#running.get(executed);
    if (running === undefined) return false;
    running.timer.cancel();
    this.#running.delete(executed);
    this.#options.reality.end(executed, end, value);
    return true;
  }

  #orphaned(): void {
    const { scheduler, random, machine } = this.#options;
    for (const executed of this.#running.keys()) {
      scheduler.after(random.between(0, GUARDIAN_MS), machine, () => this.#end(executed, 'killed'));
    }
  }
}

function programOf(payload: unknown): Program {
  const { args = [] } = payload as { args?: string[] };
  const [value, ms, failures] = args.map(Number);
  return { value: value ?? 0, ms: ms ?? 1, failures: failures ?? 0 };
}
