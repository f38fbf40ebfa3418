/**
 * The chaos at its smallest: 30 kills of real processes under load (tools/chaos.ts). More:
 * `npm run test:soak -- chaos`, `npm run chaos -- --kills 1000`.
 */
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { resolve } from 'node:path';
import { test } from 'node:test';

const PROGRAM = resolve(import.meta.dirname, '../../tools/chaos.ts');
const KILLS = Number(process.env['CHAOS_KILLS'] ?? 30);
const SEED = Number(process.env['CHAOS_SEED'] ?? 1);

test(`chaos - ${KILLS} kills under load (seed ${SEED}): nothing lost, doubled or unended`, async (t) => {
  const args = [PROGRAM, '--json', '--kills', String(KILLS), '--seed', String(SEED)];
  const child = spawn(process.execPath, args, { stdio: ['ignore', 'pipe', 'pipe'] });
  // In order: it takes its processes and its folder along.
  t.after(() => child.kill('SIGTERM'));
  let told = '';
  let figures = '';
  child.stderr.setEncoding('utf8').on('data', (text: string) => (told += text));
  child.stdout.setEncoding('utf8').on('data', (text: string) => (figures += text));
  await once(child, 'close');
  assert.equal(child.exitCode, 0, told);
  const { kills, flows, jobs, lost, doubled, unended } = JSON.parse(figures) as {
    [figure: string]: number;
  };
  assert.deepEqual(
    { kills, lost, doubled, unended },
    { kills: KILLS, lost: 0, doubled: 0, unended: 0 },
  );
  assert.ok((flows ?? 0) > 5 && (jobs ?? 0) > 5, told);
  t.diagnostic(told.slice(told.indexOf('draining')));
});
