/** What processes use, with real ones. U1-U3 are the invariants of `sal/usage.ts`. */
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { after, test } from 'node:test';
import { runProcess } from '../../sal/process.ts';
import { Meter, type Reading, Sampler } from '../../sal/usage.ts';
import { ProcessPayload } from '../../schemas/job.ts';
import { until } from './waiting.ts';

const MIB = 1024 * 1024;
const sampler = new Sampler();
after(() => sampler.close());

/** Burns cpu with memory held, then says by its own account what it used. */
const BURN = `
const [, mib, ms] = process.argv;
const held = Buffer.alloc(Number(mib) * ${MIB}, 1);
while (process.cpuUsage().user / 1000 < Number(ms)) Math.sqrt(Math.random());
const { user, system } = process.cpuUsage();
console.log(JSON.stringify({ cpu: (user + system) / 1000, rss: process.memoryUsage.rss(), held: held.length }));
`;

type Own = { cpu: number; rss: number };

async function metered(cmd: string, args: string[]): Promise<{ used: Reading; own: Own }> {
  const meter = new Meter(sampler);
  const value = await runProcess(
    ProcessPayload.parse({ cmd, args }),
    { context: 'acme', flow: 'a'.repeat(26), n: 0, attempt: 1 },
    { signal: new AbortController().signal, deadlineMs: null, meter },
  );
  const used = meter.reading();
  assert.ok(used !== undefined);
  const { stdout } = JSON.parse(value) as { stdout: string };
  return { used, own: stdout === '' ? { cpu: 0, rss: 0 } : (JSON.parse(stdout) as Own) };
}

const burn = (mib: number, ms: number): string[] => ['-e', BURN, String(mib), String(ms)];

test('usage - 300 ms of cpu and 64 MiB are seen, though the process lives for less than a second', async (t) => {
  const { used, own } = await metered(process.execPath, burn(64, 300));
  t.diagnostic(
    `cpu ${used.cpu_ms} ms (own account ${own.cpu.toFixed(0)}), memory ${((used.memory_peak_bytes ?? 0) / MIB).toFixed(1)} MiB (own ${(own.rss / MIB).toFixed(1)})`,
  );
  assert.ok(own.cpu >= 300);
  assert.ok(used.cpu_ms >= own.cpu - 20, `${used.cpu_ms} ms of cpu are less than its own account`);
  assert.ok(used.cpu_ms <= own.cpu + 200, `${used.cpu_ms} ms of cpu are more than it can have had`);
  assert.ok((used.memory_peak_bytes ?? 0) >= 64 * MIB);
  assert.ok((used.memory_peak_bytes ?? 0) <= own.rss * 1.2);
  assert.notEqual(used.io_read_bytes, null);
});

test('usage - children count: those that were waited for, and all memory held together', async () => {
  const one = `'${process.execPath}' -e '${BURN}' 48 600`;
  const { used } = await metered('sh', ['-c', `${one} >/dev/null & ${one} >/dev/null & wait`]);
  assert.ok(used.cpu_ms >= 1200 - 40, `${used.cpu_ms} ms of cpu for two that used 600 each`);
  assert.ok((used.memory_peak_bytes ?? 0) >= 96 * MIB, `${used.memory_peak_bytes} bytes`);
});

test('usage - who ended first and idly is not charged with what others burned', async () => {
  const burning = metered(process.execPath, burn(1, 1500));
  const { used } = await metered('sleep', ['0.3']);
  assert.ok(used.cpu_ms <= 50, `an idle job has ${used.cpu_ms} ms of cpu`);
  assert.ok((used.memory_peak_bytes ?? 0) < 20 * MIB);
  assert.ok((await burning).used.cpu_ms >= 1480);
});

/** Of the children of this process that have ended, by the kernel's own account. */
function endedMs(): number {
  const stat = readFileSync('/proc/self/stat', 'utf8');
  const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
  return (Number(fields[13]) + Number(fields[14])) * 10;
}

test('usage - of 40 that end at about the same time all cpu is told, and once (U2)', async () => {
  const before = endedMs();
  const loop = 'i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done';
  const runs = await Promise.all(Array.from({ length: 40 }, () => metered('sh', ['-c', loop])));
  const told = runs.reduce((sum, { used }) => sum + used.cpu_ms, 0);
  const real = endedMs() - before;
  assert.ok(real > 100);
  assert.ok(Math.abs(told - real) <= real * 0.05 + 20, `${told} ms are told, ${real} ms were used`);
});

test('usage - what nobody saw in time is unknown, not zero (U3)', async () => {
  const child = spawn('true', { stdio: 'ignore' });
  await once(child, 'exit');
  const meter = new Meter(sampler);
  meter.begin(child.pid ?? 0);
  await meter.end();
  const { memory_peak_bytes, io_write_bytes, cpu_ms } = meter.reading() as Reading;
  assert.deepEqual([memory_peak_bytes, io_write_bytes], [null, null]);
  assert.ok(cpu_ms <= 200);
});

test('usage - a figure that is asked for while the job runs is fresh', async () => {
  const abort = new AbortController();
  const meter = new Meter(sampler);
  assert.equal(meter.reading(), undefined);
  const running = runProcess(
    ProcessPayload.parse({ cmd: process.execPath, args: burn(80, 60_000) }),
    { context: 'acme', flow: 'a'.repeat(26), n: 0, attempt: 1 },
    { signal: abort.signal, deadlineMs: null, meter },
  );
  running.catch(() => undefined);
  const read = (): Reading => meter.reading() as Reading;
  await until('its memory', () => (meter.reading()?.memory_bytes ?? 0) > 80 * MIB);
  const first = read().cpu_ms;
  await until('more cpu', () => read().cpu_ms >= first + 200);
  abort.abort();
  await assert.rejects(running);
  assert.ok(read().cpu_ms >= first + 200);
});

test('usage - a scan costs a bounded part of the time, and none when nothing runs (U1)', async () => {
  const child = spawn('sleep', ['60'], { detached: true, stdio: 'ignore' });
  const own = new Sampler();
  const meter = new Meter(own);
  try {
    meter.begin(child.pid ?? 0);
    const begun = process.cpuUsage();
    const begunMs = performance.now();
    await until('three seconds', () => performance.now() - begunMs > 3000);
    const { user, system } = process.cpuUsage(begun);
    const share = (user + system) / 1000 / (performance.now() - begunMs);
    assert.ok(share < 0.2, `${(share * 100).toFixed(1)} % of a core`);
    assert.ok((meter.reading()?.memory_peak_bytes ?? 0) > 0);
  } finally {
    own.close();
    child.kill('SIGKILL');
    await once(child, 'exit');
  }
});
