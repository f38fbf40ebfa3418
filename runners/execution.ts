/**
 * One pack's life on its runner: claimed, its jobs begun as slots allow, executed, reported.
 *
 *   E1 write-ahead: a job executes only after the log has committed that it begins (the first ones ride in
 *      the claim, further ones in a fact);
 *   E2 a claim that lost executes nothing, whoever won it;
 *   E3 without a lease nothing begins and nothing is reported, and the clock is asked each time;
 *   E4 every job begun has one end here: a result, or silence when the runner itself ends;
 *   E5 each end gives its slot back, before its result is stored.
 *
 * Whether the pack came to the right place is the intake's business, gathering facts is `reporter.ts`'s.
 */
import type { Bus, Entry, Subscription } from '../bus/bus.ts';
import { atMoment } from '../sal/deadline.ts';
import { errorRecord, HeroError } from '../schemas/errors.ts';
import { CommandEntry, PlanEntry } from '../schemas/flow.ts';
import type { FlowRef, Incarnation } from '../schemas/ids.ts';
import type { Outcome, Pack, PackedJob, Result } from '../schemas/job.ts';
import type { RunnerClass } from './classes/class.ts';
import { JobOutput } from './output.ts';
import { Reporter } from './reporter.ts';
import type { RunnerEvent } from './runner.machine.ts';
import type { Slots } from './slots.ts';
import type { FlowWatches } from './watch.ts';

/** Proves that a job follows from its flow's signed deployment; throws when it does not. */
export type Verify = (pack: Pack, job: PackedJob) => Promise<void>;

/** What all packs of a runner share. */
export type Desk = {
  bus: Bus;
  name: string;
  inc: Incarnation;
  work: RunnerClass;
  slots: Slots;
  watches: FlowWatches;
  verify: Verify | undefined;
  /** Asks the clock; losing the lease is acted on before it answers. */
  holdsLease: () => boolean;
  send: (event: RunnerEvent) => void;
  /** Aborted when no further job may begin. */
  refusing: AbortSignal;
};

type Running = { job: PackedJob; controller: AbortController; output: JobOutput };

const cancelled = (why: string): HeroError => new HeroError('cancelled', why);

export class PackExecution {
  readonly ref: FlowRef;
  readonly #pack: Pack;
  readonly #desk: Desk;
  readonly #reporter: Reporter;
  readonly #running = new Map<number, Running>();
  readonly #ends = new Set<Promise<void>>();
  /** Jobs nobody wants any more, with the reason. */
  readonly #unwanted = new Map<number, HeroError>();
  readonly #noFurther = new AbortController();
  #queue: PackedJob[];
  #listening: Subscription | undefined;
  #killed = false;

