/**
 * why: what is known of a flow -> the chain of causes of its state, or of one job's. Pure.
 *
 * From the nearest cause to the farthest: what keeps it where it is now (a node, a job before it, a back-off,
 * a command), then how it came there, newest first. Each fact names its source: an entry of the log, a node
 * of the roster, a policy, or the ledger. What happened is told by `chronicle.ts`; what is true now is the
 * fold's. Fetching either is for who asks.
 */
import { type ErrorRecord, rootCause } from '../../schemas/errors.ts';
import type { FlowStatus } from '../../schemas/flow.ts';
import type { JobStatus } from '../../schemas/job.ts';
import type { RosterNode } from '../../schemas/node.ts';
import { type Chronicle, type Fact, iso, type NameOf } from './chronicle.ts';
import type { FlowState, JobState } from './fold.ts';
import { flowStatus } from './show.ts';

export type Why = { state: FlowStatus | JobStatus; because: Fact[] };

export type Known = {
  context: string;
  state: FlowState;
  chronicle: Chronicle;
  roster: readonly RosterNode[];
  nameOf: NameOf;
  /** Why no node has the flow, as the ledger keeps it beside the open flow; null where nobody said. */
  unplaced: string | null;
  /** Bus time, epoch ms. */
  nowMs: number;
};

const BECAUSE_MAX = 40;
/** How many jobs a flow's state is explained by, and how far along `after` a job's is. */
const JOBS_TOLD_MAX = 5;
const DEPTH_MAX = 4;

export function whyFlow(known: Known): Why {
  const status = flowStatus(known.state);
  const unplaced = status === 'placing' && known.unplaced !== null;
  return {
    state: unplaced ? 'unplaced' : status,
    because: tidy([
      ...presentOfFlow(known, status),
      ...[...known.chronicle.flow].reverse(),
      { fact: `it is a flow of context ${known.context}`, source: `ledger ${known.context}` },
    ]),
  };
}

/** Undefined when the flow has no such job. */
export function whyJob(known: Known, n: number): Why | undefined {
  const job = known.state.jobs[n];
  if (job === undefined) return undefined;
  return { state: job.status, because: tidy(causesOfJob(known, job, 0)) };
}

function causesOfJob(known: Known, job: JobState, depth: number): Fact[] {
  return [
    ...presentOfJob(known, job, depth),
    ...[...known.chronicle.job(job.n)].reverse(),
    ...(job.endedSeq === null ? aboutFlow(known) : []),
  ];
}

/** What of the flow itself holds its open jobs up. */
function aboutFlow({ state, chronicle, roster, nameOf }: Known): Fact[] {
  const facts: Fact[] = [];
  if (state.end === null && state.cancelled !== null)
    facts.push(...commandsOf(chronicle, 'cancel'));
  if (state.end === null && state.paused) facts.push(...commandsOf(chronicle, 'pause'));
  if (state.end === null && state.term !== null) {
    facts.push(...trouble(roster, nameOf, state.term.node, 'its supervisor '));
  }
  return facts;
}

const commandsOf = (chronicle: Chronicle, verb: string): Fact[] =>
  chronicle.flow.filter(({ source }) => source.endsWith(` ${verb}`)).slice(-1);

function presentOfFlow(known: Known, status: string): Fact[] {
  const { state, chronicle, unplaced } = known;
  switch (status) {
    case 'placing':
      if (unplaced === null) {
        return [{ fact: 'a coord is choosing a node for it', source: chronicle.last }];
      }
      return [...perNode(unplaced, 'ledger open_flows'), ...notLive(known)];
    case 'running':
    case 'paused':
    case 'cancelling':
      return [...aboutFlow(known), ...openJobs(known)];
    case 'failed':
    case 'refused':
    case 'cancelled':
    case 'completed':
      return endOfFlow(known, state);
    default:
      return [{ fact: 'no coord has taken it in yet', source: 'ledger HB_DEPLOY' }];
  }
}

/** The end with its chain of errors, and the job that was at the root of it. */
function endOfFlow(known: Known, { end }: FlowState): Fact[] {
  const { chronicle, state } = known;
  const told = chronicle.flow.findLast(({ fact }) => fact.startsWith('ended ')) ?? {
    fact: `ended ${end?.status ?? ''}`,
    source: end === null ? chronicle.last : `log #${end.seq} cancel`,
  };
  const facts = [told, ...errorChain(known, end?.error ?? null, told.source)];
  if (end?.status === 'cancelled') facts.push(...commandsOf(chronicle, 'cancel'));
  const culprit = culpritOf(state);
  if (culprit !== undefined) facts.push(...aboutJob(known, culprit, 0));
  return facts;
}

