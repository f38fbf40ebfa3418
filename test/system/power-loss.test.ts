/**
 * Power loss: what was acknowledged in `fsync` is there after a cut, and in `relaxed` some of it is not
 * (tools/powerloss.ts). More: `npm run test:soak -- power`.
 */
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { join, resolve } from 'node:path';
import { test } from 'node:test';
import { findKernel, KERNEL_FOLDER, KERNEL_PACKAGE } from '../../efi/kernel.ts';
import { onPath } from '../../tools/bench/workspace.ts';

const ROOT = resolve(import.meta.dirname, '../..');
const CUTS = Number(process.env['POWER_CUTS'] ?? 1);
const SEED = Number(process.env['POWER_SEED'] ?? 1);
const NEEDED = {
  'qemu-system-x86_64': 'qemu-system-x86',
  busybox: 'busybox-static',
  mke2fs: 'e2fsprogs',
};

async function missing(): Promise<string[]> {
  const commands = Object.entries(NEEDED).filter(([command]) => onPath(command) === null);
  const kernel = await findKernel(join(ROOT, KERNEL_FOLDER));
  return [...commands.map(([, name]) => name), ...(kernel === undefined ? [KERNEL_PACKAGE] : [])];
}

type Losses = { cuts: number; acked: number; lost: number };

test(`power loss - ${CUTS} cut(s) at an acknowledgement, each (seed ${SEED})`, async (t) => {
  const packages = await missing();
  if (packages.length > 0) {
    t.skip(`missing: ${packages.join(', ')} (npm run setup -- --system)`);
    return;
  }
  const program = join(ROOT, 'tools/powerloss.ts');
  const args = [program, '--json', '--cuts', String(CUTS), '--seed', String(SEED)];
  const child = spawn(process.execPath, args, { stdio: ['ignore', 'pipe', 'pipe'] });
  const closed = once(child, 'close');
  t.after(async () => {
    child.kill('SIGTERM');
    await closed;
  });
  let told = '';
  let figures = '';
  child.stderr.setEncoding('utf8').on('data', (text: string) => (told += text));
  child.stdout.setEncoding('utf8').on('data', (text: string) => (figures += text));
  await closed;
  assert.equal(child.exitCode, 0, told + figures);
  const { fsync, relaxed } = JSON.parse(figures) as { fsync: Losses; relaxed: Losses };
  assert.deepEqual([fsync.cuts, relaxed.cuts], [CUTS, CUTS]);
  assert.ok(fsync.acked >= CUTS && relaxed.acked >= CUTS, figures);
  assert.equal(fsync.lost, 0, told);
  assert.ok(relaxed.lost > 0, 'without a flush something must be lost, or no power was cut');
  t.diagnostic(figures.trim());
});
