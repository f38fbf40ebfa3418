/** Measuring: time by the monotonic clock, processor time of whole process trees, medians, percentiles. */
import { readFileSync } from 'node:fs';

/** Jiffies of /proc: 100 a second on every Linux that Node runs on. */
const TICKS_PER_SECOND = 100;

/** One measurement: named figures. */
export type Sample = Record<string, number>;

export function percentile(values: readonly number[], share: number): number {
  const sorted = values.toSorted((a, b) => a - b);
  return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))] ?? Number.NaN;
}

export function median(values: readonly number[]): number {
  const sorted = values.toSorted((a, b) => a - b);
  const middle = sorted.length / 2;
  const upper = sorted[Math.floor(middle)] ?? Number.NaN;
  return Number.isInteger(middle) ? ((sorted[middle - 1] ?? upper) + upper) / 2 : upper;
}

/** The median of each figure over several samples. */
export function medians(samples: readonly Sample[]): Sample {
  const names = [...new Set(samples.flatMap((sample) => Object.keys(sample)))];
  return Object.fromEntries(
    names.map((name) => [name, median(samples.flatMap((sample) => sample[name] ?? []))]),
  );
}

/** How long something took, and the processor seconds it cost: in these process trees and in this process. */
export async function timed(
  roots: readonly number[],
  act: () => Promise<void>,
): Promise<{ seconds: number; cpuSeconds: number }> {
  const cpuBefore = treeCpuSeconds(roots) + ownCpuSeconds();
  const before = performance.now();
  await act();
  const seconds = (performance.now() - before) / 1000;
  return { seconds, cpuSeconds: treeCpuSeconds(roots) + ownCpuSeconds() - cpuBefore };
}

function ownCpuSeconds(): number {
  const { user, system } = process.cpuUsage();
  return (user + system) / 1e6;
}

function treeCpuSeconds(roots: readonly number[]): number {
  return processTree(roots).reduce((sum, pid) => sum + processCpuSeconds(pid), 0);
}

/** These processes, and all that they started. */
export function processTree(roots: readonly number[]): number[] {
  return roots.flatMap((pid) => [pid, ...processTree(childrenOf(pid))]);
}

function childrenOf(pid: number): number[] {
  const text = readProc(`/proc/${pid}/task/${pid}/children`);
  return text
    .split(' ')
    .filter((child) => child !== '')
    .map(Number);
}

function processCpuSeconds(pid: number): number {
  // The name, in brackets, may hold blanks: the fields are counted from its end.
  const fields = readProc(`/proc/${pid}/stat`)
    .replace(/^.*\) /s, '')
    .split(' ');
  return (Number(fields[11] ?? 0) + Number(fields[12] ?? 0)) / TICKS_PER_SECOND;
}

function readProc(path: string): string {
  try {
    return readFileSync(path, 'utf8');
  } catch {
    return '';
  }
}

/** Does all items, at most `window` at a time, in their order. */
export async function inWindow<T>(
  items: readonly T[],
  window: number,
  act: (item: T) => Promise<unknown>,
): Promise<void> {
  let next = 0;
  const lane = async (): Promise<void> => {
    while (next < items.length) await act(items[next++] as T);
  };
  await Promise.all(Array.from({ length: Math.min(window, items.length) }, lane));
}

/** Begins one item each 1/rate s, whatever becomes of those before; resolves when the last has begun. */
export async function openLoop(
  count: number,
  perSecond: number,
  begin: (index: number, dueMs: number) => void,
): Promise<void> {
  const start = performance.now();
  for (let i = 0; i < count; ) {
    const dueMs = start + (i * 1000) / perSecond;
    const early = dueMs - performance.now();
    if (early > 0) await new Promise((resolve) => setTimeout(resolve, early));
    else begin(i++, dueMs);
  }
}
