/**
 * One pack's life on its runner: claimed, its jobs begun as slots allow, executed, reported.
 *
 *   E1 write-ahead: a job executes only after the log has committed that it begins (the first ones ride in
 *      the claim, further ones in a fact);
 *   E2 a claim that lost executes nothing, whoever won it;
 *   E3 without a lease nothing begins and nothing is reported, and the clock is asked each time;
 *   E4 every job begun has one end here: a result, or silence when the runner itself ends;
 *   E5 each job that ended gives its slot to the next job of its pack, or back.
 *
 * Whether the pack came to the right place is the intake's business, gathering facts is `reporter.ts`'s.
 */
import { setTimeout as delay } from 'node:timers/promises';
import { backoffMs } from '../actors/supervise.ts';
import { storeValue } from '../bus/blobs.ts';
import type { Bus, Subscription } from '../bus/bus.ts';
import { atMoment } from '../sal/deadline.ts';
import type { Reading } from '../sal/usage.ts';
import { errorRecord, HeroError } from '../schemas/errors.ts';
import type { FlowRef, Incarnation } from '../schemas/ids.ts';
import { type Outcome, type Pack, type PackedJob, type Result, usageText } from '../schemas/job.ts';
import type { RunnerClass } from './classes/class.ts';
import { JobOutput } from './output.ts';
import { Reporter } from './reporter.ts';
import type { RunnerEvent } from './runner.machine.ts';
import type { Slots } from './slots.ts';
import type { Attempt, Unwanted } from './unwanted.ts';
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

type Running = {
  job: PackedJob;
  begunSeq: number;
  controller: AbortController;
  output: JobOutput;
};

const STORE_RETRY = { firstMs: 100, maxMs: 2000 };

const cancelled = (why: string): HeroError => new HeroError('cancelled', why);

