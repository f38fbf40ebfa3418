/**
 * A flow told in lines on stderr while it goes on, and a calm summary at its end.
 *
 * Small flows are told job by job; of large ones only failures. How far it is stands in a bar on the last
 * line of a terminal; elsewhere it is told in a line, at most once a second.
 */
import type { Entry } from '../../bus/bus.ts';
import { addressText } from '../../schemas/ids.ts';
import { type Change, type FlowState, isJobEnded, type JobState } from '../../actors/flow/fold.ts';
import { type ErrorRecord, rootCause } from '../../schemas/errors.ts';
import { NodesReply, type RosterNode } from '../../schemas/node.ts';
import type { Flow, FlowStatus } from '../../schemas/flow.ts';
import type { LogLines } from '../../schemas/job.ts';
import { errorLines, refusalAdvice } from './failure.ts';
import { durationText, screen } from './output.ts';
import { type Mood, type Progress, type Screen, visible } from './screen.ts';
import type { Session } from './session.ts';

const TOLD_SINGLY_MAX = 60;
const FAILURES_TOLD_MAX = 20;
const PROGRESS_EVERY_MS = 1000;
const LABEL = 11;

export const told = (label: string, text: string): string =>
  `${label.padEnd(LABEL)} ${visible(text)}`;

/** Names of nodes for people, by address in either form; one the roster does not know stays an address. */
export class NodeNames {
  readonly #names = new Map<string, string>();

  static async of(session: Session): Promise<NodeNames> {
    const names = new NodeNames();
    // Names are a comfort: without a roster the addresses must do.
    for (const node of await allNodes(session).catch(() => [])) {
      names.#names.set(addressText(node.address), node.name);
    }
    return names;
  }

  of(address: string): string {
    const shown = addressText(address);
    const name = this.#names.get(shown);
    return name === undefined ? shown : `${name} (${shown})`;
  }

  /** The name alone where no other node has it. */
  short(address: string): string {
    const name = this.#names.get(addressText(address));
    const same = [...this.#names.values()].filter((each) => each === name).length;
    return name !== undefined && same === 1 ? name : this.of(address);
  }
}

export async function allNodes(session: Session): Promise<RosterNode[]> {
  const nodes: RosterNode[] = [];
  let after: string | null = null;
  do {
    const page: { nodes: RosterNode[]; next: string | null } = NodesReply.parse(
      await session.ask('nodes', { after, limit: 500 }),
    );
    nodes.push(...page.nodes);
    after = page.next;
  } while (after !== null);
  return nodes;
}

/** How far the script says it is. */
type Said = { done: number; total: number; text: string };

export class Narrator {
  readonly #names: NodeNames;
  readonly #screen: Screen;
  readonly #told = new Map<number, string>();
  #failuresTold = 0;
  #jobsAt = Number.NEGATIVE_INFINITY;
  #saidAt = Number.NEGATIVE_INFINITY;
  #said: Said | undefined;
  #state: FlowState | undefined;
  #held: (() => void)[] | undefined;

  constructor(names: NodeNames, on: Screen = screen) {
    this.#names = names;
    this.#screen = on;
  }

  /** Tells nothing until `release`: what is in the log already comes after the news that it was published. */
  hold(): void {
    this.#held = [];
  }

