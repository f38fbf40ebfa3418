/**
 * `npm run bench -- rhai`: how long the engine takes for the scripts of table.ts.
 *
 * Each script is compiled and run on a new engine once a round; the rounds go through all scripts in turn,
 * so that a disturbance meets one round of each and not all rounds of one. What is told is the median: the
 * engine as a process that has been up for a while. The first round, in which V8 has optimised nothing
 * yet, is told apart.
 *
 * HEROBUS_RHAI_NATIVE names a program that runs the Rhai file it is given: then each round runs that too,
 * and the ratio is to its time, less what it takes for an empty script. Without it the ratio is to the
 * figures of reference, which another machine made.
 */
import { spawnSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { Engine } from '../../../rhai/engine.ts';
import { debugText } from '../../../rhai/text.ts';
import { type Entry, TABLE } from './table.ts';

interface Times {
  readonly ours: number[];
  readonly native: number[];
}

interface Row {
  readonly name: string;
  readonly ms: number;
  readonly firstMs: number;
  readonly nativeMs?: number;
  readonly referenceMs: number;
  /** To the native time where it was measured, else to the reference. */
  readonly ratio: number;
}

const fileOf = ({ file }: Entry): string => join(import.meta.dirname, 'scripts', `${file}.rhai`);

function median(values: readonly number[]): number {
  const sorted = values.toSorted((a, b) => a - b);
  return sorted[sorted.length >> 1] ?? Number.NaN;
}

const rounded = (value: number, digits: number): number => Number(value.toFixed(digits));

/** Compiles and runs once: milliseconds. */
function ours(entry: Entry): number {
  const source = readFileSync(fileOf(entry), 'utf8');
  const start = performance.now();
  const engine = new Engine({ clock: () => performance.now() / 1000 });
  const outcome = engine.start(engine.compile(source)).run();
  const ms = performance.now() - start;
  const value = outcome.state === 'done' ? debugText(outcome.value) : outcome.state;
  if (value !== entry.value) throw new Error(`${entry.name}: ${value}, not ${entry.value}`);
  return ms;
}

/** Runs a file with the program of the original: milliseconds, its start-up included. */
function native(program: string, file: string): number {
  const start = performance.now();
  const { status, error, stderr } = spawnSync(program, [file], {
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  if (status === 0) return performance.now() - start;
  throw new Error(`${program} ${file}: ${error?.message ?? stderr.toString()}`);
}

/** What the program takes for a script that does nothing. */
function startUp(program: string, rounds: number): number {
  const folder = mkdtempSync(join(tmpdir(), 'herobus-bench-'));
  try {
    const empty = join(folder, 'empty.rhai');
    writeFileSync(empty, '');
    return median(Array.from({ length: rounds }, () => native(program, empty)));
  } finally {
    rmSync(folder, { recursive: true });
  }
}

function measure(entries: readonly Entry[], rounds: number, program: string | undefined): Row[] {
  const times = new Map<Entry, Times>(entries.map((each) => [each, { ours: [], native: [] }]));
  for (let round = 1; round <= rounds; round++) {
    for (const [entry, { ours: own, native: other }] of times) {
      own.push(ours(entry));
      if (program !== undefined) other.push(native(program, fileOf(entry)));
    }
    console.error(`bench: rhai: round ${round}/${rounds}`);
  }
  const before = program === undefined ? 0 : startUp(program, rounds);
  return [...times].map(([{ name, referenceMs }, { ours: own, native: other }]) => {
    const ms = median(own);
    const nativeMs = Math.max(median(other) - before, 0.1);
    return {
      name,
      ms: rounded(ms, 2),
      firstMs: rounded(own[0] ?? Number.NaN, 2),
      ...(program === undefined ? {} : { nativeMs: rounded(nativeMs, 2) }),
      referenceMs,
      ratio: rounded(ms / (program === undefined ? referenceMs : nativeMs), 3),
    };
  });
}

function geometricMean(ratios: readonly number[]): number {
  const sum = ratios.reduce((total, ratio) => total + Math.log(ratio), 0);
  return rounded(Math.exp(sum / ratios.length), 3);
}

function table(rows: readonly Row[], mean: number, program: string | undefined): string {
  const head = ['script', 'ms', 'first', 'native', 'reference', 'ratio'];
  const lines = rows.map((row) => [
    row.name,
    row.ms.toFixed(1),
    row.firstMs.toFixed(1),
    row.nativeMs?.toFixed(1) ?? '-',
    String(row.referenceMs),
    row.ratio.toFixed(2),
  ]);
  const widths = head.map((_, i) => Math.max(...[head, ...lines].map((l) => l[i]?.length ?? 0)));
  const text = [head, ...lines].map((line) =>
    line
      .map((cell, i) => (i === 0 ? cell.padEnd(widths[i] ?? 0) : cell.padStart(widths[i] ?? 0)))
      .join('  '),
  );
  const against =
    program === undefined
      ? 'the figures of reference, of another machine: set HEROBUS_RHAI_NATIVE to compare on this one'
      : `${program} on this machine, its start-up taken off`;
  const worst = rows.reduce((a, b) => (b.ratio > a.ratio ? b : a));
  return [
    ...text,
    `geometric mean ${mean.toFixed(2)}, worst ${worst.ratio.toFixed(2)} (${worst.name}); ratios to ${against}`,
  ].join('\n');
}

export async function run(argv: string[]): Promise<number> {
  const { values } = parseArgs({
    args: argv,
    options: {
      rounds: { type: 'string', default: '5' },
      only: { type: 'string' },
      json: { type: 'boolean', default: false },
    },
  });
  const rounds = Number(values.rounds);
  if (!Number.isInteger(rounds) || rounds < 1 || rounds > 1000) {
    throw new Error(`--rounds ${values.rounds}: a whole number from 1 on`);
  }
  const only = values.only?.split(',');
  const unknown = only?.find((file) => !TABLE.some((entry) => entry.file === file));
  if (unknown !== undefined) throw new Error(`there is no script ${unknown}`);
  const entries = TABLE.filter(({ file }) => only?.includes(file) ?? true);
  const program = process.env['HEROBUS_RHAI_NATIVE'];
  const rows = measure(entries, rounds, program);
  const mean = geometricMean(rows.map((row) => row.ratio));
  console.log(table(rows, mean, program));
  if (values.json) console.log(JSON.stringify({ rows, geometricMean: mean }));
  return 0;
}
