/**
 * `node tools/powerloss.ts [--cuts N] [--seed S] [--json]`: cuts the power of a nats-server in a virtual machine
 * at an acknowledgement, N times with `fsync` and N times with `relaxed`, and counts what is lost.
 *
 * `fsync` must lose nothing and `relaxed` something; anything else is exit code 1.
 */
import { rmSync } from 'node:fs';
import { mkdtemp } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { parseArgs } from 'node:util';
import { Random } from '../bus/simulated/random.ts';
import { ensureKernel, KERNEL_FOLDER } from '../efi/kernel.ts';
import { losePower } from './powerloss/cuts.ts';

async function main(): Promise<number> {
  const { values } = parseArgs({
    options: {
      cuts: { type: 'string', default: '1' },
      seed: { type: 'string', default: '1' },
      json: { type: 'boolean', default: false },
    },
  });
  const seed = Number(values.seed);
  const started = performance.now();
  const kernel = await ensureKernel(resolve(import.meta.dirname, '..', KERNEL_FOLDER));
  const folder = await mkdtemp(join(tmpdir(), 'herobus-powerloss-'));
  const remove = (): void => rmSync(folder, { recursive: true, force: true });
  // The guest goes with this process.
  const interrupted = (): void => {
    remove();
    process.exit(130);
  };
  process.once('SIGINT', interrupted).once('SIGTERM', interrupted);
  try {
    const result = await losePower({
      folder,
      kernel,
      cuts: Number(values.cuts),
      random: new Random(seed),
      say: (line) => console.error(line),
    });
    const seconds = Math.round((performance.now() - started) / 1000);
    if (values.json) console.log(JSON.stringify({ seed, seconds, ...result }));
    else console.log(`in ${seconds} s, seed ${seed}:`, result);
    return result.fsync.lost === 0 && result.relaxed.lost > 0 ? 0 : 1;
  } finally {
    remove();
    process.off('SIGINT', interrupted).off('SIGTERM', interrupted);
  }
}

process.exitCode = await main();
