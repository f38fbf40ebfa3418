/**
 * What a flow leaves behind: its log, the lines its processes wrote, and what it kept in the user's bucket.
 * They must tell the same story.
 */
import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { type Authority, emptyFlow, fold, type FlowState } from '../../actors/flow/fold.ts';
import { readIfThere } from '../../bus/atomic-file.ts';
import type { Bus, Entry } from '../../bus/bus.ts';
import { userBucket } from '../../bus/streams.ts';
import { ClaimEntry, RunEntry } from '../../schemas/flow.ts';
import { type FlowId, jobId } from '../../schemas/ids.ts';
import { CONTEXT, type Submitted } from './load.ts';

export type Evidence = {
  submitted: Submitted;
  entries: Entry[];
  state: FlowState;
  /** `<job> <attempt>` of everything the log says was begun, and of each result in it. */
  begun: Set<string>;
  results: string[];
  /** The same of everything that ran, as it told itself. */
  ran: string[];
  /** What the bucket holds, by key. */
  kept: Map<string, unknown>;
};

const READ_WITHIN_MS = 60_000;
const AGAIN_MS = 200;

export const attemptName = (flow: string, n: number, attempt: number): string =>
  `${jobId(flow, n)} ${attempt}`;

export async function gather(
  bus: Bus,
  submitted: Submitted,
  authority: Authority,
): Promise<Evidence> {
  const { flow, trace } = submitted;
  const entries = await patiently(() => readAll(bus, flow));
  const state = emptyFlow();
  for (const entry of entries) fold(state, entry, authority);
  const kept = new Map<string, unknown>();
  for (const { key } of submitted.script.counters) {
    const entry = await patiently(() => bus.kv(userBucket(bus.address)).get(key));
    kept.set(key, entry?.value);
  }
  const ran = ((await readIfThere(trace)) ?? '').split('\n').filter((line) => line !== '');
  return { submitted, entries, state, ...attemptsOf(flow, entries), ran, kept };
}

async function readAll(bus: Bus, flow: FlowId): Promise<Entry[]> {
  const entries: Entry[] = [];
  for await (const entry of bus.log.read({ context: CONTEXT, flow })) entries.push(entry);
  return entries;
}

/** The bus may just be coming back. */
async function patiently<T>(read: () => Promise<T>): Promise<T> {
  const untilMs = performance.now() + READ_WITHIN_MS;
  for (;;) {
    try {
      return await read();
    } catch (error) {
      if (performance.now() > untilMs) throw error;
      await delay(AGAIN_MS);
    }
  }
}

function attemptsOf(flow: string, entries: readonly Entry[]): Pick<Evidence, 'begun' | 'results'> {
  const begun = new Set<string>();
  const results: string[] = [];
  for (const { lane, body } of entries) {
    if (lane === 'main') continue;
    if (lane === 'claim') {
      const claim = ClaimEntry.parse(body);
      if (claim.type === 'void') continue;
      for (const { n, attempt } of claim.begun) begun.add(attemptName(flow, n, attempt));
      continue;
    }
    const run = RunEntry.parse(body);
    for (const { n, attempt } of run.begun) begun.add(attemptName(flow, n, attempt));
    for (const { n, attempt } of run.results) results.push(attemptName(flow, n, attempt));
  }
  return { begun, results };
}

/** The flow's log where people find it, an entry a line; returns its path. */
export async function writeLog(folder: string, { submitted, entries }: Evidence): Promise<string> {
  const path = join(folder, `${submitted.flow}.jsonl`);
  await writeFile(path, entries.map((entry) => `${JSON.stringify(entry)}\n`).join(''));
  await writeFile(`${path}.rhai`, await sourceOf(submitted));
  return path;
}

async function sourceOf({ script, trace }: Submitted): Promise<string> {
  const lines = await readFile(trace, 'utf8').catch(() => '');
  return `${script.source}\n\n// What ran:\n${lines.replaceAll(/^(?=.)/gm, '// ')}`;
}
