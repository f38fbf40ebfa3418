/**
 * chronicle: the log of one flow -> what happened to it and to each of its jobs, in words, each with the
 * entry that says so. Pure; kept beside a fold by who explains a flow (`why.ts`), by nobody who runs one.
 *
 * The fold keeps what is true now; this keeps how it came about. What counts is the fold's to say: only
 * entries that changed something are told.
 */
import { type ErrorRecord, rootCause } from '../../schemas/errors.ts';
import { usageText } from '../../schemas/job.ts';
import type { Change, FlowState, JobState, LogEntry } from './fold.ts';

export type Fact = {
  fact: string;
  /** `log #<sequence> <kind>` for what an entry says; else the roster, a policy or the ledger. */
  source: string;
};

export type NameOf = (address: string) => string;

/** Of a job that is tried again and again the last facts tell the story. */
const FACTS_MAX = 24;

type Seen = Pick<JobState, 'attempt' | 'pack' | 'node' | 'begunAt' | 'retryAt' | 'unplaced'>;

export class Chronicle {
  /** Oldest first. */
  readonly flow: Fact[] = [];
  readonly #jobs = new Map<number, Fact[]>();
  readonly #seen = new Map<number, Seen>();
  readonly #nameOf: NameOf;
  #supervisor: string | undefined;
  /** The last entry that changed anything. */
  last = 'log #0 nothing';

  constructor(nameOf: NameOf) {
    this.#nameOf = nameOf;
  }

  /** What happened to a job, oldest first. */
  job(n: number): readonly Fact[] {
    return this.#jobs.get(n) ?? [];
  }

  /** Takes in one entry, after it was folded into the state. */
  note(state: FlowState, entry: LogEntry, changes: readonly Change[]): void {
    if (changes.length === 0) return;
    const source = sourceOf(entry);
    this.last = source;
    for (const change of changes) {
      switch (change.type) {
        case 'deployed':
        case 'assigned':
        case 'answered':
        case 'commanded':
        case 'ended':
          this.#tellFlow(state, change.type, source);
          break;
        case 'job':
        case 'jobEnded':
          this.#noteJob(state, change, entry, source);
          break;
        case 'packClaimed':
        case 'packVoid':
          this.#notePack(state, change.pack, entry, source);
          break;
        default:
      }
    }
  }

  #tellFlow(
    state: FlowState,
    what: 'deployed' | 'assigned' | 'answered' | 'commanded' | 'ended',
    source: string,
  ): void {
    const tell = (fact: string): void => keep(this.flow, { fact, source });
    const { deploy, term, end } = state;
    switch (what) {
      case 'deployed':
        return tell(`was deployed by ${deploy?.submittedBy.join(', ') ?? 'somebody'}`);
      case 'assigned': {
        const to = this.#nameOf(term?.node ?? '');
        const from = this.#supervisor;
        this.#supervisor = to;
        if (from === undefined) return tell(`was placed on ${to}`);
        return tell(`was moved from ${from} to ${to}: ${from} ${term?.reason ?? 'was lost'}`);
      }
      case 'answered': {
        const answer = state.answers.at(-1);
        if (answer?.type === 'timer') tell(`its script sleeps until ${iso(answer.dueMs)}`);
        return;
      }
      case 'commanded': {
        const command = state.commands.at(-1);
        if (command !== undefined) tell(`${asked(command)}`);
        return;
      }
      case 'ended':
        return tell(`ended ${end?.status ?? ''}${because(end?.error ?? null)}`);
    }
  }

  #noteJob(
    state: FlowState,
    { type, n }: { type: 'job' | 'jobEnded'; n: number },
    entry: LogEntry,
    source: string,
  ): void {
    const job = state.jobs[n];
    if (job === undefined) return;
    const before = this.#seen.get(n);
    const { attempt, pack, node, begunAt, retryAt, unplaced } = job;
    this.#seen.set(n, { attempt, pack, node, begunAt, retryAt, unplaced });
    const tell = (fact: string): void => this.#tellJob(n, { fact, source });
    if (before === undefined) tell(`was asked for in line ${job.spec.line} of its script`);
    // What the attempt used comes before what came of it: the last fact of a job says how it stands.
    const isResult = type === 'jobEnded' ? job.endedBy === 'result' : retryAt !== null;
    if (entry.lane === 'run' && isResult && job.usage !== null) {
      tell(`attempt ${attempt} used ${usageText(job.usage)}`);
    }
    if (type === 'jobEnded') return tell(endText(job, this.#nameOf));
    if (before !== undefined) {
      const parting = partingText(before, job, entry, this.#nameOf);
      if (parting !== undefined) tell(parting);
    }
    if (pack !== null && pack !== before?.pack) {
      tell(`attempt ${attempt} was planned for ${this.#nameOf(node ?? '')}, in pack ${pack}`);
    }
    if (retryAt !== null && retryAt !== before?.retryAt) {
      tell(`attempt ${attempt} failed${because(job.error)}`);
    }
    if (begunAt !== null && retryAt === null && begunAt !== before?.begunAt) {
      const runner = state.packs[pack ?? '']?.claim?.runner ?? 'a runner';
      tell(`attempt ${attempt} was begun by ${runner} on ${this.#nameOf(node ?? '')}`);
    }
    if (unplaced !== null && unplaced !== before?.unplaced) tell(`no node fits: ${unplaced}`);
  }

  #notePack(state: FlowState, id: string, entry: LogEntry, source: string): void {
    const pack = state.packs[id];
    if (pack === undefined) return;
    const node = this.#nameOf(pack.node);
    const reason = (entry.body as { reason?: unknown } | null)?.reason;
    const why = typeof reason === 'string' ? `: ${reason}` : '';
    const fact =
      pack.state === 'void'
        ? `its pack ${id} for ${node} was withdrawn${why}`
        : `its pack ${id} was claimed by ${pack.claim?.runner ?? 'a runner'} on ${node}`;
    for (const n of pack.jobs) {
      const job = state.jobs[n];
      if (job?.pack === id && job.endedSeq === null) this.#tellJob(n, { fact, source });
    }
  }

  #tellJob(n: number, fact: Fact): void {
    const facts = this.#jobs.get(n);
    if (facts === undefined) this.#jobs.set(n, [fact]);
    else keep(facts, fact);
  }
}

