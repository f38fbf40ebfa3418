/**
 * Loaded into the processes of a measured node (`node --import`): writes down when the message of a job is
 * published, and when the job's payload begins. The monotonic clock is the same for all processes of a machine.
 *
 * One file for each process in the folder that HEROBUS_BENCH_STAMPS names; what it says is read by stamps.ts.
 */
import { subscribe } from 'node:diagnostics_channel';
import { appendFileSync } from 'node:fs';
import { join } from 'node:path';

const folder = process.env['HEROBUS_BENCH_STAMPS'];
const WRITE_EVERY_MS = 200;

type Published = { subject: string; data: Uint8Array };
type Pack = { flow: string; jobs: { n: number }[] };

let published: { atNs: bigint; data: Uint8Array }[] = [];
let begun: string[] = [];

subscribe('herobus:publish', (message) => {
  const { subject, data } = message as Published;
  if (subject.startsWith('hb.jobs.')) published.push({ atNs: process.hrtime.bigint(), data });
});
subscribe('herobus:noop', (message) => {
  begun.push(`begun ${(message as { jobId: string }).jobId} ${process.hrtime.bigint()}`);
});

function write(): void {
  if (folder === undefined || (published.length === 0 && begun.length === 0)) return;
  const lines = published.flatMap(({ atNs, data }) => {
    const { flow, jobs } = JSON.parse(Buffer.from(data).toString('utf8')) as Pack;
    return jobs.map(({ n }) => `published ${flow}.${n} ${atNs}`);
  });
  appendFileSync(join(folder, `${process.pid}.stamps`), `${[...lines, ...begun].join('\n')}\n`);
  published = [];
  begun = [];
}
setInterval(write, WRITE_EVERY_MS).unref();
process.on('exit', write);
