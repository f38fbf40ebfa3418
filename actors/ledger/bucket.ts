/** Reading a whole bucket into memory and keeping up with it. What the values mean is the reader's. */
import type { Kv, KvEntry, Subscription } from '../../bus/bus.ts';

/**
 * Resolves when every value stored by now was handed over; changes go on coming until stopped. A watch may
 * still be delivering when it is there, so what it has not brought yet is fetched.
 */
export async function followBucket(
  kv: Kv,
  onEntry: (key: string, entry: KvEntry | undefined) => void,
): Promise<Subscription> {
  const seen = new Set<string>();
  let loaded = false;
  const watch = await kv.watch((key, entry) => {
    if (!loaded) seen.add(key);
    onEntry(key, entry);
  });
  for (const key of await kv.list()) {
    if (!seen.has(key)) onEntry(key, await kv.get(key));
  }
  loaded = true;
  seen.clear();
  return watch;
}
