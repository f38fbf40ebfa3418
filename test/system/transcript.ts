/**
 * A document's console blocks as a test reads them: what is typed, what is printed, and whether it was.
 *
 * The rule, as docs/tutorial.md states it: a line that begins with `$ ` is typed, the others are printed, in
 * this order and with nothing between; `…` stands for what is left out, lines or a part of one. Blanks count as one. What differs with
 * every run is that of one run: keys, flow ids, addresses, ports and process ids are bound at first sight and
 * have to be the same again wherever the document repeats them, numbers of jobs so within a section; the
 * name of the user, times, durations, counts of retries and places in the log may be any.
 */

/** A fenced block: `rhai` blocks are files, named in their first line; `console` blocks may name a terminal. */
export type Block = { language: string; terminal: string; section: string; lines: string[] };

/** One command with what it prints; a block may begin with output of what its terminal still runs. */
export type Step = { command: string | null; printed: string[] };

export type Bindings = ReadonlyMap<string, string>;

type Kind = { name: string; where: string; any: string; bound: boolean };

const kind = (name: string, any: string, bound: boolean, where = any): Kind => ({
  name,
  where,
  any,
  bound,
});

const JOB = 'job';
const KINDS: readonly Kind[] = [
  kind('rest', '.*', false, '…'),
  kind('user', String.raw`\S+@\S+`, false, String.raw`(?<= as )\S+@\S+`),
  kind('time', String.raw`\d{4}-\d\d-\d\dT[\d:.]+Z`, false),
  kind('server', String.raw`nats://127\.0\.0\.1:\d+`, true),
  kind('principal', String.raw`\bU[A-Z2-7]{55}\b`, true),
  kind('address', String.raw`\b[0-9a-f]{1,4}(?::[0-9a-f]{1,4}){7}\b`, true),
  kind('flow', String.raw`\b[a-z2-7]{26}\b`, true),
  kind('pid', String.raw`\d+`, true, String.raw`(?<=\bpid |\bkill -9 )\d+`),
  kind('duration', String.raw`\b[\d.]+ (?:ms|s|min)\b`, false),
  kind('entry', String.raw`#\d+`, false),
  kind('pack', String.raw`\bp\d+\b`, false),
  kind('retries', String.raw`\d+`, false, String.raw`\d+(?= tried more)`),
  kind(JOB, String.raw`\d+`, true, String.raw`(?<=^|\bjob |\bpart-|[a-z2-7]{26}\.)\d+`),
];
const VARYING = new RegExp(KINDS.map(({ where }) => `(${where})`).join('|'), 'g');
export const LEFT_OUT = '…';

export function blocksOf(markdown: string): Block[] {
  const blocks: Block[] = [];
  let section = '';
  let open: Block | undefined;
  for (const line of markdown.split('\n')) {
    const fence = /^```(\S*) *(\S*)$/.exec(line);
    if (fence !== null && open === undefined) {
      const [, language = '', terminal = ''] = fence;
      open = { language, terminal, section, lines: [] };
    } else if (fence !== null && open !== undefined) {
      blocks.push(open);
      open = undefined;
    } else if (open !== undefined) open.lines.push(line);
    else if (line.startsWith('#')) section = line;
  }
  return blocks;
}

export function stepsOf({ lines }: Block): Step[] {
  const steps: Step[] = [];
  for (const line of lines) {
    if (line.startsWith('$ ')) steps.push({ command: line.slice(2), printed: [] });
    else {
      if (steps.length === 0) steps.push({ command: null, printed: [] });
      steps.at(-1)?.printed.push(line);
    }
  }
  return steps;
}

type Part = { text: string; kind: Kind | undefined };

/** The line in pieces: what stays as it is, and what differs with every run. */
function partsOf(line: string): Part[] {
  const parts: Part[] = [];
  let from = 0;
  for (const match of line.matchAll(VARYING)) {
    parts.push({ text: line.slice(from, match.index), kind: undefined });
    const which = match.slice(1).findIndex((group) => group !== undefined);
    parts.push({ text: match[0], kind: KINDS[which] });
    from = match.index + match[0].length;
  }
  parts.push({ text: line.slice(from), kind: undefined });
  return parts;
}

/** The document's command with what this run has in the place of what the document shows. */
export function commandOf(command: string, bindings: Bindings): string {
  return partsOf(command)
    .map(({ text, kind }) => bindings.get(`${kind?.name} ${text}`) ?? text)
    .join('');
}

/** The bindings for another section: the numbers of jobs are forgotten. */
export function withoutJobs(bindings: Bindings): Bindings {
  return new Map([...bindings].filter(([key]) => !key.startsWith(`${JOB} `)));
}

const literal = (text: string): string =>
  text.replaceAll(/[.*+?^${}()|[\]\\]/g, String.raw`\$&`).replaceAll(/ +/g, ' +');

function matchLine(line: string, printed: string, bindings: Bindings): Bindings | undefined {
  const parts = partsOf(line);
  const pattern = parts
    .map(({ text, kind }) => (kind === undefined ? literal(text) : `(${kind.any})`))
    .join('');
  const match = new RegExp(`^${pattern}$`).exec(printed);
  if (match === null) return undefined;
  const bound = new Map(bindings);
  const varying = parts.filter((part) => part.kind !== undefined);
  for (const [n, { text, kind }] of varying.entries()) {
    if (kind?.bound !== true) continue;
    const key = `${kind.name} ${text}`;
    const value = match[n + 1] ?? '';
    const known = bound.get(key);
    if (known !== undefined && known !== value) return undefined;
    bound.set(key, value);
  }
  return bound;
}

export type Matched = { bindings: Bindings; end: number };

/**
 * Looks for the document's lines at the beginning of what was printed; `end` is where they end there. Unless
 * `more` may come, they have to be all of it.
 */
export function matchLines(
  lines: readonly string[],
  printed: readonly string[],
  bindings: Bindings,
  more: boolean,
): Matched | undefined {
  const from = (at: number, end: number, known: Bindings): Matched | undefined => {
    const line = lines[at];
    if (line === undefined) {
      return more || end === printed.length ? { bindings: known, end } : undefined;
    }
    if (line.trim() === LEFT_OUT) {
      for (let next = end; next <= printed.length; next++) {
        const found = from(at + 1, next, known);
        if (found !== undefined) return found;
      }
      return undefined;
    }
    const text = printed[end];
    const bound = text === undefined ? undefined : matchLine(line, text, known);
    return bound === undefined ? undefined : from(at + 1, end + 1, bound);
  };
  return from(0, 0, bindings);
}
