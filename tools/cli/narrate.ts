/**
 * A flow told in plain lines on stderr while it goes on, and a calm summary at its end.
 *
 * Small flows are told job by job; of large ones only failures and, once a second, how far they are.
 */
import type { Entry } from '../../bus/bus.ts';
import { addressText } from '../../bus/identity.ts';
import { type Change, type FlowState, isJobEnded, type JobState } from '../../actors/flow/fold.ts';
import { type ErrorRecord, rootCause } from '../../schemas/errors.ts';
import { NodesReply, type RosterNode } from '../../schemas/node.ts';
import type { Flow } from '../../schemas/flow.ts';
import { errorLines } from './failure.ts';
import { durationText, say } from './output.ts';
import type { Session } from './session.ts';

const TOLD_SINGLY_MAX = 60;
const FAILURES_TOLD_MAX = 20;
const PROGRESS_EVERY_MS = 1000;
const LABEL = 11;

export const told = (label: string, text: string): string => `${label.padEnd(LABEL)} ${text}`;

/** Names of nodes for people; an address the roster does not know stays an address. */
export class NodeNames {
  readonly #names = new Map<string, string>();

  static async of(session: Session): Promise<NodeNames> {
    const names = new NodeNames();
    // Names are a comfort: without a roster the addresses must do.
    for (const node of await allNodes(session).catch(() => [])) {
      names.#names.set(node.address, node.name);
    }
    return names;
  }

  of(address: string): string {
    const name = this.#names.get(address);
    const shown = addressText(address);
    return name === undefined ? shown : `${name} (${shown})`;
  }

  /** The name alone where no other node has it. */
  short(address: string): string {
    const name = this.#names.get(address);
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

export class Narrator {
  readonly #names: NodeNames;
  readonly #told = new Map<number, string>();
  #failuresTold = 0;
  #progressAt = 0;
  #held: (() => void)[] | undefined;

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

  constructor(names: NodeNames) {
    this.#names = names;
  }

  changed(state: FlowState, changes: readonly Change[], entry: Entry): void {
    if (this.#held !== undefined) {
      this.#held.push(() => this.changed(state, changes, entry));
      return;
    }
    for (const change of changes) {
      switch (change.type) {
        case 'deployed':
          say(told('received', new Date(entry.at).toISOString()));
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
  }

  #assigned({ term, terms }: FlowState): void {
    if (term === null) return;
    const on = this.#names.of(term.node);
    say(terms > 1 ? told('moved', `to ${on}: ${term.reason}`) : told('placed', `on ${on}`));
  }

  #commanded({ commands }: FlowState): void {
    const command = commands.at(-1);
    if (command === undefined) return;
    const what = command.job === null ? '' : ` job ${command.job}`;
    const reason = command.reason === null ? '' : `: ${command.reason}`;
    say(told(command.verb, `asked${what} by ${command.by.join(', ')}${reason}`));
  }

  #job(state: FlowState, job: JobState | undefined): void {
    if (job === undefined) return;
    const now = `${job.status} ${job.attempt} ${job.retryAt} ${job.unplaced}`;
    if (this.#told.get(job.n) === now) return;
    this.#told.set(job.n, now);
    const failed = job.retryAt !== null || (isJobEnded(job) && job.status !== 'completed');
    const many = state.jobs.length > TOLD_SINGLY_MAX;
    if (many) this.#progress(state);
    if (failed && this.#failuresTold++ >= FAILURES_TOLD_MAX) return;
    if (many && !failed) return;
    const text = this.#jobText(job);
    if (text !== undefined) say(told(`job ${job.n}`, `${job.spec.name} ${text}`));
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

  #progress({ jobs }: FlowState): void {
    const now = performance.now();
    if (now - this.#progressAt < PROGRESS_EVERY_MS) return;
    this.#progressAt = now;
    const ended = jobs.filter(isJobEnded).length;
    const running = jobs.filter(({ status }) => status === 'running').length;
    say(told('jobs', `${ended} of ${jobs.length} ended, ${running} running`));
  }
}

const took = ({ begunAt, endedAt }: JobState): string =>
  begunAt === null || endedAt === null ? '' : ` after ${durationText(endedAt - begunAt)}`;

/** What failed and, where it differs, what lies at its root. */
function causeText(error: ErrorRecord): string {
  const root = rootCause(error);
  return root === error ? error.message : `${error.message}: ${root.message}`;
}

const count = (jobs: number): string => (jobs === 1 ? '1 job' : `${jobs} jobs`);

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
  const lines = [told(flow.status, `${flow.flow}${after}${jobs}`)];
  if (flow.error !== null) lines.push(...errorLines(flow.error).map((line) => `  ${line}`));
  return lines;
}
