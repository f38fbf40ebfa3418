/**
 * Where may this go? One pure function for coords (flows) and supervisors (jobs).
 *
 * A node fits when it is live and ready, matches the selector, offers what is needed and, for a job, has a
 * runner of its class that serves the context. Of those that fit the least loaded is taken. None fits: the
 * reason for each node is returned, so that `unplaced` can be explained.
 */
import { parseAddress } from '../../schemas/ids.ts';
import type { JobKind } from '../../schemas/job.ts';
import type { RosterNode } from '../../schemas/node.ts';
import { covers } from './authorise.ts';

export type Need = {
  /** Selector of INTERFACES 3, or null for any node. */
  on: string | null;
  capabilities: readonly string[];
  /** The runner class a job needs; null when a supervisor for a flow is sought. */
  class: JobKind | null;
  context: string;
};

/** Load beyond what the roster knows yet, by address: what the caller itself has under way there. */
export type Load = (address: string) => number;

export type Placed = { node: RosterNode } | { reasons: { node: string; reason: string }[] };

export function place(need: Need, roster: readonly RosterNode[], load: Load): Placed {
  const reasons: { node: string; reason: string }[] = [];
  let best: RosterNode | undefined;
  let bestLoad = Number.POSITIVE_INFINITY;
  for (const node of roster) {
    const reason = unfit(need, node);
    if (reason !== undefined) {
      reasons.push({ node: node.name, reason });
      continue;
    }
    const nodeLoad = load(node.address) / Math.max(1, slots(need, node));
    if (nodeLoad < bestLoad || (nodeLoad === bestLoad && node.address < (best?.address ?? ''))) {
      best = node;
      bestLoad = nodeLoad;
    }
  }
  return best === undefined ? { reasons } : { node: best };
}

/** All runners of the class a job needs, on all nodes that fit. */
export function runnersThatFit(need: Need, roster: readonly RosterNode[]): number {
  const nodes = roster.filter((node) => unfit(need, node) === undefined);
  return nodes.reduce((sum, node) => sum + runnersFor(need, node).length, 0);
}

/** The most jobs that one runner of a node begins at once. */
export function widestRunner(need: Need, node: RosterNode): number {
  return Math.max(1, ...runnersFor(need, node).map((runner) => runner.slots));
}

/** The reasons in one line for people. */
export function explain(reasons: { node: string; reason: string }[]): string {
  if (reasons.length === 0) return 'no node has joined';
  return reasons.map(({ node, reason }) => `${node}: ${reason}`).join('; ');
}

function unfit(need: Need, node: RosterNode): string | undefined {
  if (node.liveness !== 'live')
    return `is ${node.liveness}${node.reason ? ` (${node.reason})` : ''}`;
  if (node.state !== 'ready' && node.state !== 'saturated') return `is ${node.state}`;
  const mismatch = need.on === null ? undefined : mismatched(need.on, node);
  if (mismatch !== undefined) return mismatch;
  if (need.class !== null && runnersFor(need, node).length === 0) {
    return `runs no ${need.class} runner for ${need.context}`;
  }
  const missing = need.capabilities.find((capability) => !covers(node.offers, capability));
  return missing === undefined ? undefined : `does not offer ${missing}`;
}

const runnersFor = (need: Need, node: RosterNode) =>
  node.runners.filter(
    (runner) =>
      runner.class === need.class &&
      (runner.contexts.length === 0 || runner.contexts.includes(need.context)),
  );

const slots = (need: Need, node: RosterNode): number =>
  need.class === null
    ? node.cpus
    : runnersFor(need, node).reduce((sum, runner) => sum + runner.slots, 0);

/** Why a node does not match a selector, or undefined when it does. */
function mismatched(selector: string, node: RosterNode): string | undefined {
  for (const term of selector.split(',')) {
    const [key, value] = term.trim().split('=', 2);
    if (!selects(key ?? '', value ?? '', node)) return `does not match ${term.trim()}`;
  }
  return undefined;
}

function selects(key: string, value: string, node: RosterNode): boolean {
  switch (key) {
    case 'node':
      return node.address === parseAddress(value);
    case 'name':
      return node.name === value;
    case 'group':
      return node.groups.includes(value);
    case 'cap':
      return covers(node.offers, value);
    default:
      return false;
  }
}

/** Checks a selector's form; the message names the term that is wrong. */
export function selectorFault(selector: string): string | undefined {
  for (const term of selector.split(',')) {
    if (!/^\s*(node|name|group|cap)=[^=\s]+\s*$/.test(term)) {
      return `"${term.trim()}" is no selector term: use node=<address>, name=<n>, group=<g> or cap=<c>, joined by commas`;
    }
  }
  return undefined;
}
