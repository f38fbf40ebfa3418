/**
 * The script host: drives one flow by asking its log what to do next (`actors/flow/next.ts`) and doing it.
 *
 * Invariants:
 *   H1 at most one decision of the flow is in flight, fenced by the last one it was made from: what is
 *      folded while it is being made (a cancel, another term) makes it lose;
 *   H2 nothing is done before the log has been folded up to now (`caughtUp`), so a replay repeats nothing;
 *   H3 effects (pack messages, writes) follow the commit of the decision that orders them;
 *   H4 whatever fails leaves the flow as the log has it: the round is tried again.
 */
import { fetchValue, storeValue } from '../bus/blobs.ts';
import { type Bus, type Entry, FenceLost, type Follower } from '../bus/bus.ts';
import { subjects } from '../bus/subjects.ts';
import type { DerivedJob, KnownJob, Step } from '../actors/flow/derive.ts';
import {
  type Authority,
  emptyFlow,
  fold,
  type JobState,
  type PackState,
} from '../actors/flow/fold.ts';
import { type Next, next } from '../actors/flow/next.ts';
import type { Plan } from '../actors/flow/plan.ts';
import { Worklist } from '../actors/flow/worklist.ts';
import { type ErrorRecord, errorRecord, failure, HeroError } from '../schemas/errors.ts';
import type { FlowRef, PackId } from '../schemas/ids.ts';
import type { Pack } from '../schemas/job.ts';
import { exactJson } from '../schemas/json.ts';
import { NO_QUOTAS } from '../schemas/ledger.ts';
import type { RosterNode } from '../schemas/node.ts';
import { type Admitted, admit } from './admission.ts';
import { answerCall, type CallDeps, settleWrite } from './calls.ts';
import { ANY_NODE, type Doze } from './dormitory.ts';
import type { JobBudget } from './job-budget.ts';
import type { LedgerView } from './ledger-view.ts';
import type { NodeView } from './liveness.ts';
import { isClaimLost } from './liveness.ts';
import type { ScriptHostEvent } from './script-host.machine.ts';
import { Outbox } from './outbox.ts';
import { ScriptNotes } from './script-notes.ts';
import { type Advanced, type Script, type ScriptPool, WorkerDied } from './script-pool.ts';
import type { Facts } from './script-sessions.ts';

export type ScriptHostDeps = {
  bus: Bus;
  ledger: LedgerView;
  pool: ScriptPool;
  budget: JobBudget;
  nodes: () => readonly RosterNode[];
  /** A node as this supervisor knows it now: its own at first hand, others by the roster. */
  nodeView: (address: string) => NodeView | undefined;
  load: (address: string) => number;
  /** Told when a job of this flow moves between nodes: the supervisor's own account of load. */
  placed: (n: number, node: string | null) => void;
  tell: (event: ScriptHostEvent) => void;
  /** What was folded is not what the log holds: this host has ended, another one is to fold it anew. */
  startAnew: (why: string) => void;
  /** What the watchdog mended. */
  alarm: (message: string) => void;
};

/** Faults of the flow itself, whoever drives it and however often. */
const FINAL: ReadonlySet<string> = new Set(['too_large', 'script_limit', 'quota']);
/** A script that has killed its worker so often is the reason, not the victim. */
const WORKER_DEATHS_MAX = 3;
/** A script that was held goes on when it may spawn so many. */
const SPAWN_STEP = 250;
/** A flow in which nothing has happened for so long is looked at by the watchdog. */
const STILL_MS = 10_000;
/** A decision that was committed shows up in the follow within this, or the follow is poked. */
const FOLD_WITHIN_MS = 1000;

