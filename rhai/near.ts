/** Names that somebody may have meant: those that differ by little more than a slip of the finger. */

/** `toUpper`, `to_upper` and `TO_UPPER` are one and the same. */
const plain = (name: string): string => name.replaceAll('_', '').toLowerCase();

/** Edits (insert, remove, replace, swap neighbours) from one text to the other; `max` + 1 if more. */
function distance(a: string, b: string, max: number): number {
  if (Math.abs(a.length - b.length) > max) return max + 1;
  let before: number[] = [];
  let row = Array.from({ length: b.length + 1 }, (_, i) => i);
  for (let i = 1; i <= a.length; i++) {
    const next = [i];
    for (let k = 1; k <= b.length; k++) {
      const same = a[i - 1] === b[k - 1] ? 0 : 1;
      let least = Math.min(
        (row[k] as number) + 1,
        (next[k - 1] as number) + 1,
        (row[k - 1] as number) + same,
      );
      if (i > 1 && k > 1 && a[i - 1] === b[k - 2] && a[i - 2] === b[k - 1]) {
        least = Math.min(least, (before[k - 2] as number) + 1);
      }
      next.push(least);
    }
    if (Math.min(...next) > max) return max + 1;
    before = row;
    row = next;
  }
  return row[b.length] as number;
}

/** A name longer than this is no slip, and comparing it would take long. */
const LENGTH_MAX = 64;

/** At most three of the names, the likeliest first. */
export function nearNames(wanted: string, names: Iterable<string>): string[] {
  if (wanted.length > LENGTH_MAX) return [];
  const sought = plain(wanted);
  const max = sought.length < 6 ? 1 : 2;
  const found = new Map<string, number>();
  for (const name of names) {
    if (name === wanted || name.length > LENGTH_MAX) continue;
    const edits = distance(sought, plain(name), max);
    if (edits <= max && edits < sought.length) found.set(name, edits);
  }
  return [...found]
    .toSorted(([a, x], [b, y]) => x - y || (a < b ? -1 : 1))
    .slice(0, 3)
    .map(([name]) => name);
}

/** `a`, `b` or `c`, each in back-ticks. */
export function anyOf(names: readonly string[]): string {
  const quoted = names.map((name) => `\`${name}\``);
  const last = quoted.pop() ?? '';
  return quoted.length === 0 ? last : `${quoted.join(', ')} or ${last}`;
}
