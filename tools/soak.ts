/**
 * `npm run test:soak -- <area> [--seeds N]`: the counts that make a promise believable, too long for `npm test`.
 *
 * Each area runs its tests with larger counts and ends in one summary line with figures. A count that is set in
 * the environment (`POWER_CUTS=4`) is the one that is taken.
 */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { resolve } from 'node:path';

const ROOT = resolve(import.meta.dirname, '..');

type Area = { files: string[]; env: (seed: number) => Record<string, string>; seeds: number };

const AREAS: Record<string, Area> = {
  kill: {
    files: ['test/system/kill.test.ts'],
    env: (seed) => ({ HEROBUS_KILLS: '20', HEROBUS_SEED: String(seed) }),
    seeds: 3,
  },
  chaos: {
    files: ['test/system/chaos.test.ts'],
    env: (seed) => ({ CHAOS_KILLS: '150', CHAOS_SEED: String(seed) }),
    seeds: 2,
  },
  power: {
    files: ['test/system/power-loss.test.ts'],
    env: (seed) => ({ POWER_CUTS: '20', POWER_SEED: String(seed) }),
    seeds: 1,
  },
  damage: {
    files: ['test/bus/damage.test.ts'],
    env: (seed) => ({ DAMAGE_CASES: '60', DAMAGE_SEED: String(seed) }),
    seeds: 3,
  },
  simulate: {
    files: ['test/simulate/simulate.test.ts'],
    env: (seed) => ({ SIMULATE_SEEDS: '2000', SIMULATE_FROM: String(seed * 1_000_000) }),
    seeds: 1,
  },
  reconnects: {
    files: ['test/bus/reconnects.test.ts'],
    env: () => ({ HEROBUS_RECONNECTS: '100' }),
    seeds: 1,
  },
  fold: {
    files: ['test/actors/flow/fold.test.ts'],
    env: () => ({ FOLD_RUNS: '20000' }),
    seeds: 1,
  },
};

async function run(area: Area, seed: number): Promise<{ passed: number; failed: number }> {
  const child = spawn(process.execPath, ['--test', ...area.files], {
    cwd: ROOT,
    env: { ...area.env(seed), ...process.env },
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  let output = '';
  child.stdout.setEncoding('utf8').on('data', (text: string) => {
    output += text;
    process.stdout.write(text);
  });
  await once(child, 'close');
  const count = (what: string): number =>
    Number(new RegExp(`^ℹ ${what} (\\d+)$`, 'm').exec(output)?.[1] ?? 0);
  return { passed: count('pass'), failed: count('fail') + count('cancelled') };
}

async function main([name = '', ...rest]: string[]): Promise<number> {
  const area = AREAS[name];
  if (area === undefined) {
    console.error(`name an area: ${Object.keys(AREAS).join(', ')}`);
    return 64;
  }
  const at = rest.indexOf('--seeds');
  const seeds = at >= 0 ? Number(rest[at + 1]) : area.seeds;
  const started = performance.now();
  const total = { passed: 0, failed: 0 };
  for (let seed = 1; seed <= seeds; seed++) {
    const { passed, failed } = await run(area, seed);
    total.passed += passed;
    total.failed += failed;
  }
  const seconds = Math.round((performance.now() - started) / 1000);
  console.log(JSON.stringify({ soak: name, seeds, ...total, seconds }));
  return total.failed === 0 ? 0 : 1;
}

process.exitCode = await main(process.argv.slice(2));
