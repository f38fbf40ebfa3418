/**
 * `npm run chaos -- [--kills N] [--seed S] [--json] [--keep]`: real processes under a steady load, killed and
 * stopped at drawn moments; then everything that was accepted must have ended, and nothing have run twice.
 *
 * 30 kills take about a minute, 1,000 about 40. On a violation the folder with all logs, traces and the
 * store is kept, and the flow and its evidence are named; the exit code is 1.
 */
import { mkdir, mkdtemp, rm } from 'node:fs/promises';
import { join, resolve } from 'node:path';
import { parseArgs } from 'node:util';
import { loadOrMakeKey } from '../actors/identity/key-file.ts';
import type { Bus } from '../bus/bus.ts';
import { Random } from '../bus/simulated/random.ts';
import { openClient } from './bench/herobus.ts';
import { type Cluster, startCluster } from './chaos/cluster.ts';
import type { Daemon } from './chaos/daemon.ts';
import { type Evidence, gather, writeLog } from './chaos/evidence.ts';
import { type Faults, inflict } from './chaos/faults.ts';
import { judge, type Violation } from './chaos/judge.ts';
import { Load } from './chaos/load.ts';
import { figures, type Outcome, table } from './chaos/report.ts';

type Options = {
  kills: number;
  seed: number;
  /** The folder stays, with the logs of all flows. */
  keep: boolean;
  say: (line: string) => void;
};

/** Inside the tree, where a copy of the product finds its packages. */
const FOLDERS = resolve(import.meta.dirname, '../.cache/chaos');
/** Leases, deaths and back-offs are seconds; what has not ended by then hangs. */
const DRAIN_WITHIN_MS = 120_000;

async function chaos(folder: string, daemons: Daemon[], options: Options): Promise<Outcome> {
  const { kills, seed, keep, say } = options;
  const started = performance.now();
  const random = new Random(seed);
  const [restarts, drawn, faulty] = [random.fork(), random.fork(), random.fork()];
  say(`chaos: ${kills} kills, seed ${seed}, in ${folder}`);
  const cluster = await startCluster({
    folder,
    random: restarts,
    onDaemon: (daemon) => daemons.push(daemon),
    say,
  });
  const { identity } = await loadOrMakeKey(cluster.home);
  const bus = await openClient(cluster.server, join(cluster.data, 'join.creds'), identity);
  try {
    const traces = join(folder, 'traces');
    await mkdir(traces);
    const load = new Load({ bus, identity, random: drawn, traces });
    const faults = await underLoad(load, () =>
      inflict(cluster, faulty, kills, say, () => load.entries),
    );
    say(`draining: ${load.flows.length} flows were published`);
    await load.drain(DRAIN_WITHIN_MS);
    const evidence = await evidenceOf(cluster, bus, load);
    const violations = evidence.flatMap(judge);
    if (keep) for (const each of evidence) await writeLog(folder, each);
    await tellViolations(folder, evidence, violations, say);
    const seconds = (performance.now() - started) / 1000;
    const ends = daemons.map(({ name, ownEnds }) => [name, ownEnds] as const);
    const ownEnds = new Map(ends.filter(([, count]) => count > 0));
    return { seed, seconds, faults, evidence, violations, ownEnds };
  } finally {
    await bus.close();
    await cluster.stop();
  }
}

async function underLoad(load: Load, act: () => Promise<Faults>): Promise<Faults> {
  const over = new AbortController();
  const running = load.run(over.signal);
  try {
    return await act();
  } finally {
    over.abort();
    await running;
  }
}

/** The nodes end first, so that nothing is written any more to what is read. */
async function evidenceOf(cluster: Cluster, bus: Bus, load: Load): Promise<Evidence[]> {
  await cluster.stopNodes();
  const authority = { isCoord: (address: string) => address === bus.address };
  const evidence: Evidence[] = [];
  for (const submitted of load.flows) evidence.push(await gather(bus, submitted, authority));
  return evidence;
}

async function tellViolations(
  folder: string,
  evidence: readonly Evidence[],
  violations: readonly Violation[],
  say: (line: string) => void,
): Promise<void> {
  for (const each of evidence) {
    const { flow, trace } = each.submitted;
    const own = violations.filter((violation) => violation.flow === flow);
    if (own.length === 0) continue;
    const log = await writeLog(folder, each);
    for (const { verdict, detail } of own) say(`${verdict}: flow ${flow}: ${detail}`);
    say(`  its log is ${log}, what ran wrote ${trace}`);
  }
}

async function main(): Promise<number> {
  const { values } = parseArgs({
    options: {
      kills: { type: 'string', default: '30' },
      seed: { type: 'string', default: '1' },
      json: { type: 'boolean', default: false },
      keep: { type: 'boolean', default: false },
    },
  });
  const say = (text: string): void => {
    const line = `${(performance.now() / 1000).toFixed(1).padStart(7)} ${text}`;
    if (values.json) console.error(line);
    else console.log(line);
  };
  await mkdir(FOLDERS, { recursive: true });
  const folder = await mkdtemp(join(FOLDERS, 'run-'));
  const daemons: Daemon[] = [];
  const remove = (): Promise<void> =>
    rm(folder, { recursive: true, force: true, maxRetries: 10, retryDelay: 100 });
  const interrupted = (): void => {
    for (const daemon of daemons) daemon.abandon();
    void remove().finally(() => process.exit(130));
  };
  process.once('SIGINT', interrupted).once('SIGTERM', interrupted);
  try {
    const { keep } = values;
    const options = { kills: Number(values.kills), seed: Number(values.seed), keep, say };
    const outcome = await chaos(folder, daemons, options);
    for (const line of table(outcome)) say(line);
    const bad = outcome.violations.length > 0;
    if (bad || keep) say(`kept: ${folder}`);
    else await remove();
    if (values.json) console.log(JSON.stringify(figures(outcome)));
    return bad ? 1 : 0;
  } catch (error) {
    for (const daemon of daemons) daemon.abandon();
    say(`kept: ${folder}`);
    throw error;
  } finally {
    process.off('SIGINT', interrupted).off('SIGTERM', interrupted);
  }
}

process.exitCode = await main();