  /** `forget`: what stood in the log before is no news. */
  release(forget: boolean): void {
    const held = forget ? [] : (this.#held ?? []);
    this.#held = undefined;
    for (const tell of held) tell();
  }

  /** The last line goes; what comes now is the summary. */
  end(): void {
    this.#held = undefined;
    this.#screen.progress(undefined);
  }

  /** What the script itself logs, and how far it says it is. */
  noted({ lines }: LogLines): void {
    if (this.#held !== undefined) {
      this.#held.push(() => this.noted({ v: 1, inc: '', lines }));
      return;
    }
    for (const { stream, line } of lines) {
      const said = stream === 'progress' ? parseProgress(line) : undefined;
      if (said === undefined) this.#say('script', line);
      else this.#progressed(said);
    }
  }

  changed(state: FlowState, changes: readonly Change[], entry: Entry): void {
    if (this.#held !== undefined) {
      this.#held.push(() => this.changed(state, changes, entry));
      return;
    }
    this.#state = state;
    for (const change of changes) {
      switch (change.type) {
        case 'deployed':
          this.#say('received', new Date(entry.at).toISOString());
          break;
        case 'assigned':
          this.#assigned(state);
          break;
        case 'commanded':
          this.#commanded(state);
          break;
        case 'job':
        case 'jobEnded':
          this.#job(state, state.jobs[change.n]);
          break;
        default:
      }
    }
    this.#drawProgress();
  }

  #say(label: string, text: string, mood?: Mood): void {
    const line = told(label, text);
    const painted = this.#screen.paint(line.slice(0, LABEL), mood);
    this.#screen.line(`${painted}${line.slice(LABEL)}`);
  }

  #assigned({ term, terms }: FlowState): void {
    if (term === null) return;
    const on = this.#names.of(term.node);
    if (terms > 1) this.#say('moved', `to ${on}: ${term.reason}`, 'warning');
    else this.#say('placed', `on ${on}`);
  }

