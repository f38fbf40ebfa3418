/**
 * The scripts of one worker: many flows, one derivation each, in slices.
 *
 * An endless script holds up nobody: its slices alternate with those of the other flows. Where the sessions
 * run is not their business: they are told messages and tell some (`script-worker.ts` is the thread).
 */
import { createHash } from 'node:crypto';
import {
  type DerivedJob,
  Derivation,
  type History,
  type KnownAnswer,
  type KnownJob,
  type Note,
  type ScriptEnv,
  type Step,
} from '../actors/flow/derive.ts';

export type ToWorker =
  | { type: 'open'; id: string; env: Omit<ScriptEnv, 'sha256'>; memory: Facts }
  | { type: 'advance'; id: string; facts: Facts; nowMs: number; spawnTo: number }
  | { type: 'close'; id: string };

/** What became known since the last message: jobs by number, answers from `firstAnswer` on. */
export type Facts = {
  jobs: [number, KnownJob][];
  firstAnswer: number;
  answers: KnownAnswer[];
  /** Values that are blobs, for this one advance: a script that reads many holds one at a time. */
  large?: [number, string][];
};

/** `jobs` are those derived since the last answer, in as many messages as they need, before the step. */
export type FromWorker =
  /** From here on this script runs: if the thread dies now, it is the one. */
  | { type: 'runs'; id: string }
  | { type: 'jobs'; id: string; jobs: DerivedJob[] }
  | { type: 'step'; id: string; step: Step; notes: Note[] };

/** About 10 ms of work: short enough that flows share the thread fairly. */
const SLICE_OPERATIONS = 200_000;

type Session = {
  derivation: Derivation;
  history: History & { jobs: Map<number, KnownJob>; answers: KnownAnswer[] };
  told: number;
  large: Map<number, string>;
};

const sha256 = (text: string): string => createHash('sha256').update(text).digest('hex');

function open(env: Omit<ScriptEnv, 'sha256'>, facts: Facts): Session {
  const jobs = new Map<number, KnownJob>();
  const answers: KnownAnswer[] = [];
  const large = new Map<number, string>();
  const history = {
    jobs,
    answers,
    job: (n: number) => jobs.get(n),
    answer: (k: number) => answers[k],
    large: (n: number) => large.get(n),
    nowMs: env.deployedMs,
  };
  const session = { derivation: new Derivation({ ...env, sha256 }), history, told: 0, large };
  learn(session, facts);
  return session;
}

function learn({ history, large }: Session, facts: Facts): void {
  large.clear();
  for (const [n, value] of facts.large ?? []) large.set(n, value);
  for (const [n, job] of facts.jobs) history.jobs.set(n, job);
  for (const [i, answer] of facts.answers.entries())
    history.answers[facts.firstAnswer + i] = answer;
}

/** What the session keeps of a job it has told: all but what it carries. */
function bare(job: DerivedJob, before: DerivedJob | undefined): DerivedJob {
  if (before?.digest === job.digest) return { ...job, spec: before.spec };
  return { ...job, spec: { ...job.spec, payload: null } };
}

/** What a message may hold: reading one must not hold up the main thread's heartbeat. */
const JOBS_TOLD_MAX = 1000;
const BYTES_TOLD_MAX = 1024 * 1024;

export class ScriptSessions {
  readonly #sessions = new Map<string, Session>();
  readonly #tell: (message: FromWorker) => void;
  #running = '';

  constructor(tell: (message: FromWorker) => void) {
    this.#tell = tell;
  }

  take(message: ToWorker): void {
    switch (message.type) {
      case 'open':
        this.#sessions.set(message.id, open(message.env, message.memory));
        return;
      case 'close':
        this.#sessions.delete(message.id);
        return;
      case 'advance': {
        const session = this.#sessions.get(message.id);
        if (session === undefined) return;
        learn(session, message.facts);
        session.history.nowMs = message.nowMs;
        session.history.spawnTo = message.spawnTo;
        this.#slice(message.id, session);
      }
    }
  }

  /** One slice; a script that is not through yet goes on after the others had their turn. */
  #slice(id: string, session: Session): void {
    if (this.#sessions.get(id) !== session) return;
    if (id !== this.#running) this.#tell({ type: 'runs', id });
    this.#running = id;
    const step = session.derivation.advance(session.history, SLICE_OPERATIONS);
    if (step.state === 'sliced') {
      setImmediate(() => this.#slice(id, session));
      return;
    }
    // What a script spawned before it failed is never planned.
    if (step.state !== 'failed') this.#tellJobs(id, session);
    const notes = session.derivation.takeNotes();
    this.#tell({ type: 'step', id, step, notes });
  }

  #tellJobs(id: string, session: Session): void {
    const { jobs } = session.derivation;
    while (session.told < jobs.length) {
      const part: DerivedJob[] = [];
      for (let bytes = 0; bytes < BYTES_TOLD_MAX && part.length < JOBS_TOLD_MAX; ) {
        const job = jobs[session.told];
        if (job === undefined) break;
        part.push(job);
        jobs[session.told] = bare(job, jobs[session.told - 1]);
        bytes += job.bytes;
        session.told += 1;
      }
      this.#tell({ type: 'jobs', id, jobs: part });
    }
  }
}
