/**
 * `npm test`: the frame's checks and every test once, small. In CI a skipped test counts as failed.
 *
 * The counts that make a promise believable run as `npm run test:soak -- <area>`.
 */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { globSync } from 'node:fs';
import { resolve } from 'node:path';

const ROOT = resolve(import.meta.dirname, '..');
const CHECKS = [
  ['biome', 'format', '.'],
  ['tsc', '--noEmit'],
  ['oxlint', '--type-aware', '--deny-warnings', '.'],
];
const TEST_TIMEOUT_MS = 240_000;

async function run(command: string, args: string[]): Promise<{ code: number; output: string }> {
  const child = spawn(command, args, { cwd: ROOT, stdio: ['ignore', 'pipe', 'inherit'] });
  let output = '';
  child.stdout.setEncoding('utf8').on('data', (text: string) => {
    output += text;
    process.stdout.write(text);
  });
  const [code] = (await once(child, 'exit')) as [number | null];
  return { code: code ?? 1, output };
}

async function main(filters: string[]): Promise<number> {
  if (filters.length === 0) {
    for (const [tool, ...args] of CHECKS) {
      const { code } = await run(resolve(ROOT, 'node_modules/.bin', tool ?? ''), args);
      if (code !== 0) return code;
    }
  }
  const files = globSync('test/**/*.test.ts', { cwd: ROOT })
    .filter((file) => filters.length === 0 || filters.some((filter) => file.includes(filter)))
    .sort();
  const options = ['--test', '--test-concurrency=2', `--test-timeout=${TEST_TIMEOUT_MS}`];
  const { code, output } = await run(process.execPath, [...options, ...files]);
  const skipped = Number(/^ℹ skipped (\d+)$/m.exec(output)?.[1] ?? 0);
  if (code === 0 && skipped > 0 && process.env['CI'] === 'true') {
    console.error(`${skipped} tests were skipped; in CI that counts as not passed`);
    return 1;
  }
  return code;
}

process.exitCode = await main(process.argv.slice(2));
