/**
 * derive: (signed script, log) -> the jobs it asks for and what it waits for. Pure and replayable.
 *
 * Supervisors drive it to plan jobs; whoever doubts a job runs it again and compares. Rules:
 *   D1 the n-th spawn of the run is job n; its spec depends on the script and on logged answers only;
 *   D2 a join is answered by the entry that ended the job, `join_any` by the lowest sequence: the answer is
 *      the same whenever it is asked;
 *   D3 everything else the script asks is recorded: the k-th question has the k-th answer of the log;
 *   D4 a job or a question that differs from what the log holds is `replay_mismatch`, with the line and
 *      both values;
 *   D5 the script's clock is the stream time of the last thing it waited for;
 *   D6 a script with many open jobs may be made to wait at a spawn: it cannot tell, and derives the same.
 */
import type { BlobRef, SentFile } from '../../schemas/blob.ts';
import { type ErrorRecord, failure, HeroError } from '../../schemas/errors.ts';
import { addressText, jobId } from '../../schemas/ids.ts';
import type { JobSpec, JobStatus } from '../../schemas/job.ts';
import {
  Engine,
  type HostFn,
  hintOf,
  type Machine,
  type Position,
  RhaiError,
  runtimeError,
  type Value,
} from '../../rhai/engine.ts';
import { fromJson, toJson } from '../../rhai/json.ts';
import { RArray, RMap } from '../../rhai/values.ts';
import { covers } from './authorise.ts';
import {
  type Bundle,
  bundleFault,
  explain,
  isTooLarge,
  moduleSettings,
  placeOf,
} from './bundle.ts';
import { handle, type Question, registerFunctions, type Run } from './functions.ts';
import { SeededRandom } from './random.ts';
import { canonical } from './spec.ts';

/** Names the semantics a flow was admitted under; a `deploy` entry pins it. */
export const ENGINE_VERSION = 'rhai-1';

/** What bounds every deployment script; each breach is `script_limit` with its figure. */
export const SCRIPT_LIMITS = {
  maxOperations: 100_000_000,
  maxCallLevels: 64,
  maxExprDepth: 64,
  maxFunctionExprDepth: 32,
  maxStringSize: 4 * 1024 * 1024,
  maxArraySize: 1_000_000,
  maxMapSize: 100_000,
  maxTotalSize: 64 * 1024 * 1024,
  maxVariables: 10_000,
  maxFunctions: 1000,
  /** Imports that are executed; how many modules there may be is the deployment's to say. */
  maxModules: 1024,
} as const;
export const JOBS_MAX = 200_000;
/** What one job may carry, and all jobs of a script: a string shared in the script is not shared outside. */
const SPEC_BYTES_MAX = 256 * 1024;
const SPECS_BYTES_MAX = 64 * 1024 * 1024;
const NOTES_MAX = 10_000;
const NOTE_LENGTH_MAX = 4096;

export type ScriptEnv = {
  script: string;
  /** What it may import: name -> source. */
  modules?: Readonly<Record<string, string>>;
  /** What its jobs may ask to have placed: name -> what its blob is. */
  files?: Readonly<Record<string, SentFile>>;
  /** Typed JSON of the arguments: an object. */
  args: string;
  flow: string;
  context: string;
  caller: string;
  grants: readonly string[];
  allowed: readonly string[];
  /** Stream time of the deploy entry, epoch ms. */
  deployedMs: number;
  /** SHA-256 as lower-case hex; handed in, since this folder computes nothing of the outside. */
  sha256: (text: string) => string;
};

/** A job as the log knows it, for the script: what was planned at n, and how it ended. */
export type KnownJob = {
  digest: string;
  status: JobStatus;
  endedSeq: number | null;
  endedAt: number | null;
  value: string | null;
  /** Where the value is when it is too large for the log. */
  valueRef?: BlobRef | null;
  error: ErrorRecord | null;
};

