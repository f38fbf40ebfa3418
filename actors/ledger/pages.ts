/** Long lists in pages: a reply of the bus is at most 1 MiB. */
import type { PageRequest } from '../../schemas/ledger.ts';

/** One page of a list, in the order of its keys. */
export function pageOf<T>(
  all: readonly T[],
  keyOf: (item: T) => string,
  { after, limit }: PageRequest,
): { items: T[]; next: string | null } {
  const sorted = all
    .filter((item) => after === null || keyOf(item) > after)
    .sort((a, b) => (keyOf(a) < keyOf(b) ? -1 : 1));
  const items = sorted.slice(0, limit);
  const last = items.at(-1);
  return { items, next: last !== undefined && sorted.length > limit ? keyOf(last) : null };
}
