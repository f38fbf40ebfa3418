/**
 * `npm run bench -- jobs`: what jobs, deployments and their dispatch cost, against the queues people use.
 *
 *   jobs       one script of N no-op jobs, from the publish of its signed deployment to its end, signatures and
 *              verification on; BullMQ: addBulk of as many, to the last one completed by a worker process
 *   deploys    N signed deployments of one job each; raw JetStream: as many messages of the same bytes published,
 *              consumed and acknowledged with confirmation, `sync_interval: always` for both, 256 in flight
 *   rate-R     R deployments a second, open loop: from the publish call of the job's message to the payload's first
 *              instruction; raw: from publish to the acknowledgement of one fenced publish of the consumer
 *   fan        1 -> 100 -> 1 jobs in one flow, end to end
 *   steps      three durable steps one after the other; Restate: a handler with three `ctx.run`
 *
 * Ratios are medians of interleaved rounds, ours by theirs: of throughputs more than 1 means that herobus is
 * faster, of times (`dispatch_p50_vs_raw`, `restate_p50`) less than 1 does. A peer that cannot be had leaves null.
 */
import { resolve } from 'node:path';
import { parseArgs } from 'node:util';
import { countFsyncs } from './fsyncs.ts';
import type { Sample } from './measure.ts';
import { missingRow, ratiosOf, type Row, row, table } from './report.ts';
import { interleave } from './rounds.ts';
import { type Settings, WORKLOADS, type Workload } from './workloads.ts';
import { Workspace } from './workspace.ts';

const USAGE = `npm run bench -- jobs [options]
  --rounds N     interleaved rounds (5)
  --jobs N       jobs of one script (10000)
  --deploys N    separate deployments (as --jobs)
  --seconds N    length of each open loop (5)
  --steps N      three-step scripts in a round (500)
  --slots N      operations a node has under way (the product's default)
  --profile DIR  the node's processes leave their processor profiles there (which slows them)
  --only a,b     workloads: ${WORKLOADS.map(({ name }) => name).join(', ')}
  --json         the last line on stdout is one JSON value`;

type Options = {
  rounds: number;
  json: boolean;
  workloads: readonly Workload[];
  settings: Settings;
};

export async function run(argv: string[]): Promise<number> {
  let options: Options;
  try {
    options = optionsOf(argv);
  } catch (error) {
    console.error(`bench: ${error instanceof Error ? error.message : String(error)}\n${USAGE}`);
    return 64;
  }
  const rows: Row[] = [];
  try {
    for (const workload of options.workloads) rows.push(...(await measure(workload, options)));
  } catch (error) {
    console.error(`bench: ${error instanceof Error ? error.message : String(error)}`);
    return 1;
  }
  const ratios = ratiosOf(rows);
  console.error(table(rows, ratios));
  if (options.json) console.log(JSON.stringify({ ratios, rows }));
  return 0;
}

function optionsOf(argv: string[]): Options {
  const { values } = parseArgs({
    args: argv,
    options: {
      rounds: { type: 'string', default: '5' },
      jobs: { type: 'string', default: '10000' },
      deploys: { type: 'string' },
      seconds: { type: 'string', default: '5' },
      steps: { type: 'string', default: '500' },
      slots: { type: 'string' },
      profile: { type: 'string' },
      only: { type: 'string' },
      json: { type: 'boolean', default: false },
    },
  });
  const only = values.only?.split(',');
  const unknown = only?.find((name) => !WORKLOADS.some((workload) => workload.name === name));
  if (unknown !== undefined) throw new Error(`there is no workload ${unknown}`);
  return {
    rounds: count(values.rounds, '--rounds'),
    json: values.json,
    workloads: WORKLOADS.filter(({ name }) => only?.includes(name) ?? true),
    settings: {
      jobs: count(values.jobs, '--jobs'),
      deploys: count(values.deploys ?? values.jobs, '--deploys'),
      seconds: count(values.seconds, '--seconds'),
      steps: count(values.steps, '--steps'),
      slots: values.slots === undefined ? undefined : count(values.slots, '--slots'),
      profiles: values.profile === undefined ? undefined : resolve(values.profile),
    },
  };
}

function count(text: string, option: string): number {
  if (/^[1-9][0-9]{0,6}$/.test(text)) return Number(text);
  throw new Error(`${option} ${text}: a whole number from 1 on`);
}

/** A workspace for each workload: nothing of one disturbs the next. */
async function measure({ name, prepare }: Workload, { settings, rounds }: Options): Promise<Row[]> {
  return Workspace.use(async (workspace) => {
    console.error(`bench: ${name}: starting`);
    const { contestants, missing } = await prepare(workspace, settings);
    const fsyncs = new Map<string, number | undefined>();
    for (const { system, pids, warmUp } of contestants) {
      fsyncs.set(system, await countFsyncs(workspace, pids, warmUp));
    }
    const samples: Map<string, Sample[]> = await interleave(contestants, rounds, (text) =>
      console.error(`bench: ${name}: ${text}`),
    );
    return [
      ...[...samples].map(([system, all]) => row(name, system, all, fsyncs.get(system))),
      ...missing.map(({ system, why }) => missingRow(name, system, why)),
    ];
  });
}