export type KnownAnswer =
  | { type: 'call'; name: string; args: string; answer: string | null; error: ErrorRecord | null }
  | { type: 'timer'; dueMs: number };

/** The log as the script may see it. */
export type History = {
  job(n: number): KnownJob | undefined;
  answer(k: number): KnownAnswer | undefined;
  /** Values of jobs that are blobs, as far as they were fetched. */
  large?(n: number): string | undefined;
  nowMs: number;
  /** Jobs it may have spawned before it waits for earlier ones to end; none: as many as it likes. */
  spawnTo?: number;
};

/** `bytes`: length of the spec's canonical form. */
export type DerivedJob = {
  n: number;
  spec: JobSpec;
  digest: string;
  line: number;
  bytes: number;
};

export type Step =
  | { state: 'sliced' }
  | { state: 'waiting'; mode: 'all' | 'any'; jobs: number[] }
  /** It goes on once it may have more jobs than these. */
  | { state: 'held'; jobs: number }
  /** It joins these jobs, which have ended; their values are blobs and must be fetched. */
  | { state: 'fetches'; jobs: number[] }
  | { state: 'asks'; k: number; name: string; args: string; line: number }
  | { state: 'sleeps'; k: number; ms: number }
  | { state: 'until'; dueMs: number }
  /** `unjoined`: jobs whose end the script never asked for. */
  | { state: 'done'; value: string; unjoined: number[] }
  /** `refused`: it was not begun at all. */
  | { state: 'failed'; error: ErrorRecord; refused: boolean };

export type Note = { stream: 'log' | 'progress'; text: string; replayed: boolean };

/** A breach of D4: not an error of the script's, so no script can catch it. */
class ReplayMismatch extends Error {}

export class Derivation {
  /** Every job spawned so far, by its number. */
  readonly jobs: DerivedJob[] = [];
  readonly #env: ScriptEnv;
  readonly #bundle: Bundle;
  readonly #random: SeededRandom;
  readonly #args: RMap;
  #machine: Machine | undefined;
  #history: History = { job: () => undefined, answer: () => undefined, nowMs: 0 };
  #clockMs: number;
  #asked = 0;
  #pending: { question: Question; k: number; at: Position } | undefined;
  readonly #joinedJobs = new Set<number>();
  #specBytes = 0;
  #last: { spec: JobSpec; digest: string } | undefined;
  #notes: Note[] = [];
  #noteCount = 0;
  #mismatch: ReplayMismatch | undefined;

  /** Throws nothing: a script that does not parse fails at the first `advance`. */
  constructor(env: ScriptEnv) {
    this.#env = env;
    this.#bundle = { script: env.script, modules: env.modules ?? {} };
    this.#clockMs = env.deployedMs;
    this.#random = new SeededRandom(env.sha256(`random ${env.flow}`));
    this.#args = fromJson(env.args) as RMap;
  }

  /** Runs the script as far as the history allows, at most about `maxOperations` at a time. */
  advance(history: History, maxOperations: number): Step {
    this.#history = history;
    try {
      this.#machine ??= this.#start();
      return this.#run(this.#machine, maxOperations);
    } catch (error) {
      if (error instanceof RhaiError) return this.#failed(error);
      throw error;
    }
  }

  /** Log lines since the last call. */
  takeNotes(): Note[] {
    return this.#notes.splice(0);
  }

