/**
 * The deterministic simulation: coords, supervisors and runners in virtual time, with everything going wrong
 * under a seed (tools/simulate.ts). More seeds: `npm run test:soak -- simulate`, `npm run simulate`.
 */
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { resolve } from 'node:path';
import { test } from 'node:test';
import { Reality } from '../../tools/simulate/reality.ts';
import { judgeRuns } from '../../tools/simulate/invariants.ts';
import { Scheduler } from '../../bus/simulated/scheduler.ts';
import type { JobRun } from '../../runners/classes/class.ts';

const PROGRAM = resolve(import.meta.dirname, '../../tools/simulate.ts');
const SEEDS = Number(process.env['SIMULATE_SEEDS'] ?? 300);
const FROM = Number(process.env['SIMULATE_FROM'] ?? 1);
/** Processes side by side: as many as a small machine has cores. */
const PROCESSES = 2;

async function run(...args: string[]): Promise<string> {
  const child = spawn(process.execPath, [PROGRAM, ...args], { stdio: ['ignore', 'pipe', 'pipe'] });
  let output = '';
  child.stdout.setEncoding('utf8').on('data', (text: string) => (output += text));
  child.stderr.setEncoding('utf8').on('data', (text: string) => (output += text));
  await once(child, 'close');
  return output;
}

test(`simulate - ${SEEDS} seeds from ${FROM} without a violation`, async () => {
  const share = Math.ceil(SEEDS / PROCESSES);
  const outputs = await Promise.all(
    Array.from({ length: PROCESSES }, (_, i) =>
      run('--json', '--seeds', String(share), '--seed', String(FROM + i * share)),
    ),
  );
  for (const output of outputs) {
    const last = output.trimEnd().split('\n').at(-1) ?? '';
    assert.deepEqual(JSON.parse(last), { seeds: share, violations: [] }, output);
  }
});

test('simulate - a seed is the same simulation each time, alone or after others', async () => {
  const traceOf = (output: string): string =>
    output.slice(output.lastIndexOf(' control for the 1. time'), output.lastIndexOf('\n{"flows"'));
  const [first, second, afterOthers] = await Promise.all([
    run('--seeds', '1', '--seed', '77', '--trace'),
    run('--seeds', '1', '--seed', '77', '--trace'),
    run('--seeds', '3', '--seed', '75', '--trace'),
  ]);
  assert.match(first ?? '', /digest [0-9a-f]{32}/);
  assert.equal(traceOf(second ?? ''), traceOf(first ?? ''));
  assert.equal(traceOf(afterOthers ?? ''), traceOf(first ?? ''));
});

test('simulate - what ran twice, or beside itself, is seen', () => {
  const scheduler = new Scheduler({
    enter: (_, act) => act(),
    onError: (_, error) => assert.fail(String(error)),
  });
  const reality = new Reality(scheduler, () => undefined);
  const machine = { name: 'm', alive: true, pausedUntilMs: 0 };
  const job = (n: number, attempt: number) =>
    ({ ref: { context: 'c', flow: 'f' }, job: { n, attempt, spec: {} } }) as JobRun;
  reality.end(reality.begin(job(0, 1), 'a', machine), 'done', '1');
  reality.begin(job(0, 2), 'a', machine);
  reality.begin(job(1, 1), 'a', machine);
  assert.deepEqual(judgeRuns(reality), []);
  reality.begin(job(0, 1), 'b', machine);
  reality.begin(job(1, 2), 'b', machine);
  assert.deepEqual(
    judgeRuns(reality).map(({ invariant }) => invariant),
    ['no_attempt_twice', 'one_attempt_at_a_time', 'one_attempt_at_a_time'],
  );
});
