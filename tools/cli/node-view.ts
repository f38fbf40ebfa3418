/** One node in lines for people: what the roster sees of it, then how it is registered. */
import { drainReason } from '../../actors/roster/roster.ts';
import { addressText } from '../../schemas/ids.ts';
import type { PrincipalRecord } from '../../schemas/ledger.ts';
import type { RosterNode, RunnerReport } from '../../schemas/node.ts';
import { told } from './narrate.ts';

/** Either may be unknown: a node that waits for approval is not in the roster, and only admins see records. */
export function nodeLines(
  node: RosterNode | undefined,
  record: PrincipalRecord | undefined,
): string[] {
  const known = node ?? record;
  if (known === undefined) return [];
  return [
    told('node', known.name),
    told('address', addressText(known.address)),
    told('principal', known.principal),
    ...(node === undefined
      ? [told('state', 'not on the bus')]
      : seenLines(node, drainReason(record?.drain ?? null))),
    ...(record === undefined ? [] : registrationLines(record)),
  ];
}

/** `ordered`: what the registration says of a drain; it need not be said twice. */
function seenLines(node: RosterNode, ordered: string | null): string[] {
  const state = node.liveness === 'live' ? node.state : node.liveness;
  const because = node.reason === null || node.reason === ordered ? '' : `: ${node.reason}`;
  const [first, ...more] = node.runners.map(runnerText);
  return [
    told('state', `${state} since ${timeText(node.since_ms)}${because}`),
    told('last beat', timeText(node.beat_ms)),
    told('groups', node.groups.join(', ') || '-'),
    told('offers', node.offers.join(', ') || '-'),
    told('runners', first ?? '-'),
    ...more.map((runner) => told('', runner)),
    told('flows', String(node.flows)),
    ...refusedLines(node),
    told('machine', machineText(node)),
    told('version', node.version),
  ];
}

/** What could not be read and is not tried again: counted since each of them started. */
const refusedLines = ({ refused, runners }: RosterNode): string[] =>
  [refused, ...runners.map((runner) => runner.refused)].flatMap((each) =>
    each === undefined ? [] : [told('refused', `${each.count} messages; the last: ${each.last}`)],
  );

const runnerText = ({ runner, busy, slots, contexts }: RunnerReport): string =>
  `${runner}: ${busy} of ${slots} slots busy, for ${contexts.join(', ') || 'every context'}`;

function machineText({ cpus, memory_mib: mib, load1 }: RosterNode): string {
  const cores = cpus === 1 ? '1 cpu' : `${cpus} cpus`;
  return `${cores}, ${(mib / 1024).toFixed(1)} GiB of memory, load ${load1.toFixed(1)}`;
}

function registrationLines(record: PrincipalRecord): string[] {
  const { status, roles, drain } = record;
  const lines = [told(status, statusText(record)), told('roles', roles.join(', ') || '-')];
  if (drain === null || drain === undefined) return lines;
  const why = drain.reason === null ? '' : `: ${drain.reason}`;
  return [...lines, told('drained', `${timeText(drain.at_ms)} by ${drain.by}${why}`)];
}

function statusText({ status, created_ms: createdMs, by, name }: PrincipalRecord): string {
  const since = timeText(createdMs);
  switch (status) {
    case 'pending':
      return `since ${since}; let it in with \`herobus node approve ${name}\``;
    case 'revoked':
      return `by ${by}; had asked to be let in ${since}`;
    case 'registered':
      return `since ${since}, ${LET_IN[by] ?? `by ${by}`}`;
  }
}

/** Who let it in, where that was nobody with a key. */
const LET_IN: { [by: string]: string } = {
  bootstrap: 'it made the ledger',
  open: 'while the ledger was open',
  token: 'by a token',
};

const timeText = (ms: number): string => new Date(ms).toISOString();