export class ScriptHost {
  readonly ref: FlowRef;
  readonly #deps: ScriptHostDeps;
  readonly #authority: Authority;
  readonly #state = emptyFlow();
  readonly #work = new Worklist();
  readonly #outbox = new Outbox();
  readonly #follower: Follower;
  readonly #folded = new Set<() => void>();
  readonly #notes: ScriptNotes;
  /** Ended jobs leave a gap: nobody asks for them again. */
  #derived: (DerivedJob | undefined)[] = [];
  #openJobs = 0;
  #quotas = NO_QUOTAS;
  #step: Step | undefined;
  #admitted: Admitted | undefined;
  #script: { script: Script; answers: number } | undefined;
  /** A retry opened the flow again: the script is to be run from its beginning. */
  #reopened = false;
  #workerDeaths = 0;
  /** What the present round was decided from: its decision is fenced by that, however long it takes. */
  #basis = { term: 0, mainSeq: 0 };
  /** Answers up to here have had their effect; the script goes no further than that. */
  #settled = 0;
  #movedMs = performance.now();
  #entryMs = performance.now();
  #driving = false;
  #again = false;
  #closed = false;

  constructor(ref: FlowRef, deps: ScriptHostDeps) {
    this.ref = ref;
    this.#deps = deps;
    this.#notes = new ScriptNotes(deps.bus, ref);
    this.#authority = { isCoord: (address) => deps.ledger.isCoord(address) };
    this.#follower = deps.bus.log.follow(
      ref,
      1,
      (entry) => this.#observe(entry),
      (entry) => this.#missed(entry),
    );
  }

  /** Sequence of the present term; 0 before it is folded. */
  get term(): number {
    return this.#state.term?.seq ?? 0;
  }

  /** How long no entry of the log has come. */
  get stillMs(): number {
    return performance.now() - this.#entryMs;
  }

  get hasOpenJobs(): boolean {
    return this.#work.open.size > 0;
  }

  /** Resolves when all that the log held at the call has been folded. */
  confirm(): Promise<void> {
    return this.#follower.check();
  }

  /** What it waits for, when it does. */
  doze(): Omit<Doze, 'dueMs'> | undefined {
    if (this.#driving || this.#closed) return undefined;
    const nodes = new Set<string>();
    for (const { node } of this.#work.claimedPacks(this.#state)) nodes.add(node);
    for (const { node } of this.#work.queuedPacks(this.#state)) nodes.add(node);
    if (this.#work.loose.size > 0) nodes.add(ANY_NODE);
    const queued = this.#work.queued.size > 0;
    return { ref: this.ref, seq: this.#state.seq, term: this.term, nodes, queued };
  }

  /** Reads again what may have been missed. */
  poke(): void {
    this.#follower.poke();
  }

  /** The link was away: what was missed is read, and packs nobody has claimed are sent again. */
  reconnected(): void {
    // A server that was killed may have lost what waited in a queue: a queue only wakes.
    this.#outbox.again();
    this.#follower.poke();
    this.#deps.tell({ type: 'LINK_UP' });
    this.look();
  }

  /** Something outside the log changed (the roster, a lease): look again. */
  look(): void {
    this.#deps.tell({ type: 'FACTS' });
  }

  /** The watchdog's look: reads the log again when it has been still, and sends lost wake-ups again. */
  review(): void {
    if (performance.now() - this.#movedMs < STILL_MS) return;
    this.#movedMs = performance.now();
    this.#follower.poke();
    const lost = [...this.#unclaimed()];
    this.#outbox.again(lost);
    if (lost.length > 0) {
      const packs = `${lost.slice(0, 3).join(', ')}${lost.length > 3 ? ', …' : ''}`;
      const why = `${lost.length} queued beside idle runners (${packs})`;
      this.#deps.alarm(`flow ${this.ref.flow}: packs sent again: ${why}`);
    }
    // A quota that was raised is no entry of its log.
    if (this.#step?.state === 'held') {
      this.#readQuotas().then(
        () => this.look(),
        () => undefined,
      );
    }
    this.look();
  }

  /** Queued packs whose node has idle runners of their class: their message must have been lost. */
  *#unclaimed(): Iterable<PackId> {
    for (const pack of this.#work.queuedPacks(this.#state)) {
      const runners = this.#deps.nodeView(pack.node)?.runners ?? [];
      const idle = runners.some(
        (runner) => runner.class === pack.class && runner.busy < runner.slots,
      );
      if (idle) yield pack.pack;
    }
  }

  close(): void {
    this.#closed = true;
    this.#countOpen(0);
    this.#follower.stop();
    this.#closeScript();
    for (const done of this.#folded) done();
  }

  /** Judges the deployment; the refusal is the flow's end like any other. */
  async admit(): Promise<void> {
    await this.#follower.caughtUp;
    const { deploy, end, term } = this.#state;
    if (this.#admitted === undefined && deploy !== null && end === null && term !== null) {
      const verdict = admit(this.ref, deploy, await this.#deps.ledger.context(this.ref.context));
      if ('refused' in verdict)
        this.#step = { state: 'failed', error: verdict.refused, refused: true };
      else this.#admitted = verdict;
    }
    this.#deps.tell({ type: 'ADMITTED' });
  }

  /** Does what the log asks for until there is nothing to do but wait. Calls while at it are one more look. */
  drive(): void {
    this.#again = true;
    if (this.#driving) return;
    this.#driving = true;
    this.#driveOn().then(
      () => {
        this.#driving = false;
        if (this.#again && !this.#closed) this.drive();
      },
      (error: unknown) => {
        this.#driving = false;
        if (this.#closed) return;
        const { message } = errorRecord(error);
        this.#notes.publish([{ stream: 'log', text: `trouble, tried again: ${message}` }]);
        this.#deps.tell({ type: 'TROUBLE', reason: message });
      },
    );
  }

  async #driveOn(): Promise<void> {
    while (this.#again && !this.#closed) {
      this.#again = false;
      for (;;) {
        if (this.#closed) return;
        const what = this.#next();
        if (what.do === 'wait' || what.do === 'pause') {
          if (this.#again) break;
          this.#deps.tell(
            what.do === 'pause' ? { type: 'PAUSES' } : { type: 'WAITS', dueMs: what.dueMs },
          );
          return;
        }
        if (what.do === 'close') {
          const { end } = this.#state;
          this.#deps.tell(end === null ? { type: 'MOVED' } : { type: 'ENDED', status: end.status });
          return;
        }
        this.#basis = { term: this.term, mainSeq: this.#state.mainSeq };
        await this.#perform(what).catch((thrown: unknown) => {
          // What no repetition mends ends the flow with its cause; everything else is tried again.
          if (!(thrown instanceof HeroError) || !FINAL.has(thrown.code)) throw thrown;
          this.#failScript(errorRecord(thrown, { actor: 'supervisor' }));
        });
      }
    }
  }

  #next(): Next {
    if (this.#reopened) this.#startOver();
    const { bus, nodes, load, nodeView } = this.#deps;
    return next({
      flow: this.ref.flow,
      context: this.ref.context,
      me: bus.address,
      state: this.#state,
      work: this.#work,
      derived: this.#derived,
      roster: nodes(),
      load,
      nowMs: bus.now(),
      isLost: (pack) => isClaimLost(pack, nodeView(pack.node), bus.now()),
      spawnTo: this.#spawnTo(),
      spawnStep: Math.max(1, Math.min(SPAWN_STEP, (this.#quotas.open_jobs ?? SPAWN_STEP) >> 2)),
      step: this.#step,
      toSend: this.#outbox.ready(),
    });
  }

  /** Only between rounds: a script that is being advanced is not closed under it. */
  #startOver(): void {
    this.#reopened = false;
    this.#closeScript();
    this.#step = undefined;
    this.#derived = [];
    this.#countOpen(0);
    this.#workerDeaths = 0;
  }

  /** Jobs that have ended are room for as many new ones. */
  #spawnTo(): number {
    const { budget } = this.#deps;
    const room = budget.roomOf(this.ref.context, this.#quotas.open_jobs);
    const quota = Math.min(this.#derived.length + room, (this.#quotas.jobs_per_flow ?? 1e9) + 1);
    return Math.min(this.#endedJobs() + budget.allowance(), quota);
  }

  async #readQuotas(): Promise<void> {
    const { quotas } = await this.#deps.ledger.context(this.ref.context);
    this.#quotas = quotas;
  }

  #endedJobs(): number {
    return this.#state.jobs.length - this.#work.open.size;
  }

  #countOpen(open = Math.max(0, this.#derived.length - this.#endedJobs())): void {
    this.#deps.budget.changed(this.ref.context, open - this.#openJobs);
    this.#openJobs = open;
  }

  async #perform(what: Exclude<Next, { do: 'wait' | 'pause' | 'close' }>): Promise<void> {
    switch (what.do) {
      case 'advance':
        return this.#advance();
      case 'void':
        return this.#void(what.packs, what.reason);
      case 'publish':
        return this.#publish(what.packs);
      case 'plan':
        return this.#plan(what.plan);
      case 'timer':
        return this.#decide('timer', { k: what.k, due_ms: Math.round(what.dueMs) });
      case 'answer': {
        const { name, args, k } = what;
        const answer = await answerCall(this.#callDeps(), name, args);
        return this.#decide('call', { k, name, args, ...answer });
      }
      case 'fetch':
        return this.#fetch(what.jobs);
      case 'end':
        return this.#end(what);
    }
  }

  /** Lets the script go on with values that are blobs. One that is gone is nothing a script could answer. */
  async #fetch(jobs: number[]): Promise<void> {
    const large: [number, string][] = [];
    for (const n of jobs) {
      const ref = this.#state.jobs[n]?.valueRef;
      if (!ref) continue;
      try {
        large.push([n, await fetchValue(this.#deps.bus.blobs, this.ref.context, ref)]);
      } catch (thrown) {
        if (!(thrown instanceof HeroError) || thrown.code === 'unreachable') throw thrown;
        const cause = errorRecord(thrown, { actor: 'supervisor', node: this.#deps.bus.address });
        const name = this.#state.jobs[n]?.spec.name ?? '';
        const message = `job ${n} (${name}): ${thrown.message}`;
        this.#failScript(failure(thrown.code, message, { actor: 'supervisor' }, cause));
        return;
      }
    }
    return this.#advance(large);
  }

  #failScript(error: ErrorRecord): void {
    this.#step = { state: 'failed', error, refused: false };
  }

  async #end({ status, error, value }: Next & { do: 'end' }): Promise<void> {
    // Who reads the output once he knows of the end finds all of it.
    await this.#notes.stored();
    if (value === null) return this.#decide('end', { status, error, value });
    try {
      const stored = await storeValue(this.#deps.bus.blobs, this.ref.context, value);
      const shown = stored.value === null ? stored : { value: exactJson(stored.value) };
      return await this.#decide('end', { status, error, ...shown });
    } catch (thrown) {
      if (!(thrown instanceof HeroError) || thrown.code !== 'too_large') throw thrown;
      const record = errorRecord(thrown, { actor: 'script' });
      return this.#decide('end', { status: 'failed', error: record, value: null });
    }
  }

  #callDeps(): CallDeps {
    const { bus, nodes } = this.#deps;
    return { bus, nodes, state: this.#state, caller: this.#admitted?.env.caller ?? '' };
  }

  /** A write that was decided may not have been done: by this process a moment ago, or by one that died. */
  async #settleLastWrite(): Promise<void> {
    const { answers } = this.#state;
    const last = answers.at(-1);
    if (answers.length === this.#settled || last === undefined) return;
    await settleWrite(this.#callDeps(), last);
    this.#settled = answers.length;
  }

  async #advance(large: [number, string][] = []): Promise<void> {
    if (this.#admitted === undefined) return this.admit();
    await this.#settleLastWrite();
    await this.#readQuotas();
    let advanced: Advanced;
    try {
      const { script, facts } = this.#openScript(this.#admitted);
      const { bus } = this.#deps;
      advanced = await script.advance({ ...facts, large }, bus.now(), this.#spawnTo());
    } catch (error) {
      if (!(error instanceof WorkerDied)) throw error;
      this.#script = undefined;
      if (!error.guilty) return;
      this.#workerDeaths += 1;
      if (this.#workerDeaths < WORKER_DEATHS_MAX) return;
      const message = `the script ended its worker ${this.#workerDeaths} times: ${error.message}`;
      return this.#failScript(failure('script_limit', message, { actor: 'script' }));
    }
    this.#workerDeaths = 0;
    this.#step = advanced.step;
    for (const job of advanced.jobs) {
      this.#derived[job.n] = this.#state.jobs[job.n]?.endedSeq ? undefined : job;
    }
    this.#countOpen();
    this.#keepToQuota();
    this.#notes.publish(advanced.notes.filter(({ replayed }) => !replayed));
  }

  /** One job too many ends the flow: what it had planned before is cancelled by that. */
  #keepToQuota(): void {
    const quota = this.#quotas.jobs_per_flow;
    if (quota === null || this.#derived.length <= Math.max(quota, this.#state.jobs.length)) return;
    const { context } = this.ref;
    const line = this.#derived[quota]?.line;
    const message = `line ${line ?? '?'} spawns one job more than the ${quota} that ${context} allows a flow (its quota jobs_per_flow): spawn fewer, or ask an admin of the ledger for more (\`herobus context quota ${context} --jobs-per-flow N\`), then \`herobus retry\``;
    this.#failScript(failure('quota', message, { actor: 'supervisor' }));
  }

  /** The script with all it has not been told yet; opened anew where it is not open. */
  #openScript({ env }: Admitted): { script: Script; facts: Facts } {
    const { answers } = this.#state;
    if (this.#script === undefined) {
      const jobs = this.#state.jobs.map((job): [number, KnownJob] => [job.n, known(job)]);
      this.#work.takeEnded();
      const script = this.#deps.pool.open(this.ref.flow, env, { jobs, firstAnswer: 0, answers });
      this.#script = { script, answers: answers.length };
      return { script, facts: { jobs: [], firstAnswer: answers.length, answers: [] } };
    }
    const { script, answers: told } = this.#script;
    const jobs = this.#work.takeEnded().flatMap((n): [number, KnownJob][] => {
      const job = this.#state.jobs[n];
      return job === undefined ? [] : [[n, known(job)]];
    });
    this.#script.answers = answers.length;
    return { script, facts: { jobs, firstAnswer: told, answers: answers.slice(told) } };
  }

  #closeScript(): void {
    this.#script?.script.close();
    this.#script = undefined;
  }

  async #plan({ jobs, placed, packs, gone }: Plan): Promise<void> {
    const { seq } = this.#state;
    // What is taken from a runner must not have been reported in an entry whose copy was lost.
    if (gone.length > 0 || placed.some(({ because }) => because === 'lost')) {
      await this.#follower.check();
      if (this.#closed || this.#state.seq !== seq) return;
    }
    await this.#decide('plan', { jobs, placed, packs, gone });
  }

  async #void(packs: PackId[], reason: string): Promise<void> {
    const { bus } = this.#deps;
    const voiding = packs.map(async (pack) => {
      try {
        const body = {
          v: 1 as const,
          inc: bus.incarnation,
          type: 'void' as const,
          term: this.term,
          reason,
        };
        return (await bus.log.claim(this.ref, pack, body)).seq;
      } catch (error) {
        // Whoever loses the fence accepts: the pack was claimed, or void already.
        if (error instanceof FenceLost) return error.last;
        throw error;
      }
    });
    await this.#foldedUpTo(Math.max(...(await Promise.all(voiding))));
  }

  async #publish(packs: PackState[]): Promise<void> {
    const { bus } = this.#deps;
    await Promise.all(
      packs.map(async ({ pack, class: kind, node }) => {
        const message = this.#message(pack);
        if (message !== undefined) {
          await bus.queues.publish(subjects.jobs(this.ref.context, kind as never, node), message);
        }
        this.#outbox.sent(pack);
      }),
    );
  }

  #message(id: PackId): Pack | undefined {
    const pack = this.#state.packs[id];
    if (pack === undefined) return undefined;
    const jobs = pack.jobs.flatMap((n) => {
      const job = this.#state.jobs[n];
      const spec = this.#derived[n]?.spec;
      if (job?.pack !== id || job.endedSeq !== null || spec === undefined) return [];
      return [{ n, attempt: job.attempt, spec }];
    });
    if (jobs.length === 0) return undefined;
    const { context, flow } = this.ref;
    const caller = this.#admitted?.env.caller ?? '';
    const suspect = jobs.some(({ n }) => (this.#state.jobs[n]?.lost ?? 0) > 0);
    const of = { context, flow, pack: id, plan: pack.planSeq, node: pack.node, caller };
    return { v: 1, ...of, ...(suspect ? { suspect } : {}), jobs };
  }

  /** Appends one decision of this term and waits until it is folded. Losing the fence means: look again. */
  async #decide(kind: 'plan' | 'call' | 'timer' | 'end', body: object): Promise<void> {
    const { bus } = this.#deps;
    const { term, mainSeq } = this.#basis;
    const whole = { v: 1, inc: bus.incarnation, term, ...body };
    try {
      const { seq } = await bus.log.decide(this.ref, kind, whole, mainSeq);
      await this.#foldedUpTo(seq);
    } catch (error) {
      if (!(error instanceof FenceLost)) throw error;
      this.#follower.poke();
      await this.#foldedUpTo(error.last);
    }
  }

  async #foldedUpTo(seq: number): Promise<void> {
    while (this.#state.seq < seq && !this.#closed) {
      const poke = setTimeout(() => this.#follower.poke(), FOLD_WITHIN_MS);
      await new Promise<void>((resolve) => {
        const done = (): void => {
          this.#folded.delete(done);
          resolve();
        };
        this.#folded.add(done);
      });
      clearTimeout(poke);
    }
  }

  /** A fold is made in order: it is made anew, by a host that has not been told wrong. */
  #missed({ seq }: Entry): void {
    if (this.#closed) return;
    this.#closed = true;
    this.#deps.startAnew(`the copy of entry ${seq} was lost; its log is read again`);
  }

  #observe(entry: Entry): void {
    if (this.#closed) return;
    const changes = fold(this.#state, entry, this.#authority);
    this.#work.note(this.#state, changes);
    if (changes.some(({ type }) => type === 'reopened')) this.#reopened = true;
    for (const change of changes) {
      if (change.type === 'jobEnded' && change.n < this.#derived.length)
        this.#derived[change.n] = undefined;
      if (change.type === 'packClaimed') this.#outbox.gone(change.pack, 'claimed');
      if (change.type === 'packVoid') this.#outbox.gone(change.pack, 'void');
      if (change.type !== 'job' && change.type !== 'jobEnded') continue;
      const job = this.#state.jobs[change.n];
      const node =
        job === undefined || job.endedSeq !== null || job.retryAt !== null ? null : job.node;
      this.#deps.placed(change.n, node);
      const pack = this.#state.packs[job?.pack ?? ''];
      if (pack?.state === 'queued') this.#outbox.add(pack);
    }
    this.#countOpen();
    this.#movedMs = performance.now();
    this.#entryMs = this.#movedMs;
    for (const done of this.#folded) done();
    if (changes.length > 0) this.#deps.tell({ type: 'FACTS' });
  }
}

function known(job: JobState): KnownJob {
  const { status, endedSeq, endedAt, value, valueRef, error } = job;
  return { digest: job.spec.digest, status, endedSeq, endedAt, value, valueRef, error };
}
