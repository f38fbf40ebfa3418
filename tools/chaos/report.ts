/** What a run of the chaos tells: figures for machines, tables for people. */
import type { Evidence } from './evidence.ts';
import { type Role, ROLES } from './cluster.ts';
import type { Faults } from './faults.ts';
import type { Verdict, Violation } from './judge.ts';

export type Figures = {
  kills: number;
  flows: number;
  jobs: number;
  lost: number;
  doubled: number;
  unended: number;
  seed: number;
  seconds: number;
};

export type Outcome = {
  seed: number;
  seconds: number;
  faults: Faults;
  evidence: readonly Evidence[];
  violations: readonly Violation[];
  /** Ends of processes that nobody brought about, by name. */
  ownEnds: ReadonlyMap<string, number>;
};

const sum = (counts: Record<Role, number>): number =>
  Object.values(counts).reduce((total, count) => total + count, 0);

export function figures({ seed, seconds, faults, evidence, violations }: Outcome): Figures {
  const count = (verdict: Verdict): number =>
    violations.filter((violation) => violation.verdict === verdict).length;
  return {
    kills: sum(faults.kills),
    flows: evidence.filter(({ submitted }) => submitted.accepted).length,
    jobs: evidence.reduce((total, { state }) => total + state.jobs.length, 0),
    lost: count('lost'),
    doubled: count('doubled'),
    unended: count('unended'),
    seed,
    seconds: Math.round(seconds),
  };
}

export function table(outcome: Outcome): string[] {
  const { faults, evidence, ownEnds } = outcome;
  const { lost, doubled, unended } = figures(outcome);
  const lines = ROLES.map((role) => [
    role,
    String(faults.kills[role]),
    String(faults.pauses[role]),
  ]);
  const states = evidence.map(({ state }) => state);
  const begun = evidence.reduce((total, each) => total + each.begun.size, 0);
  const results = evidence.reduce((total, each) => total + each.results.length, 0);
  const took = evidence
    .flatMap(({ submitted: { tookMs } }) => (tookMs === undefined ? [] : [tookMs / 1000]))
    .toSorted((a, b) => a - b);
  const at = (share: number): string => (took[Math.floor(share * took.length)] ?? 0).toFixed(1);
  const own = [...ownEnds].map(([name, count]) => `${name} ${count}`);
  return [
    ...aligned([
      ['', 'killed', 'stopped'],
      ...lines,
      ['in all', String(sum(faults.kills)), String(sum(faults.pauses))],
    ]),
    `flows: ${countsOf(states.map(({ end }) => end?.status ?? 'open'))}; moved ${
      states.filter(({ terms }) => terms > 1).length
    }; from publish to end p50 ${at(0.5)} s, p99 ${at(0.99)} s`,
    `jobs: ${countsOf(states.flatMap(({ jobs }) => jobs.map(({ status }) => status)))}`,
    `attempts: ${begun} begun, ${results} with a result, ${begun - results} lost`,
    `ended by themselves: ${own.join(', ') || 'none'}`,
    `lost ${lost}, doubled ${doubled}, unended ${unended}`,
  ];
}

function countsOf(names: readonly string[]): string {
  const counts = new Map<string, number>();
  for (const name of names) counts.set(name, (counts.get(name) ?? 0) + 1);
  return [...counts].map(([name, count]) => `${count} ${name}`).join(', ');
}

function aligned(rows: readonly string[][]): string[] {
  const width = (column: number): number =>
    Math.max(...rows.map((row) => (row[column] ?? '').length));
  return rows.map(([first = '', ...rest]) =>
    [first.padEnd(width(0)), ...rest.map((cell, i) => cell.padStart(width(i + 1)))].join('  '),
  );
}
