/** Where output goes: results to stdout, all else to stderr; with --json one JSON value a line on stdout. */
import { once } from 'node:events';
import type { Command } from 'commander';
import type { Answer, AnswerName } from '../../schemas/answers.ts';
import { Screen } from './screen.ts';

export type Globals = { home?: string; server?: string; json?: boolean };

export function globals(command: Command): Globals {
  return command.optsWithGlobals<Globals>();
}

export const screen = new Screen(process.stderr, process.env);

export function say(line: string): void {
  screen.line(line);
}

export function print(line: string): void {
  process.stdout.write(`${line}\n`);
}

/** An answer of schemas/answers.ts as a line of JSON. */
export const jsonLine = <N extends AnswerName>(_name: N, value: Answer<N>): string =>
  `${JSON.stringify(value)}\n`;

export function printJson<N extends AnswerName>(name: N, value: Answer<N>): void {
  process.stdout.write(jsonLine(name, value));
}

/**
 * A list as one JSON value, of which memory holds one item. Where the items end early, what is written is
 * still JSON, and the failure comes as a line of its own after it.
 */
export async function printJsonList<N extends ListName>(
  name: N,
  items: AsyncIterable<Answer<N>[number]>,
): Promise<void> {
  let between = '[';
  try {
    for await (const item of items) {
      const text = `${between}${JSON.stringify(item)}`;
      between = ',';
      if (!process.stdout.write(text)) await once(process.stdout, 'drain');
    }
  } finally {
    process.stdout.write(between === '[' ? '[]\n' : ']\n');
  }
}
type ListName = { [N in AnswerName]: Answer<N> extends readonly unknown[] ? N : never }[AnswerName];

/** A value of a script as people read it: JSON, objects over several lines. */
export function valueText(value: unknown): string {
  return JSON.stringify(value ?? null, null, 2);
}

/** The least that is left of a last column, however narrow the terminal. */
const LAST_COLUMN_MIN = 24;

/** Rows under a heading, columns as wide as their widest cell; the last is cut so that a row fits into `columns`. */
export function table(
  heading: readonly string[],
  rows: readonly (readonly string[])[],
  columns = Number.POSITIVE_INFINITY,
): string {
  const widths = heading.map((name, column) =>
    Math.max(name.length, ...rows.map((row) => row[column]?.length ?? 0)),
  );
  const before = widths.slice(0, -1).reduce((sum, width) => sum + width + 2, 0);
  const room = Math.max(columns - before, LAST_COLUMN_MIN);
  return [heading, ...rows]
    .map((row) =>
      row
        .map((cell, column) =>
          column === heading.length - 1 ? cut(cell, room) : cell.padEnd(widths[column] ?? 0),
        )
        .join('  ')
        .trimEnd(),
    )
    .join('\n');
}

const cut = (text: string, length: number): string =>
  text.length > length ? `${text.slice(0, length - 1)}…` : text;

/** Principals by their first characters, for lines that people look over. */
export const shortPrincipals = (text: string): string =>
  text.replace(/\b(U[A-Z2-7]{7})[A-Z2-7]{48}\b/g, '$1…');

/** What a command is for, by example, under its options in `--help`. */
export function withExample(command: Command, ...examples: string[]): Command {
  const lines = examples.map((example) => `  $ ${example}`);
  return command.addHelpText(
    'after',
    `\nExample${lines.length > 1 ? 's' : ''}:\n${lines.join('\n')}`,
  );
}

const UNITS: readonly (readonly [number, string])[] = [
  [86_400_000, 'd'],
  [3_600_000, 'h'],
  [60_000, 'min'],
  [1000, 's'],
];

/** 1234 -> "1.2 s". */
export function durationText(ms: number): string {
  const [unitMs, unit] = UNITS.find(([size]) => ms >= size) ?? [1, 'ms'];
  const amount = ms / unitMs;
  return `${amount >= 100 || unitMs === 1 ? Math.round(amount) : amount.toFixed(1)} ${unit}`;
}