/** The job whose error the flow's error carries; the first that failed where none is carried. */
function culpritOf({ end, jobs }: FlowState): JobState | undefined {
  if (end === null || end.status !== 'failed' || end.error === null) return undefined;
  const root = rootCause(end.error).message;
  const failed = jobs.filter(
    ({ status, endedBy }) => status !== 'completed' && endedBy !== 'end' && endedBy !== null,
  );
  return (
    failed.find(({ error }) => error !== null && rootCause(error).message === root) ??
    failed.find(({ status }) => status === 'failed' || status === 'timeout')
  );
}

/** The facts of a job, told of it by its name. */
function aboutJob(known: Known, job: JobState, depth: number): Fact[] {
  return causesOfJob(known, job, depth).map(({ fact, source }) => ({
    fact: `${nameOfJob(job)}: ${fact}`,
    source,
  }));
}

const nameOfJob = ({ n, spec }: JobState): string => `job ${n} (${spec.name})`;

function openJobs(known: Known): Fact[] {
  const { state, chronicle } = known;
  const open = state.jobs.filter(({ endedSeq }) => endedSeq === null);
  if (open.length === 0) return [{ fact: 'its script has no open job', source: chronicle.last }];
  const counts = new Map<string, number>();
  for (const { status } of open) counts.set(status, (counts.get(status) ?? 0) + 1);
  const parts = [...counts].map(([status, count]) => `${count} ${status}`);
  const ended = state.jobs.length - open.length;
  const summary = {
    fact: `waits for ${open.length} of ${state.jobs.length} jobs: ${parts.join(', ')}; ${ended} ended`,
    source: chronicle.last,
  };
  // What is stuck says more than what goes on.
  const told = [...open].sort((a, b) => urgency(a) - urgency(b)).slice(0, JOBS_TOLD_MAX);
  return [
    summary,
    ...told.map((job) => aboutJob(known, job, 1)[0]).filter((fact) => fact !== undefined),
  ];
}

function urgency({ status, unplaced, retryAt }: JobState): number {
  if (status === 'unplaced' && unplaced !== null) return 0;
  if (retryAt !== null) return 1;
  return status === 'running' ? 2 : status === 'pending' ? 3 : 4;
}

function presentOfJob(known: Known, job: JobState, depth: number): Fact[] {
  const last = known.chronicle.job(job.n).at(-1)?.source ?? known.chronicle.last;
  switch (job.status) {
    case 'waiting':
      return waitingFor(known, job, depth, last);
    case 'unplaced':
      return unplacedJob(known, job, last);
    case 'pending':
      return job.retryAt === null ? queuedJob(known, job, last) : backingOff(known, job, last);
    case 'running':
      return trouble(known.roster, known.nameOf, job.node, '');
    case 'completed':
      return [];
    case 'failed':
    case 'timeout':
    case 'cancelled':
      return endOfJob(known, job, depth, last);
  }
}

function waitingFor(known: Known, job: JobState, depth: number, last: string): Fact[] {
  const { state, chronicle } = known;
  const open = job.spec.after.flatMap((n) => {
    const other = state.jobs[n];
    return other === undefined || other.endedSeq === null ? [{ n, other }] : [];
  });
  const { delay_ms: delayMs } = job.spec;
  if (open.length === 0 && delayMs !== undefined) {
    const at = new Date(job.createdAt + delayMs).toISOString();
    return [{ fact: `its delay: it is not to run before ${at}`, source: last }];
  }
  if (open.length === 0) {
    return [{ fact: 'all it waits for has ended; it is planned next', source: last }];
  }
  return open.slice(0, JOBS_TOLD_MAX).flatMap(({ n, other }) => {
    if (other === undefined) return [{ fact: `waits for job ${n}`, source: last }];
    const source = chronicle.job(n).at(-1)?.source ?? last;
    const fact = { fact: `waits for ${nameOfJob(other)}, which is ${other.status}`, source };
    // A job waits for earlier ones only; whoever claims otherwise is not followed in circles.
    const deeper = depth < DEPTH_MAX && n < job.n ? aboutJob(known, other, depth + 1) : [];
    return [fact, ...deeper];
  });
}

function unplacedJob(known: Known, job: JobState, last: string): Fact[] {
  if (job.unplaced === null) {
    return [{ fact: 'its supervisor has not given it to a node yet', source: last }];
  }
  const said = known.chronicle.job(job.n).findLast(({ fact }) => fact.startsWith('no node fits'));
  const runnerless = known.roster
    .filter(({ liveness }) => liveness === 'live')
    .filter(({ runners }) => !runners.some((runner) => runner.class === job.spec.kind))
    .map(({ name }) => ({
      fact: `${name} runs no ${job.spec.kind} runner`,
      source: `roster ${name}`,
    }));
  return [...perNode(job.unplaced, said?.source ?? last), ...runnerless, ...notLive(known)];
}

function backingOff({ nowMs }: Known, job: JobState, last: string): Fact[] {
  const { retryAt, failures, spec } = job;
  const inMs = Math.max(0, (retryAt ?? 0) - nowMs);
  return [
    {
      fact: `is in back-off until ${iso(retryAt ?? 0)} (${(inMs / 1000).toFixed(1)} s from now): retry ${failures} of ${spec.retries}`,
      source: `policy retries=${spec.retries} backoff=${spec.backoff_ms}ms in line ${spec.line}`,
    },
    { fact: `attempt ${job.attempt} failed: ${rootText(job.error)}`, source: last },
  ];
}