  #commanded({ commands }: FlowState): void {
    const command = commands.at(-1);
    if (command === undefined) return;
    const what = command.job === null ? '' : `of job ${command.job} `;
    const reason = command.reason === null ? '' : `: ${command.reason}`;
    this.#say(command.verb, `${what}asked by ${command.by.join(', ')}${reason}`, 'warning');
  }

  #job(state: FlowState, job: JobState | undefined): void {
    if (job === undefined) return;
    const now = `${job.status} ${job.attempt} ${job.retryAt} ${job.unplaced}`;
    if (this.#told.get(job.n) === now) return;
    this.#told.set(job.n, now);
    const failed = job.retryAt !== null || (isJobEnded(job) && job.status !== 'completed');
    const many = state.jobs.length > TOLD_SINGLY_MAX;
    if (many) this.#countJobs(state);
    if (failed && this.#failuresTold++ >= FAILURES_TOLD_MAX) return;
    if (many && !failed) return;
    const text = this.#jobText(job);
    if (text !== undefined) this.#say(`job ${job.n}`, `${job.spec.name} ${text}`, moodOf(job));
  }

  #jobText(job: JobState): string | undefined {
    const why = job.error === null ? '' : `: ${causeText(job.error)}`;
    if (job.retryAt !== null) {
      const left = job.spec.retries + 1 - job.failures;
      const tries = left === 1 ? 'once more' : `${left} times more at most`;
      return `failed${why}; is tried ${tries}`;
    }
    const again = job.attempt > 1 ? ` (attempt ${job.attempt})` : '';
    switch (job.status) {
      case 'running':
        return `runs on ${job.node === null ? 'no node' : this.#names.short(job.node)}${again}`;
      case 'unplaced':
        return job.unplaced === null ? undefined : `waits for a node: ${job.unplaced}`;
      case 'completed':
        return `completed${took(job)}${again}`;
      case 'failed':
      case 'timeout':
      case 'cancelled':
        return `${job.status}${took(job)}${again}${why}`;
      default:
        return undefined;
    }
  }

  /** Where no bar says it. */
  #countJobs(state: FlowState): void {
    const now = performance.now();
    if (this.#screen.live || now - this.#jobsAt < PROGRESS_EVERY_MS) return;
    this.#jobsAt = now;
    const { total, ended, running } = counted(state);
    this.#say('jobs', `${ended} of ${total} ended, ${running} running`);
  }

  #progressed(said: Said): void {
    this.#said = said;
    if (this.#screen.live) return this.#drawProgress();
    const now = performance.now();
    const last = said.done >= said.total;
    if (!last && now - this.#saidAt < PROGRESS_EVERY_MS) return;
    this.#saidAt = now;
    this.#say('progress', sayProgress(said));
  }

  #drawProgress(): void {
    this.#screen.progress(() => this.#bar());
  }

  /** The script's own count where it gives one, else that of its jobs. */
  #bar(): Progress | undefined {
    if (this.#state === undefined || this.#state.end !== null) return undefined;
    const { total, ended, running, failed } = counted(this.#state);
    if (total === 0 && this.#said === undefined) return undefined;
    const jobs = [`${ended} of ${count(total)}`, `${running} running`];
    if (failed > 0) jobs.push(`${failed} failed`);
    const said = this.#said === undefined ? [] : [sayProgress(this.#said)];
    const { done, total: whole } = this.#said ?? { done: ended, total };
    return { done, total: whole, text: [...said, jobs.join(', ')].join(' · ') };
  }
}

function counted({ jobs }: FlowState) {
  let [ended, running, failed] = [0, 0, 0];
  for (const job of jobs) {
    if (isJobEnded(job)) ended += 1;
    if (job.status === 'running') running += 1;
    if (job.status === 'failed' || job.status === 'timeout') failed += 1;
  }
  return { total: jobs.length, ended, running, failed };
}

/** `<done>/<total> <text>`, as `progress` of a script writes it. */
function parseProgress(line: string): Said | undefined {
  const match = /^(\d+)\/(\d+)(?: (.*))?$/s.exec(line);
  if (match === null) return undefined;
  const total = Number(match[2]);
  return total === 0 ? undefined : { done: Number(match[1]), total, text: match[3] ?? '' };
}

const sayProgress = ({ done, total, text }: Said): string => `${done}/${total} ${text}`.trimEnd();

function moodOf({ status, retryAt }: JobState): Mood | undefined {
  if (retryAt !== null || status === 'cancelled' || status === 'unplaced') return 'warning';
  if (status === 'completed') return 'good';
  return status === 'failed' || status === 'timeout' ? 'bad' : undefined;
}

const took = ({ begunAt, endedAt }: JobState): string =>
  begunAt === null || endedAt === null ? '' : ` after ${durationText(endedAt - begunAt)}`;

/** What failed and, where it differs, what lies at its root. */
function causeText(error: ErrorRecord): string {
  const root = rootCause(error);
  return root === error ? error.message : `${error.message}: ${root.message}`;
}

const count = (jobs: number): string => (jobs === 1 ? '1 job' : `${jobs} jobs`);

const SUMMARY_MOODS: { [status in FlowStatus]?: Mood } = {
  completed: 'good',
  failed: 'bad',
  refused: 'bad',
  cancelled: 'warning',
};

/** The last lines: how it ended, how many jobs it took, what went wrong. */
export function summary(flow: Flow): string[] {
  const counts = new Map<string, number>();
  for (const { status } of flow.jobs) counts.set(status, (counts.get(status) ?? 0) + 1);
  const retried = flow.jobs.filter(({ attempt }) => attempt > 1).length;
  const parts = [...counts].map(([status, count]) => `${count} ${status}`);
  if (retried > 0) parts.push(`${retried} tried more than once`);
  const ms =
    flow.created_at === null || flow.ended_at === null
      ? undefined
      : Date.parse(flow.ended_at) - Date.parse(flow.created_at);
  const after = ms === undefined ? '' : ` after ${durationText(ms)}`;
  const jobs = flow.jobs.length === 0 ? '' : `, ${count(flow.jobs.length)}: ${parts.join(', ')}`;
  const first = told(flow.status, `${flow.flow}${after}${jobs}`);
  const mood = SUMMARY_MOODS[flow.status];
  const lines = [`${screen.paint(first.slice(0, LABEL), mood)}${first.slice(LABEL)}`];
  if (flow.error !== null) {
    const advice = flow.status === 'refused' ? refusalAdvice(flow.error) : [];
    lines.push(...[...errorLines(flow.error), ...advice].map((line) => `  ${line}`));
  }
  return lines;
}
