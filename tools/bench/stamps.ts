/** What the probes in a node's processes wrote down: how long each job took from its publishing to its begin. */
import { readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';

/** Probes write every 200 ms. */
const SETTLE_MS = 500;

/** What loads a probe into every Node process of a node. */
export function probe(folder: string): { nodeOptions: string[]; env: Record<string, string> } {
  return {
    nodeOptions: ['--import', new URL('./probe.ts', import.meta.url).href],
    env: { HEROBUS_BENCH_STAMPS: folder },
  };
}

/** Milliseconds from publish to begin of the first jobs of these flows; a message sent again counts from its first. */
export async function dispatchTimes(folder: string, flows: readonly string[]): Promise<number[]> {
  await new Promise((resolve) => setTimeout(resolve, SETTLE_MS));
  const first = { published: new Map<string, bigint>(), begun: new Map<string, bigint>() };
  for (const file of await readdir(folder)) {
    for (const line of (await readFile(join(folder, file), 'utf8')).split('\n')) {
      const [what, job = '', atNs = '0'] = line.split(' ');
      if (what !== 'published' && what !== 'begun') continue;
      const known = first[what].get(job);
      const at = BigInt(atNs);
      if (known === undefined || at < known) first[what].set(job, at);
    }
  }
  return flows.flatMap((flow) => {
    const published = first.published.get(`${flow}.0`);
    const begun = first.begun.get(`${flow}.0`);
    return published === undefined || begun === undefined ? [] : [Number(begun - published) / 1e6];
  });
}