function queuedJob({ state, roster, nameOf }: Known, job: JobState, last: string): Fact[] {
  const pack = state.packs[job.pack ?? ''];
  if (pack === undefined) return [];
  const node = nameOf(pack.node);
  const facts = trouble(roster, nameOf, pack.node, '');
  if (pack.state === 'void') {
    return [{ fact: 'is to be planned anew: its pack was withdrawn', source: last }, ...facts];
  }
  const said =
    pack.state === 'claimed'
      ? `waits for a free slot of ${pack.claim?.runner ?? 'a runner'} on ${node}, which has claimed it`
      : `waits on ${node} for a runner to claim it`;
  facts.unshift({ fact: said, source: last });
  const runners = roster.find(({ address }) => address === pack.node)?.runners ?? [];
  for (const { class: kind, runner, busy, slots } of runners) {
    if (kind !== pack.class) continue;
    facts.push({ fact: `${runner} on ${node} runs ${busy} of ${slots}`, source: `roster ${node}` });
  }
  return facts;
}

/** How an ended job ended, with the errors below; where its flow's end took it along, that end's cause. */
function endOfJob(known: Known, job: JobState, depth: number, last: string): Fact[] {
  const { chronicle, state, nameOf } = known;
  const ended = chronicle.job(job.n).at(-1);
  const facts: Fact[] = ended === undefined ? [] : [ended];
  facts.push(...errorChain(known, job.error, last));
  if (job.error?.code === 'outcome_unknown') {
    facts.push({
      fact: `the lease of what ran it on ${nameOf(job.node ?? '')} ended without a result`,
      source: `policy idempotent=${job.spec.idempotent} in line ${job.spec.line}`,
    });
  }
  if (job.endedBy === 'plan' && depth < DEPTH_MAX) {
    const before = job.spec.after
      .filter((n) => n < job.n)
      .map((n) => state.jobs[n])
      .find(
        (other) => other !== undefined && other.endedSeq !== null && other.status !== 'completed',
      );
    if (before !== undefined) facts.push(...aboutJob(known, before, depth + 1));
  }
  if (job.endedBy === 'end') {
    const { end } = state;
    const told = chronicle.flow.findLast(({ fact }) => fact.startsWith('ended '));
    if (told !== undefined) facts.push({ ...told, fact: `its flow ${told.fact}` });
    if (told !== undefined) facts.push(...errorChain(known, end?.error ?? null, told.source));
  }
  if (job.endedBy === 'command') facts.push(...commandsOf(chronicle, 'cancel'));
  return facts;
}

/** The causes below an error, one a fact; the error itself is told already. */
function errorChain({ nameOf }: Known, error: ErrorRecord | null, source: string): Fact[] {
  const facts: Fact[] = [];
  for (let each = error?.cause ?? null; each !== null; each = each.cause) {
    const node = each.node === null ? null : nameOf(each.node);
    const where = [each.actor, node].filter((part) => part !== null).join(' on ');
    const by = where === '' ? '' : ` (${where})`;
    facts.push({ fact: `its cause: ${each.message} [${each.code}]${by}`, source });
  }
  return facts;
}

const rootText = (error: ErrorRecord | null): string =>
  error === null ? 'no reason given' : rootCause(error).message;

/** `place` joins the reasons of all nodes into one text (place.ts, `explain`); here they part again. */
const perNode = (reasons: string, source: string): Fact[] =>
  reasons.split('; ').map((reason) => ({ fact: `no node fits: ${reason}`, source }));

function notLive({ roster }: Known): Fact[] {
  return roster.filter(({ liveness }) => liveness !== 'live').map(nodeTrouble);
}

/** Why the node something depends on is not well; nothing when it is. */
function trouble(
  roster: readonly RosterNode[],
  nameOf: NameOf,
  address: string | null,
  what: string,
): Fact[] {
  if (address === null) return [];
  const node = roster.find((each) => each.address === address);
  const name = nameOf(address);
  if (node === undefined) {
    return [{ fact: `${what}${name} is not in the roster`, source: 'roster' }];
  }
  if (node.liveness === 'live') return [];
  const { fact, source } = nodeTrouble(node);
  return [{ fact: `${what}${fact}`, source }];
}

const nodeTrouble = ({ name, liveness, reason }: RosterNode): Fact => ({
  fact: `${name} is ${liveness}${reason === null ? '' : `: ${reason}`}`,
  source: `roster ${name}`,
});

/** Each fact once, the nearest first. */
function tidy(facts: readonly Fact[]): Fact[] {
  const once = new Map(facts.map((fact) => [`${fact.source} ${fact.fact}`, fact]));
  return [...once.values()].slice(0, BECAUSE_MAX);
}