export class PackExecution {
  readonly ref: FlowRef;
  readonly #pack: Pack;
  readonly #desk: Desk;
  readonly #reporter: Reporter;
  readonly #running = new Map<number, Running>();
  readonly #ends = new Set<Promise<void>>();
  /** Decisions that took jobs of this pack away: what begins after them is judged by them too. */
  readonly #taken: Unwanted[] = [];
  readonly #over = Promise.withResolvers<void>();
  readonly #onRefusing = (): void => this.#leaveRest();
  /** Jobs that have not begun, and the slots kept for them. */
  #queue: PackedJob[];
  #spare = 0;
  #stopFeeding: () => void = () => undefined;
  #listening: Subscription | undefined;
  #killed = false;
  #ended = { count: 0, reporting: 0 };

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
      beforeAppend: () => this.#beginNext(),
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
    this.#listening = watches.listen(this.ref, this.#pack.plan, (unwanted) =>
      this.#unwant(unwanted),
    );
    try {
      await this.#begin(first, async (begun) => {
        const claim = { v: 1, inc, type: 'claim', runner: name, begun } as const;
        return (await bus.log.claim(this.ref, this.#pack.pack, claim)).seq;
      });
    } catch (error) {
      this.#listening.stop();
      throw error;
    }
  }

  /** The rest of the pack's life; never throws. */
  async run(): Promise<void> {
    const { watches, refusing } = this.#desk;
    const listener = (unwanted: Unwanted): void => this.#unwant(unwanted);
    void watches.look(this.ref, this.#pack.plan, listener).catch(() => undefined);
    refusing.addEventListener('abort', this.#onRefusing);
    if (refusing.aborted) this.#leaveRest();
    this.#stopFeeding = this.#desk.slots.feed({
      wants: () => this.#queue.length - this.#spare,
      give: (count) => {
        this.#spare += count;
        this.#reporter.poke();
      },
    });
    this.#checkOver();
    await this.#over.promise;
    await this.settled();
    refusing.removeEventListener('abort', this.#onRefusing);
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
    this.#leaveRest();
    for (const { controller, output } of this.#running.values()) {
      controller.abort(cancelled('the runner ends'));
      output.halt();
    }
    if (!flush) this.#reporter.halt();
  }

  /** Begins as many as there are slots for; their fact travels with the results of this turn. */
  #beginNext(): void {
    const batch = this.#queue.splice(0, this.#spare);
    this.#spare -= batch.length;
    if (batch.length === 0) return;
    // Not committed: what could not begin is planned again elsewhere.
    this.#track(this.#begin(batch, (begun) => this.#reporter.begun(begun)).catch(() => undefined));
  }

  /** The slot of an ended job: for the next one, if there is one without (E5). */
  #passOn(): void {
    if (this.#queue.length > this.#spare) this.#spare++;
    else this.#desk.slots.release();
  }

  /** What has not begun is not begun any more. */
  #leaveRest(): void {
    this.#shorten([]);
    this.#checkOver();
  }

  #shorten(queue: PackedJob[]): void {
    this.#queue = queue;
    const surplus = Math.max(0, this.#spare - queue.length);
    this.#spare -= surplus;
    this.#desk.slots.release(surplus);
  }

  #track(end: Promise<void>): void {
    const tracked = end.finally(() => {
      this.#ends.delete(tracked);
      this.#checkOver();
    });
    this.#ends.add(tracked);
  }

  #checkOver(): void {
    if (this.#queue.length > 0) return;
    this.#stopFeeding();
    if (this.#ends.size === 0) this.#over.resolve();
  }

  /** Write-ahead, then start (E1). Holds a slot for each job; gives them back when it throws. */
  async #begin(
    jobs: PackedJob[],
    commit: (begun: { n: number; attempt: number }[]) => Promise<number>,
  ): Promise<void> {
    const { send, slots, holdsLease } = this.#desk;
    // Counted from here, so that a draining runner waits for what it is about to begin.
    send({ type: 'JOBS_BEGUN', count: jobs.length });
    let begunSeq: number;
    try {
      if (!holdsLease()) throw cancelled('the lease is gone');
      begunSeq = await commit(jobs.map(({ n, attempt }) => ({ n, attempt })));
      if (this.#killed || !holdsLease()) throw cancelled('the lease is gone');
    } catch (error) {
      send({ type: 'JOBS_ENDED', count: jobs.length, reporting: 0 });
      slots.release(jobs.length);
      throw error;
    }
    for (const job of jobs) this.#start(job, begunSeq);
  }

  #start(job: PackedJob, begunSeq: number): void {
    const controller = new AbortController();
    const output = new JobOutput(this.#desk.bus, this.ref, job.n, this.#desk.inc);
    this.#running.set(job.n, { job, begunSeq, controller, output });
    const taken = this.#taken.find(({ covers }) => covers(this.#attempt(job, begunSeq)));
    if (taken !== undefined) controller.abort(cancelled(taken.why));
    this.#track(this.#execute(job, controller, output));
  }

  async #execute(job: PackedJob, controller: AbortController, output: JobOutput): Promise<void> {
    const { bus, slots, holdsLease } = this.#desk;
    const started_ms = Math.round(bus.now());
    const end = await this.#outcome(job, controller, output);
    const ended_ms = Math.round(bus.now());
    await output.flush();
    this.#running.delete(job.n);
    const silent = this.#killed || !holdsLease();
    this.#countEnd(!silent);
    if (silent) return slots.release();
    this.#passOn();
    const result: Result = { n: job.n, attempt: job.attempt, ...end, started_ms, ended_ms };
    this.#reporter.result(result);
  }

  /** Jobs that end in one turn are one event: the statechart only counts them. */
  #countEnd(reporting: boolean): void {
    if (this.#ended.count === 0) {
      setImmediate(() => {
        const ended = this.#ended;
        this.#ended = { count: 0, reporting: 0 };
        this.#desk.send({ type: 'JOBS_ENDED', ...ended });
      });
    }
    this.#ended.count += 1;
    if (reporting) this.#ended.reporting += 1;
  }

  /** Executes one job; whatever happens is an outcome. */
  async #outcome(
    job: PackedJob,
    controller: AbortController,
    output: JobOutput,
  ): Promise<Pick<Result, 'outcome' | 'value' | 'value_ref' | 'error' | 'usage'>> {
    const { work, verify, bus, name } = this.#desk;
    const { signal } = controller;
    const { timeout_ms } = job.spec;
    const deadlineMs = timeout_ms === null ? null : performance.now() + timeout_ms;
    let reading = (): Reading | undefined => undefined;
    const forget =
      deadlineMs === null
        ? (): void => undefined
        : atMoment(deadlineMs, () => {
            const used = reading();
            const message = `${job.spec.name} did not end within ${timeout_ms} ms and was killed`;
            const figures = used === undefined ? '' : `; it had used ${usageText(used)}`;
            controller.abort(new HeroError('timeout', `${message}${figures}`));
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
        metered: (read) => {
          reading = read;
        },
      });
      checkSize(value, work.valueBytesMax);
      return {
        outcome: 'completed',
        error: null,
        ...(await this.#stored(value)),
        ...usageOf(reading()),
      };
    } catch (thrown) {
      const error = errorRecord(thrown, { actor: `runner:${name}`, node: bus.address });
      return { outcome: outcomeOf(thrown, signal), value: null, error, ...usageOf(reading()) };
    } finally {
      forget();
    }
  }

  /** A value that is too large for the log is stored before the fact that names it, as long as that takes. */
  async #stored(value: string): Promise<Pick<Result, 'value' | 'value_ref'>> {
    const { bus, holdsLease } = this.#desk;
    for (let tries = 0; ; tries++) {
      try {
        return await storeValue(bus.blobs, this.ref.context, value);
      } catch (error) {
        if (!(error instanceof HeroError) || error.code !== 'unreachable') throw error;
        if (this.#killed || !holdsLease()) throw error;
        await delay(backoffMs(tries, STORE_RETRY));
      }
    }
  }

  /** A decision of the flow takes jobs away: mine are ended. What is older than the pack knew of it. */
  #unwant(unwanted: Unwanted): void {
    const { seq, why, covers } = unwanted;
    if (seq <= this.#pack.plan) return;
    const isMine = (job: PackedJob): boolean => covers(this.#attempt(job));
    if (!this.#pack.jobs.some(isMine)) return;
    this.#taken.push(unwanted);
    for (const { job, begunSeq, controller } of this.#running.values()) {
      if (covers(this.#attempt(job, begunSeq))) controller.abort(cancelled(why));
    }
    this.#shorten(this.#queue.filter((job) => !isMine(job)));
    this.#checkOver();
  }

  #attempt({ n, attempt }: PackedJob, begunSeq?: number): Attempt {
    return { n, attempt, pack: this.#pack.pack, begunSeq };
  }
}

function outcomeOf(thrown: unknown, signal: AbortSignal): Outcome {
  // A tool's own time-out is a failure; only what this runner ended has ended that way.
  if (!signal.aborted || thrown !== signal.reason) return 'failed';
  const { code } = thrown as HeroError;
  return code === 'timeout' ? 'timeout' : 'cancelled';
}

/** As the result tells it: what the job has in memory at its end says nothing. */
function usageOf(reading: Reading | undefined): Pick<Result, 'usage'> {
  if (reading === undefined) return {};
  const { memory_bytes: _, ...usage } = reading;
  return { usage };
}

function checkSize(value: string, maxBytes: number): void {
  const bytes = Buffer.byteLength(value);
  if (bytes > maxBytes) {
    throw new HeroError('too_large', `the value has ${bytes} bytes, at most ${maxBytes} are kept`);
  }
}
