/** What was measured, as a table for people and as one JSON value for machines (INTERFACES 5). */
import { medians, type Sample } from './measure.ts';
import { DISPATCH_RATE } from './workloads.ts';

export type Row = {
  workload: string;
  system: string;
  /** Medians over the rounds; null where the system was not measured. */
  figures: Sample | null;
  rounds: Sample[];
  /** How many fsyncs it made while it was warmed up; null where nobody counted. */
  fsyncs: number | null;
  /** Why it was not measured. */
  missing: string | null;
};

export type Ratios = Record<(typeof RATIOS)[number], number | null>;
const RATIOS = [
  'jobs_fsync_vs_bullmq_always',
  'jobs_relaxed_vs_bullmq_everysec',
  'deploys_fsync_vs_raw',
  'dispatch_p50_vs_raw',
  'dispatch_p99_ms',
  'restate_p50',
  'restate_throughput',
] as const;

export function row(
  workload: string,
  system: string,
  rounds: Sample[],
  fsyncs: number | undefined,
): Row {
  const figures = medians(rounds);
  return { workload, system, figures, rounds, fsyncs: fsyncs ?? null, missing: null };
}

export function missingRow(workload: string, system: string, missing: string): Row {
  return { workload, system, figures: null, rounds: [], fsyncs: null, missing };
}

/** Ours by theirs, each of medians; null where one of the two is missing. */
export function ratiosOf(rows: readonly Row[]): Ratios {
  const figure = (workload: string, system: string, name: string): number | null => {
    const found = rows.find((each) => each.workload === workload && each.system === system);
    return found?.figures?.[name] ?? null;
  };
  const ratio = (workload: string, name: string, ours: string, theirs: string): number | null => {
    const [mine, other] = [figure(workload, ours, name), figure(workload, theirs, name)];
    return mine === null || other === null ? null : mine / other;
  };
  const dispatch = `rate-${DISPATCH_RATE}`;
  return {
    jobs_fsync_vs_bullmq_always: ratio('jobs', 'jobs/s', 'herobus fsync', 'BullMQ always'),
    jobs_relaxed_vs_bullmq_everysec: ratio('jobs', 'jobs/s', 'herobus relaxed', 'BullMQ everysec'),
    deploys_fsync_vs_raw: ratio('deploys', 'per s', 'herobus fsync', 'raw JetStream'),
    dispatch_p50_vs_raw: ratio(dispatch, 'dispatch p50 ms', 'herobus fsync', 'raw JetStream'),
    dispatch_p99_ms: figure(dispatch, 'herobus fsync', 'dispatch p99 ms'),
    restate_p50: ratio('steps', 'p50 ms', 'herobus fsync', 'Restate'),
    restate_throughput: ratio('steps', 'per s', 'herobus fsync', 'Restate'),
  };
}

export function table(rows: readonly Row[], ratios: Ratios): string {
  const lines = rows.map(({ workload, system, figures, fsyncs, missing }) => {
    const text =
      figures === null
        ? `not measured: ${missing ?? ''}`
        : Object.entries(figures)
            .map(([name, value]) => `${name} ${rounded(value)}`)
            .join('   ');
    const flushed = fsyncs === null ? '' : `   (fsyncs in the warm-up: ${fsyncs})`;
    return `${workload.padEnd(10)} ${system.padEnd(16)} ${text}${flushed}`;
  });
  const compared = RATIOS.map((name) => {
    const value = ratios[name];
    return `${name.padEnd(34)} ${value === null ? 'not measured' : rounded(value)}`;
  });
  return ['', ...lines, '', ...compared].join('\n');
}

function rounded(value: number): string {
  return value >= 1000 ? String(Math.round(value)) : value.toPrecision(3);
}