  #start(): Machine {
    if (isTooLarge(this.#bundle)) throw new RhaiError('ErrorDataTooLarge', { name: 'Script' });
    const engine = new Engine({
      ...SCRIPT_LIMITS,
      ...moduleSettings(this.#bundle),
      strictVariables: true,
      allowEval: false,
      onPrint: (text) => this.#note('log', text),
      onDebug: (text) => this.#note('log', text),
    });
    registerFunctions(engine, this.#host(), (fn) => this.#guarded(fn));
    const scope = [
      { name: 'args', value: this.#args, constant: true },
      { name: 'flow', value: this.#env.flow, constant: true },
      { name: 'caller', value: this.#env.caller, constant: true },
      { name: 'context', value: this.#env.context, constant: true },
    ];
    const program = engine.compile(this.#env.script, { scope });
    const fault = bundleFault(engine, this.#bundle);
    if (fault !== undefined) throw fault;
    return engine.start(program, scope);
  }

  #run(machine: Machine, maxOperations: number): Step {
    for (;;) {
      if (this.#pending !== undefined) {
        const step = this.#resolve(machine, this.#pending);
        if (step !== undefined) return step;
        this.#pending = undefined;
      }
      const outcome = machine.run(maxOperations);
      if (this.#mismatch !== undefined) return this.#mismatchStep(this.#mismatch);
      switch (outcome.state) {
        case 'sliced':
        case 'paused':
          return { state: 'sliced' };
        case 'done':
          return this.#leftOver() ?? this.#done(outcome.value);
        case 'failed':
          return this.#failed(outcome.error);
        case 'suspended': {
          const question = outcome.payload as Question;
          const recorded = question.type === 'call' || question.type === 'sleep';
          const k = recorded ? this.#asked++ : -1;
          this.#pending = { question, k, at: outcome.position };
        }
      }
    }
  }

  #done(value: Value): Step {
    return { state: 'done', value: toJson(value), unjoined: this.#unjoined() };
  }

  /** A script that is through before the log is took another way than the one that was recorded (D4). */
  #leftOver(): Step | undefined {
    const n = this.jobs.length;
    const job = this.#history.job(n);
    const answer = this.#history.answer(this.#asked);
    if (job === undefined && answer === undefined) return undefined;
    const logged =
      job !== undefined
        ? `job ${n} ${job.digest.slice(0, 12)}…`
        : answer?.type === 'call'
          ? `${answer.name}(${answer.args})`
          : 'sleep';
    const message = `the script ends, the log holds ${logged} beyond its end: it is not the script that was begun`;
    return this.#mismatchStep(new ReplayMismatch(message));
  }

  /** Answers the pending question from the history; returns what is missing when it cannot. */
  #resolve(
    machine: Machine,
    { question, k, at }: { question: Question; k: number; at: Position },
  ): Step | undefined {
    try {
      if (question.type === 'call' || question.type === 'sleep') {
        return this.#resolveRecorded(machine, question, k, at);
      }
      if (question.type === 'room') {
        if (!this.#hasRoom()) return { state: 'held', jobs: this.jobs.length };
        machine.resume(handle(question.job));
        return undefined;
      }
      const value = this.#joined(question, at);
      if (value === undefined) {
        const jobs = this.#unfetched(question, at);
        if (jobs.length > 0) return { state: 'fetches', jobs };
        const mode = question.type === 'any' ? 'any' : 'all';
        return { state: 'waiting', mode, jobs: jobsOf(question) };
      }
      machine.resume(value);
    } catch (error) {
      if (error instanceof ReplayMismatch) return this.#mismatchStep(error);
      if (!(error instanceof RhaiError)) throw error;
      machine.reject(error);
    }
    return undefined;
  }

  #resolveRecorded(
    machine: Machine,
    question: Extract<Question, { type: 'call' | 'sleep' }>,
    k: number,
    at: Position,
  ): Step | undefined {
    const known = this.#history.answer(k);
    if (question.type === 'sleep') {
      if (known === undefined) return { state: 'sleeps', k, ms: question.ms };
      if (known.type !== 'timer') throw this.#differs(at, 'sleep', known.name);
      if (this.#history.nowMs < known.dueMs) return { state: 'until', dueMs: known.dueMs };
      this.#clockMs = Math.max(this.#clockMs, known.dueMs);
      machine.resume(null);
      return undefined;
    }
    const { name, args } = question;
    if (known === undefined) return { state: 'asks', k, name, args, line: at.line };
    const asked = `${name}(${args})`;
    const logged = known.type === 'timer' ? 'sleep' : `${known.name}(${known.args})`;
    if (asked !== logged) throw this.#differs(at, asked, logged);
    if (known.type === 'call' && known.error !== null) throw thrown(known.error, at, {});
    machine.resume(known.type === 'call' ? fromJson(known.answer ?? 'null') : null);
    return undefined;
  }

  /** The value of a join where all it needs has ended; throws the job's error. */
  #joined(
    question: Exclude<Question, { type: 'call' | 'sleep' | 'room' }>,
    at: Position,
  ): Value | undefined {
    if (this.#unfetched(question, at).length > 0) return undefined;
    switch (question.type) {
      case 'join':
        return this.#end(question.job, (n, job) => this.#valueOf(n, job, at));
      case 'try':
        return this.#end(question.job, (n, job) => this.#tried(n, job));
      case 'all': {
        if (question.jobs.some((n) => this.#ended(n) === undefined)) return undefined;
        return new RArray(
          question.jobs.map((n) => this.#end(n, (_, job) => this.#valueOf(n, job, at)) ?? null),
        );
      }
      case 'any': {
        const first = this.#firstEnded(question.jobs);
        return first === undefined
          ? undefined
          : this.#end(first, (n, job) => this.#valueOf(n, job, at));
      }
    }
  }

  #firstEnded(jobs: readonly number[]): number | undefined {
    return jobs
      .filter((n) => this.#ended(n) !== undefined)
      .reduce<number | undefined>(
        (best, n) => (best === undefined || this.#endSeq(n) < this.#endSeq(best) ? n : best),
        undefined,
      );
  }

  /**
   * Once the answer is there: the jobs whose large values it needs, when the history has not got them all.
   * All of them, because what is fetched replaces what was.
   */
  #unfetched(
    question: Exclude<Question, { type: 'call' | 'sleep' | 'room' }>,
    at: Position,
  ): number[] {
    const first = question.type === 'any' ? this.#firstEnded(question.jobs) : undefined;
    const needed =
      question.type === 'any' ? (first === undefined ? [] : [first]) : jobsOf(question);
    const large = needed.filter((n) => this.#ended(n)?.valueRef);
    if (large.length === 0 || needed.some((n) => this.#ended(n) === undefined)) return [];
    const bytes = large.reduce((sum, n) => sum + (this.#ended(n)?.valueRef?.size ?? 0), 0);
    if (bytes > SCRIPT_LIMITS.maxTotalSize) {
      const message = `the values joined here have ${bytes} bytes, a script holds at most ${SCRIPT_LIMITS.maxTotalSize}`;
      throw thrown(failure('script_limit', message), at, {});
    }
    return large.every((n) => this.#history.large?.(n) !== undefined) ? [] : large;
  }

  #ended(n: number): KnownJob | undefined {
    const job = this.#history.job(n);
    return job !== undefined && job.endedSeq !== null ? job : undefined;
  }

  #endSeq(n: number): number {
    return this.#ended(n)?.endedSeq ?? Number.POSITIVE_INFINITY;
  }

  #end(n: number, value: (n: number, job: KnownJob) => Value): Value | undefined {
    this.#joinedJobs.add(n);
    const job = this.#ended(n);
    if (job === undefined) return undefined;
    this.#clockMs = Math.max(this.#clockMs, job.endedAt ?? 0);
    return value(n, job);
  }

  #valueOf(n: number, job: KnownJob, at: Position): Value {
    if (job.status === 'completed') return this.#valueIn(n, job);
    throw thrown(job.error ?? failure('job_failed', job.status), at, {
      job: jobId(this.#env.flow, n),
      name: this.jobs[n]?.spec.name ?? '',
    });
  }

  #valueIn(n: number, { value, valueRef }: KnownJob): Value {
    return fromJson((valueRef ? this.#history.large?.(n) : value) ?? 'null');
  }

  #tried(n: number, job: KnownJob): Value {
    const ok = job.status === 'completed';
    const error =
      job.error === null ? null : errorMap(job.error, { job: jobId(this.#env.flow, n) });
    return new RMap(
      new Map<string, Value>([
        ['error', ok ? null : error],
        ['ok', ok],
        ['value', ok ? this.#valueIn(n, job) : null],
      ]),
    );
  }

  #host(): Run {
    return {
      spawn: (spec, at) => this.#spawn(spec, at),
      hasRoom: () => this.#hasRoom(),
      answer: (question, at) =>
        question.type === 'call' || question.type === 'sleep' || question.type === 'room'
          ? undefined
          : this.#joined(question, at),
      jobId: (n) => jobId(this.#env.flow, n),
      nowMs: () => this.#clockMs,
      randomFloat: () => this.#random.float(),
      randomUuid: () => this.#random.uuid(),
      files: this.#env.files ?? {},
      arg: (name) => this.#args.items.get(name),
      require: (capability) => this.#require(capability),
      note: (stream, text) => this.#note(stream, text),
    };
  }

  #spawn(spec: JobSpec, at: Position): number {
    for (const need of spec.needs) this.#require(need);
    const n = this.jobs.length;
    if (n >= JOBS_MAX)
      throw new HeroError('script_limit', `a script may spawn at most ${JOBS_MAX} jobs`);
    const text = canonical(spec);
    this.#specBytes += text.length;
    if (text.length > SPEC_BYTES_MAX || this.#specBytes > SPECS_BYTES_MAX) {
      throw new HeroError(
        'script_limit',
        `a job may carry ${SPEC_BYTES_MAX >> 10} KiB and all jobs of a script ${SPECS_BYTES_MAX >> 20} MiB: keep large data in files or in the bucket, and name it`,
      );
    }
    const digest = this.#env.sha256(text);
    const planned = this.#history.job(n);
    if (planned !== undefined && planned.digest !== digest) {
      this.#mismatch = this.#differs(
        at,
        `job ${n} ${digest.slice(0, 12)}… (${spec.kind} ${spec.name})`,
        `job ${n} ${planned.digest.slice(0, 12)}…`,
      );
    }
    // Many jobs are alike: they share what is the same.
    if (this.#last?.digest !== digest) this.#last = { spec, digest };
    this.jobs.push({ n, ...this.#last, line: at.line, bytes: text.length });
    return n;
  }

  /** What the log holds already it spawns again in any case. */
  #hasRoom(): boolean {
    const spawned = this.jobs.length;
    const { spawnTo } = this.#history;
    return (
      spawnTo === undefined || spawned < spawnTo || this.#history.job(spawned - 1) !== undefined
    );
  }

  #require(capability: string): void {
    const { grants, allowed, context } = this.#env;
    if (!covers(grants, capability)) {
      throw new HeroError(
        'capability_not_granted',
        `the script needs ${capability}, which its signer did not grant: deploy it again with --grant ${capability}`,
      );
    }
    if (!covers(allowed, capability)) {
      throw new HeroError(
        'capability_not_allowed',
        `the script needs ${capability}, which context ${context} does not allow`,
      );
    }
  }

  #note(stream: 'log' | 'progress', text: string): void {
    if (this.#noteCount >= NOTES_MAX) return;
    this.#noteCount += 1;
    // What a replay prints again was published before the decisions that it replays.
    const replayed =
      this.#history.job(this.jobs.length) !== undefined ||
      this.#history.answer(this.#asked) !== undefined;
    this.#notes.push({ stream, text: text.slice(0, NOTE_LENGTH_MAX), replayed });
  }

  /** Errors of our own functions reach the script as values it can catch. */
  #guarded(fn: HostFn): HostFn {
    return (args, at) => {
      try {
        return fn(args, at);
      } catch (error) {
        if (error instanceof HeroError) throw thrown(failure(error.code, error.message), at, {});
        throw error;
      }
    };
  }

  #differs(at: Position, now: string, logged: string): ReplayMismatch {
    return new ReplayMismatch(
      `line ${at.line}: the script asks for ${now}, the log holds ${logged}: it is not the script that was begun`,
    );
  }

  #mismatchStep(error: ReplayMismatch): Step {
    const record = failure('replay_mismatch', error.message, { actor: 'script' });
    return { state: 'failed', error: record, refused: false };
  }

  #failed(error: RhaiError): Step {
    return { state: 'failed', error: this.#record(error), refused: false };
  }

  #unjoined(): number[] {
    return this.jobs.filter(({ n }) => !this.#joinedJobs.has(n)).map(({ n }) => n);
  }

  /** An uncaught error as a record: the job's own error stays below it as the cause. */
  #record(error: RhaiError): ErrorRecord {
    const innermost = innermostOf(error);
    const hint = hintOf(error);
    const text = `${explain(error, this.#bundle)}${hint === undefined ? '' : `\nhint: ${hint}`}`;
    const where = { actor: 'script' };
    const value = innermost.thrown;
    const code = value instanceof RMap ? value.items.get('code') : undefined;
    if (value instanceof RMap && typeof code === 'string') {
      const job = value.items.get('job');
      const n = typeof job === 'string' ? Number(job.split('.')[1]) : Number.NaN;
      const cause = this.#history.job(n)?.error ?? null;
      const said = value.items.get('message');
      const message = typeof said === 'string' ? said : '';
      const place = placeOf(error);
      const at = place === undefined ? '' : `${place}: `;
      const what =
        cause === null ? message : `job ${n} (${this.jobs[n]?.spec.name ?? '?'}): ${message}`;
      return {
        code,
        message: `${at}${what}`,
        actor: 'script',
        node: null,
        cause,
      };
    }
    return failure(codeOf(innermost), text, where);
  }
}

function jobsOf(question: Exclude<Question, { type: 'call' | 'sleep' | 'room' }>): number[] {
  return question.type === 'join' || question.type === 'try' ? [question.job] : question.jobs;
}

function errorMap(error: ErrorRecord, extra: Record<string, string>): RMap {
  const entries = new Map<string, Value>([
    ['code', error.code],
    ['message', error.message],
    ['node', error.node === null ? null : addressText(error.node)],
    ['cause', error.cause === null ? null : errorMap(error.cause, {})],
  ]);
  for (const [key, value] of Object.entries(extra)) entries.set(key, value);
  return new RMap(new Map([...entries].sort(([a], [b]) => (a < b ? -1 : 1))));
}

const thrown = (error: ErrorRecord, at: Position, extra: Record<string, string>): RhaiError =>
  runtimeError(errorMap(error, extra), at);

function innermostOf(error: RhaiError): RhaiError {
  return error.inner === undefined ? error : innermostOf(error.inner);
}

const LIMIT_KINDS: ReadonlySet<string> = new Set([
  'ErrorTooManyOperations',
  'ErrorTooManyVariables',
  'ErrorTooManyModules',
  'ErrorStackOverflow',
  'ErrorDataTooLarge',
  'ErrorTerminated',
]);
const PARSE_LIMITS: ReadonlySet<string> = new Set([
  'ExprTooDeep',
  'TooManyFunctions',
  'LiteralTooLarge',
]);

function codeOf(error: RhaiError): 'script_limit' | 'script_syntax' | 'script_failed' {
  if (LIMIT_KINDS.has(error.kind)) return 'script_limit';
  if (error.kind !== 'ErrorParsing') return 'script_failed';
  return PARSE_LIMITS.has(error.details.parse ?? '') ? 'script_limit' : 'script_syntax';
}
