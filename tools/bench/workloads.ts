/**
 * The workloads: which systems meet in each, and what is measured of them.
 *
 * Systems of a workload are started for it and warmed up; a peer that cannot be had is left out, with the
 * reason. Throughputs come with the processor seconds of everything that took part, this process included.
 */
import { Herobus, type HerobusOptions, type Sealed } from './herobus.ts';
import { inWindow, median, openLoop, percentile, type Sample, timed } from './measure.ts';
import { Bull } from './peers/bullmq.ts';
import { IN_FLIGHT, Raw } from './peers/raw.ts';
import { Restate } from './peers/restate.ts';
import type { Contestant } from './rounds.ts';
import { FAN, manyJobs, ONE_JOB, THREE_STEPS } from './scripts.ts';
import { dispatchTimes, probe } from './stamps.ts';
import type { Workspace } from './workspace.ts';

export type Settings = {
  /** Jobs of one script. */
  jobs: number;
  /** Separate deployments. */
  deploys: number;
  /** Seconds of each open loop. */
  seconds: number;
  /** Three-step scripts at a time, and one after the other. */
  steps: number;
  /** Operations a runner has under way; undefined: the product's own default. */
  slots: number | undefined;
  /** Where the node's processes leave their processor profiles; undefined: they make none. */
  profiles: string | undefined;
};

export type Workload = {
  name: string;
  prepare: (workspace: Workspace, sizes: Settings) => Promise<Prepared>;
};
export type Prepared = { contestants: Contestant[]; missing: { system: string; why: string }[] };

const RATES = [50, 200, 500] as const;
export const DISPATCH_RATE = 200;
const STEP_WINDOW = 64;
const WARM_UP_JOBS = 1000;
const WARM_UP_DEPLOYS = 200;

export const WORKLOADS: readonly Workload[] = [
  { name: 'jobs', prepare: prepareJobs },
  { name: 'deploys', prepare: prepareDeploys },
  ...RATES.map((rate) => ({ name: `rate-${rate}`, prepare: prepareRate(rate) })),
  { name: 'fan', prepare: prepareFan },
  { name: 'steps', prepare: prepareSteps },
];

/** One script that spawns all jobs, from the publish of its signed deployment to its end; peers add in bulk. */
async function prepareJobs(workspace: Workspace, settings: Settings): Promise<Prepared> {
  const { jobs } = settings;
  const ours = (['fsync', 'relaxed'] as const).map(async (durability) => {
    const herobus = await start(workspace, { name: `jobs-${durability}`, durability }, settings);
    const measure = async (): Promise<Sample> => {
      const sealed = herobus.seal(manyJobs(jobs));
      const { seconds, cpuSeconds } = await timed(herobus.pids, () => herobus.run(sealed));
      return { 'jobs/s': jobs / seconds, 'cpu s/1000': (cpuSeconds * 1000) / jobs };
    };
    const warmUp = () => herobus.run(herobus.seal(manyJobs(Math.min(jobs, WARM_UP_JOBS))));
    return { system: `herobus ${durability}`, pids: herobus.pids, warmUp, measure };
  });
  const peers = (['always', 'everysec'] as const).map((fsync) =>
    peer(`BullMQ ${fsync}`, async (system) => {
      const bull = await Bull.start(workspace, fsync);
      const { pids } = bull;
      const warmUp = () => bull.jobs(Math.min(jobs, WARM_UP_JOBS));
      return { system, pids, warmUp, measure: () => bull.jobs(jobs) };
    }),
  );
  return gather(await Promise.all([...ours, ...peers]));
}

/** Deployments sealed beforehand, published with a bounded number of acknowledgements out, to the last end. */
async function prepareDeploys(workspace: Workspace, settings: Settings): Promise<Prepared> {
  const { deploys } = settings;
  const options = { name: 'deploys', durability: 'fsync' } as const;
  const herobus = await start(workspace, options, settings);
  const sealAll = (count: number): Sealed[] =>
    Array.from({ length: count }, () => herobus.seal(ONE_JOB));
  const publishAll = async (sealed: readonly Sealed[]): Promise<void> => {
    const ends: Promise<void>[] = [];
    await inWindow(sealed, IN_FLIGHT, async (each) => {
      ends.push((await herobus.publish(each)).ended);
    });
    await Promise.all(ends);
  };
  const few = Math.min(deploys, WARM_UP_DEPLOYS);
  const warmUp = () => publishAll(sealAll(few));
  const measure = async (): Promise<Sample> => {
    const sealed = sealAll(deploys);
    const { seconds, cpuSeconds } = await timed(herobus.pids, () => publishAll(sealed));
    return { 'per s': deploys / seconds, 'cpu s/1000': (cpuSeconds * 1000) / deploys };
  };
  const raw = peer('raw JetStream', async (system) => {
    const limit = await Raw.start(workspace);
    const messages = sealAll(deploys).map(({ bytes }) => bytes);
    return {
      system,
      pids: limit.pids,
      warmUp: () => limit.messages(messages.slice(0, few)),
      measure: () => limit.messages(messages),
    };
  });
  const ours = { system: 'herobus fsync', pids: herobus.pids, warmUp, measure };
  return gather([ours, await raw]);
}

