/**
 * `npm run bench -- memory`: what `up` and its nats-server hold while nothing can move.
 *
 * All slots are taken; then scripts queue jobs that nobody takes, as far as they are let
 * (supervisors/job-budget.ts), and flows sleep. Nothing queued or asleep may cost the memory of what runs:
 * the budget is 400 MB for `up`, 1.5 GB for the server. Then one script runs many jobs through. At last
 * everything is killed and comes back at once, and a new deployment has to get through.
 */
import { readFileSync } from 'node:fs';
import { parseArgs } from 'node:util';
import { Herobus } from './herobus.ts';
import { inWindow, processTree } from './measure.ts';
import { manyJobs } from './scripts.ts';
import { Workspace } from './workspace.ts';

const SLOTS = 64;
const LOOK_MS = 500;
/** Nothing planned for so long: the scripts wait. */
const STILL_MS = 8_000;
const QUEUED_WITHIN_MS = 1_800_000;
const PUBLISHED_AT_ONCE = 64;

const block = `let jobs = [];
for i in 0..${SLOTS} { jobs.push(process("sleep", ["100000"])); }
join_all(jobs)`;

const queued = (jobs: number, script: number): string => `let script = ${script}; let jobs = [];
for i in 0..${jobs} { jobs.push(process("true")); }
join_all(jobs).len()`;

const asleep = (n: number): string => `let n = ${n}; sleep("1d"); n`;

type Figures = Record<string, number>;

export async function run(argv: string[]): Promise<number> {
  const { values } = parseArgs({
    args: argv,
    options: {
      scripts: { type: 'string', default: '10' },
      jobs: { type: 'string', default: '100000' },
      flows: { type: 'string', default: '10000' },
      json: { type: 'boolean', default: false },
    },
  });
  const [scripts, jobs, flows] = [values.scripts, values.jobs, values.flows].map(Number);
  const figures = await Workspace.use((workspace) =>
    measure(workspace, { scripts: scripts ?? 0, jobs: jobs ?? 0, flows: flows ?? 0 }),
  );
  console.log(JSON.stringify(figures));
  return 0;
}

async function measure(
  workspace: Workspace,
  { scripts, jobs, flows }: { scripts: number; jobs: number; flows: number },
): Promise<Figures> {
  const options = {
    name: 'herobus',
    durability: 'fsync' as const,
    runners: `process=${SLOTS},sal=64`,
  };
  const node = await Herobus.start(workspace, options);
  const figures: Figures = { scripts, jobs: scripts * jobs, flows };
  const note = (what: string): void => {
    const { up, server } = memory(node.pids);
    Object.assign(figures, { [`${what} up MB`]: up, [`${what} server MB`]: server });
    console.error(`${what}: up ${up} MB, nats-server ${server} MB`);
  };
  note('idle');
  await node.publish(node.seal(block, ['process']));
  for (let i = 0; i < scripts; i++) {
    await node.publish(node.seal(queued(jobs, i), ['process']));
  }
  figures['planned'] = await planned(node, SLOTS + scripts * jobs);
  note('queued');
  const sleeping = performance.now();
  const range = Array.from({ length: flows }, (_, i) => i);
  await inWindow(range, PUBLISHED_AT_ONCE, (n) => node.publish(node.seal(asleep(n), [])));
  await until('all flows asleep', () => node.timers() >= flows);
  figures['asleep s'] = seconds(sleeping);
  note('asleep');
  const fresh = performance.now();
  await node.run(node.seal('join(sal("noop.run", #{}))'));
  figures['new deployment s'] = seconds(fresh);
  const through = performance.now();
  await node.run(node.seal(manyJobs(jobs)));
  figures['one script run s'] = seconds(through);
  note('one script run');
  const back = performance.now();
  const again = await node.again();
  figures['back s'] = seconds(back);
  await again.run(again.seal('join(sal("noop.run", #{}))'));
  figures['back to first deployment s'] = seconds(back);
  Object.assign(figures, { 'back up MB': memory(again.pids).up });
  return figures;
}

const seconds = (sinceMs: number): number => Math.round(performance.now() - sinceMs) / 1000;

/** Resolves with the jobs planned, once all are or the scripts wait. */
async function planned(node: Herobus, jobs: number): Promise<number> {
  let last = { count: -1, atMs: 0 };
  await until(`${jobs} jobs planned`, () => {
    const count = node.jobsPlanned();
    if (count !== last.count) last = { count, atMs: performance.now() };
    return count >= jobs || performance.now() - last.atMs > STILL_MS;
  });
  return last.count;
}

async function until(what: string, holds: () => boolean): Promise<void> {
  const deadline = performance.now() + QUEUED_WITHIN_MS;
  while (!holds()) {
    if (performance.now() > deadline) throw new Error(`${what}: not in ${QUEUED_WITHIN_MS} ms`);
    await new Promise((resolve) => setTimeout(resolve, LOOK_MS));
  }
}

/** Resident memory in MB: of `up` itself, and of its server. */
function memory(roots: readonly number[]): { up: number; server: number } {
  const residents = processTree(roots).map((pid) => ({ name: nameOf(pid), mb: residentMb(pid) }));
  const server = residents.find(({ name }) => name.includes('nats-server'));
  return { up: residents[0]?.mb ?? 0, server: server?.mb ?? 0 };
}

const nameOf = (pid: number): string => readFileSync(`/proc/${pid}/comm`, 'utf8').trim();

function residentMb(pid: number): number {
  const kb = /^VmRSS:\s+(\d+)/m.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1];
  return Math.round(Number(kb) / 1024);
}