function keep(facts: Fact[], fact: Fact): void {
  facts.push(fact);
  // The first says where it comes from; of the others the newest count.
  if (facts.length > FACTS_MAX) facts.splice(1, 1);
}

/** What became of the attempt before, where a new one or a new place follows it. */
function partingText(
  before: Seen,
  job: JobState,
  entry: LogEntry,
  nameOf: NameOf,
): string | undefined {
  const on = nameOf(before.node ?? '');
  if (job.attempt > before.attempt) {
    if (entry.lane === 'main' && entry.kind === 'retry') {
      return `was given attempt ${job.attempt} by the retry of its flow`;
    }
    if (before.retryAt !== null) return undefined;
    return `attempt ${before.attempt} was lost: what ran it on ${on} ended without telling a result`;
  }
  const moved = before.pack !== null && job.pack !== before.pack && job.attempt === before.attempt;
  return moved ? `attempt ${job.attempt} had not begun and was taken from ${on}` : undefined;
}

function endText(job: JobState, nameOf: NameOf): string {
  const on = job.node === null ? '' : ` on ${nameOf(job.node)}`;
  switch (job.endedBy) {
    case 'result':
      return `${job.status}${on} in attempt ${job.attempt}${because(job.error)}`;
    case 'plan':
      return `${job.status}: its supervisor gave it up${because(job.error)}`;
    default:
      return job.error?.message ?? job.status;
  }
}

function asked({ verb, job, reason, by }: FlowState['commands'][number]): string {
  const what = job === null ? '' : ` of job ${job}`;
  return `${verb}${what} was asked by ${by.join(', ')}${reason === null ? '' : `: ${reason}`}`;
}

/** The error and, where it differs, what lies at its root. */
function because(error: ErrorRecord | null): string {
  if (error === null) return '';
  const root = rootCause(error);
  const said = error.message.includes(root.message) ? '' : ` because ${root.message}`;
  return `: ${error.message}${said} [${root.code}]`;
}

export function sourceOf(entry: LogEntry): string {
  if (entry.lane === 'run') return `log #${entry.seq} run`;
  if (entry.lane === 'main') return `log #${entry.seq} ${entry.kind}`;
  const { type } = (entry.body ?? {}) as { type?: unknown };
  return `log #${entry.seq} ${type === 'void' ? 'void' : 'claim'}`;
}

export const iso = (ms: number): string => new Date(ms).toISOString();