/** Deployments at a fixed rate, whatever becomes of those before. */
function prepareRate(rate: number) {
  return async (workspace: Workspace, settings: Settings): Promise<Prepared> => {
    const { seconds } = settings;
    const folder = await workspace.subfolder(`stamps-${rate}`);
    const name = `rate-${rate}`;
    const options = { name, durability: 'fsync', ...probe(folder) } as const;
    const herobus = await start(workspace, options, settings);
    const load = async (count: number): Promise<Sample> => {
      const sealed = Array.from({ length: count }, () => herobus.seal(ONE_JOB));
      const tookMs: number[] = [];
      const ends: Promise<void>[] = [];
      await openLoop(count, rate, (i, dueMs) => {
        const whole = herobus.publish(sealed[i] as Sealed).then(({ ended }) => ended);
        ends.push(whole.then(() => void tookMs.push(performance.now() - dueMs)));
      });
      await Promise.all(ends);
      const flows = sealed.map(({ flow }) => flow);
      const dispatchMs = await dispatchTimes(folder, flows);
      return {
        'dispatch p50 ms': percentile(dispatchMs, 0.5),
        'dispatch p99 ms': percentile(dispatchMs, 0.99),
        'whole p50 ms': percentile(tookMs, 0.5),
        'whole p99 ms': percentile(tookMs, 0.99),
      };
    };
    const raw = peer('raw JetStream', async (system) => {
      const limit = await Raw.start(workspace);
      const pass = async (count: number): Promise<Sample> => {
        const waits = await limit.dispatch(count, rate);
        return {
          'dispatch p50 ms': percentile(waits, 0.5),
          'dispatch p99 ms': percentile(waits, 0.99),
        };
      };
      return {
        system,
        pids: limit.pids,
        warmUp: () => pass(rate),
        measure: () => pass(rate * seconds),
      };
    });
    const ours = {
      system: 'herobus fsync',
      pids: herobus.pids,
      warmUp: () => load(rate),
      measure: () => load(rate * seconds),
    };
    return gather([ours, await raw]);
  };
}

/** One job, a hundred after it, one after them: what the depth of a flow costs. */
async function prepareFan(workspace: Workspace, settings: Settings): Promise<Prepared> {
  const herobus = await start(workspace, { name: 'fan', durability: 'fsync' }, settings);
  const once = async (): Promise<Sample> => {
    const took: number[] = [];
    for (let i = 0; i < 5; i++) {
      const sealed = herobus.seal(FAN);
      const before = performance.now();
      await herobus.run(sealed);
      took.push(performance.now() - before);
    }
    return { 'p50 ms': median(took) };
  };
  const { pids } = herobus;
  return gather([{ system: 'herobus fsync', pids, warmUp: once, measure: once }]);
}

/** Three durable steps, one after the other: by itself, and many at a time. */
async function prepareSteps(workspace: Workspace, settings: Settings): Promise<Prepared> {
  const { steps } = settings;
  const herobus = await start(workspace, { name: 'steps', durability: 'fsync' }, settings);
  const alone = Math.max(5, Math.round(steps / 10));
  const latency = async (): Promise<number> => {
    const took: number[] = [];
    for (let i = 0; i < alone; i++) {
      const sealed = herobus.seal(THREE_STEPS);
      const before = performance.now();
      await herobus.run(sealed);
      took.push(performance.now() - before);
    }
    return median(took);
  };
  const throughput = async (count: number): Promise<Sample> => {
    const sealed = Array.from({ length: count }, () => herobus.seal(THREE_STEPS));
    const { seconds, cpuSeconds } = await timed(herobus.pids, () =>
      inWindow(sealed, STEP_WINDOW, (each) => herobus.run(each)),
    );
    return { 'per s': count / seconds, 'cpu s/1000': (cpuSeconds * 1000) / count };
  };
  const restate = peer('Restate', async (system) => {
    const other = await Restate.start(workspace);
    const measure = async (): Promise<Sample> => ({
      'p50 ms': await other.latency(alone),
      ...(await other.throughput(steps, STEP_WINDOW)),
    });
    const warmUp = () => other.throughput(STEP_WINDOW, STEP_WINDOW);
    return { system, pids: other.pids, warmUp, measure };
  });
  const measure = async (): Promise<Sample> => ({
    'p50 ms': await latency(),
    ...(await throughput(steps)),
  });
  const warmUp = () => throughput(STEP_WINDOW);
  const ours = { system: 'herobus fsync', pids: herobus.pids, warmUp, measure };
  return gather([ours, await restate]);
}

function start(
  workspace: Workspace,
  options: Omit<HerobusOptions, 'runners'>,
  { slots, profiles }: Settings,
): Promise<Herobus> {
  const nodeOptions = [
    ...(options.nodeOptions ?? []),
    ...(profiles === undefined ? [] : ['--cpu-prof', `--cpu-prof-dir=${profiles}`]),
  ];
  return Herobus.start(workspace, {
    ...options,
    nodeOptions,
    ...(slots === undefined ? {} : { runners: `sal=${slots}` }),
  });
}

type Missing = { system: string; why: string };

/** A peer that cannot be had is a hole in the table, not the end of the run. */
async function peer(
  system: string,
  begin: (system: string) => Promise<Contestant>,
): Promise<Contestant | Missing> {
  try {
    return await begin(system);
  } catch (error) {
    return { system, why: error instanceof Error ? error.message : String(error) };
  }
}

function gather(all: readonly (Contestant | Missing)[]): Prepared {
  return {
    contestants: all.filter((each) => 'measure' in each),
    missing: all.filter((each) => 'why' in each),
  };
}
