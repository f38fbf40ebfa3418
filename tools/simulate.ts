/**
 * `npm run simulate -- --seeds N [--seed S] [--trace] [--json]`: coords, supervisors and runners in one
 * process, in virtual time and under a seed, with everything going wrong that may go wrong.
 *
 * `--seed S` begins at that seed, so `--seed S --seeds 1 --trace` replays one that failed, event for event.
 */
import { parseArgs } from 'node:util';
import { simulate, type SimulationResult } from './simulate/run.ts';

type Totals = { flows: number; runs: number; faults: number; virtualMs: number; steps: number };

async function main(): Promise<number> {
  const { values } = parseArgs({
    options: {
      seeds: { type: 'string', default: '100' },
      seed: { type: 'string', default: '1' },
      trace: { type: 'boolean', default: false },
      json: { type: 'boolean', default: false },
    },
  });
  const first = Number(values.seed);
  const count = Number(values.seeds);
  const say = (line: string) => (values.json ? console.error(line) : console.log(line));
  const begun = performance.now();
  const totals: Totals = { flows: 0, runs: 0, faults: 0, virtualMs: 0, steps: 0 };
  const violations: { seed: number; invariant: string }[] = [];
  for (let seed = first; seed < first + count; seed++) {
    const result = await simulate(seed, { trace: values.trace });
    for (const line of result.trace) say(line);
    if (values.trace) say(`digest ${result.digest}`);
    for (const { invariant, detail } of result.violations) {
      say(`seed ${seed}: ${invariant}: ${detail}`);
      violations.push({ seed, invariant });
    }
    add(totals, result);
  }
  const seconds = Math.round((performance.now() - begun) / 100) / 10;
  say(JSON.stringify({ ...totals, virtualMs: Math.round(totals.virtualMs), seconds }));
  console.log(JSON.stringify({ seeds: count, violations }));
  return violations.length === 0 ? 0 : 1;
}

function add(totals: Totals, result: SimulationResult): void {
  totals.flows += result.flows;
  totals.runs += result.runs;
  totals.faults += result.faults;
  totals.virtualMs += result.virtualMs;
  totals.steps += result.steps;
}

process.exitCode = await main();