  constructor(pack: Pack, desk: Desk) {
    this.#pack = pack;
    this.#desk = desk;
    this.ref = { context: pack.context, flow: pack.flow };
    this.#queue = [...pack.jobs];
    this.#reporter = new Reporter({
      log: desk.bus.log,
      ref: this.ref,
      pack: pack.pack,
      inc: desk.inc,
      runner: desk.name,
      mayReport: desk.holdsLease,
      onReported: (count) => desk.send({ type: 'REPORTED', count }),
    });
  }

  /** `<ctx>.<flow>.<pack>`, as beats name it. */
  get id(): string {
    return `${this.#pack.context}.${this.#pack.flow}.${this.#pack.pack}`;
  }

  /**
   * Claims the pack for as many jobs as slots were taken, and starts them once the claim is committed.
   * Throws when it is not; the slots are given back then.
   */
  async claim(slots: number): Promise<void> {
    const { bus, inc, name, watches } = this.#desk;
    const first = this.#queue.splice(0, slots);
    // Before the claim: a decision made from now on is not missed.
    this.#listening = watches.listen(this.ref, this.#pack.plan, (entry) => this.#decided(entry));
    try {
      await this.#begin(first, async (begun) => {
        await bus.log.claim(this.ref, this.#pack.pack, {
          v: 1,
          inc,
          type: 'claim',
          runner: name,
          begun,
        });
      });
    } catch (error) {
      this.#listening.stop();
      throw error;
    }
  }

  /** The rest of the pack's life; never throws. */
  async run(): Promise<void> {
    const listener = (entry: Entry): void => this.#decided(entry);
    void this.#desk.watches.look(this.ref, this.#pack.plan, listener).catch(() => undefined);
    try {
      await this.#beginRest();
    } catch {
      // Drained, killed or without a lease: what has not begun is planned again elsewhere.
    }
    await this.settled();
    this.#listening?.stop();
  }

  /** When all that is to be reported is stored. */
  async settled(): Promise<void> {
    while (this.#ends.size > 0) await Promise.all(this.#ends);
    await this.#reporter.settled();
  }

  /** Ends all jobs without reporting their ends; earlier results are still stored when `flush`. */
  kill(flush: boolean): void {
    this.#killed = true;
    this.#noFurther.abort(cancelled('the runner ends'));
    for (const { controller, output } of this.#running.values()) {
      controller.abort(cancelled('the runner ends'));
      output.halt();
    }
    if (!flush) this.#reporter.halt();
  }

  async #beginRest(): Promise<void> {
    const signal = AbortSignal.any([this.#noFurther.signal, this.#desk.refusing]);
    while (this.#queue.length > 0) {
      await this.#desk.slots.acquire(signal);
      const more = this.#desk.slots.takeMore(this.#queue.length - 1);
      const batch = this.#queue.splice(0, 1 + more);
      this.#desk.slots.release(1 + more - batch.length);
      if (batch.length > 0) await this.#begin(batch, (begun) => this.#reporter.begun(begun));
    }
  }

  /** Write-ahead, then start (E1). Holds a slot for each job; gives them back when it throws. */
  async #begin(
    jobs: PackedJob[],
    commit: (begun: { n: number; attempt: number }[]) => Promise<void>,
  ): Promise<void> {
    const { send, slots, holdsLease } = this.#desk;
    // Counted from here, so that a draining runner waits for what it is about to begin.
    send({ type: 'JOBS_BEGUN', count: jobs.length });
    try {
      if (!holdsLease()) throw cancelled('the lease is gone');
      await commit(jobs.map(({ n, attempt }) => ({ n, attempt })));
      if (this.#killed || !holdsLease()) throw cancelled('the lease is gone');
    } catch (error) {
      send({ type: 'JOBS_ENDED', count: jobs.length, reporting: 0 });
      slots.release(jobs.length);
      throw error;
    }
    for (const job of jobs) this.#start(job);
  }

  #start(job: PackedJob): void {
    const controller = new AbortController();
    const output = new JobOutput(this.#desk.bus, this.ref, job.n, this.#desk.inc);
    this.#running.set(job.n, { job, controller, output });
    const unwanted = this.#unwanted.get(job.n);
    if (unwanted !== undefined) controller.abort(unwanted);
    const end = this.#execute(job, controller, output).finally(() => {
      this.#ends.delete(end);
    });
    this.#ends.add(end);
  }

  async #execute(job: PackedJob, controller: AbortController, output: JobOutput): Promise<void> {
    const { bus, send, slots, holdsLease } = this.#desk;
    const started_ms = Math.round(bus.now());
    const end = await this.#outcome(job, controller, output);
    const ended_ms = Math.round(bus.now());
    await output.flush();
    this.#running.delete(job.n);
    const silent = this.#killed || !holdsLease();
    send({ type: 'JOBS_ENDED', count: 1, reporting: silent ? 0 : 1 });
    slots.release();
    if (silent) return;
    const result: Result = { n: job.n, attempt: job.attempt, ...end, started_ms, ended_ms };
    this.#reporter.result(result);
  }

  /** Executes one job; whatever happens is an outcome. */
  async #outcome(
    job: PackedJob,
    controller: AbortController,
    output: JobOutput,
  ): Promise<Pick<Result, 'outcome' | 'value' | 'error'>> {
    const { work, verify, bus, name } = this.#desk;
    const { signal } = controller;
    const { timeout_ms } = job.spec;
    const deadlineMs = timeout_ms === null ? null : performance.now() + timeout_ms;
    const forget =
      deadlineMs === null
        ? (): void => undefined
        : atMoment(deadlineMs, () => {
            const message = `${job.spec.name} did not end within ${timeout_ms} ms and was killed`;
            controller.abort(new HeroError('timeout', message));
          });
    try {
      signal.throwIfAborted();
      if (job.spec.kind !== work.class) {
        throw new HeroError('bad_job', `a ${job.spec.kind} job on a runner of class ${work.class}`);
      }
      await verify?.(this.#pack, job);
      signal.throwIfAborted();
      const value = await work.run({
        ref: this.ref,
        job,
        caller: this.#pack.caller,
        signal,
        deadlineMs,
        output: (stream, lines) => output.write(stream, lines),
      });
      checkSize(value, work.valueBytesMax);
      return { outcome: 'completed', value, error: null };
    } catch (thrown) {
      const error = errorRecord(thrown, { actor: `runner:${name}`, node: bus.address });
      return { outcome: outcomeOf(thrown, signal), value: null, error };
    } finally {
      forget();
    }
  }

  /** A decision of the flow: does it end jobs of mine? */
  #decided(entry: Entry): void {
    if (entry.lane !== 'main') return;
    switch (entry.kind) {
      case 'end':
        this.#unwant(this.#numbers(), 'the flow has ended');
        break;
      case 'cancel': {
        const command = CommandEntry.safeParse(entry.body).data;
        if (command === undefined) return;
        const why = command.reason === null ? 'cancelled' : `cancelled: ${command.reason}`;
        this.#unwant(command.job === null ? this.#numbers() : [command.job], why);
        break;
      }
      case 'plan': {
        const plan = PlanEntry.safeParse(entry.body).data;
        if (plan === undefined) return;
        this.#unwant(this.#numbers(plan.placed, 1), 'another attempt of it was planned');
        this.#unwant(this.#numbers(plan.gone, 0), 'its supervisor has given it up');
        break;
      }
      default:
    }
  }

  /** My jobs; or those of them that a list names with an attempt at least `ahead` of mine. */
  #numbers(list?: { n: number; attempt: number }[], ahead = 0): number[] {
    if (list === undefined) return this.#pack.jobs.map(({ n }) => n);
    return this.#pack.jobs
      .filter((mine) =>
        list.some(({ n, attempt }) => n === mine.n && attempt >= mine.attempt + ahead),
      )
      .map(({ n }) => n);
  }

  #unwant(numbers: number[], why: string): void {
    const reason = cancelled(why);
    for (const n of numbers) {
      if (!this.#unwanted.has(n)) this.#unwanted.set(n, reason);
      this.#running.get(n)?.controller.abort(reason);
    }
    this.#queue = this.#queue.filter(({ n }) => !this.#unwanted.has(n));
    if (this.#queue.length === 0) this.#noFurther.abort(reason);
  }
}

function outcomeOf(thrown: unknown, signal: AbortSignal): Outcome {
  // A tool's own time-out is a failure; only what this runner ended has ended that way.
  if (!signal.aborted || thrown !== signal.reason) return 'failed';
  const { code } = thrown as HeroError;
  return code === 'timeout' ? 'timeout' : 'cancelled';
}

function checkSize(value: string, maxBytes: number): void {
  const bytes = Buffer.byteLength(value);
  if (bytes > maxBytes) {
    throw new HeroError('too_large', `the value has ${bytes} bytes, at most ${maxBytes} are kept`);
  }
}
