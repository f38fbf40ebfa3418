/**
 * Whether what is acknowledged was flushed: the fsyncs of a system while it works, counted from outside.
 *
 * Tracing slows what is traced, so it is done while the system is warmed up, which is not timed.
 */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { processTree } from './measure.ts';
import { onPath, type Workspace } from './workspace.ts';

const ATTACH_MS = 500;

/** Does `act`; the fsyncs of these process trees meanwhile, undefined where there is no strace that may attach. */
export async function countFsyncs(
  workspace: Workspace,
  roots: readonly number[],
  act: () => Promise<unknown>,
): Promise<number | undefined> {
  const strace = onPath('strace');
  if (strace === null) {
    await act();
    return undefined;
  }
  const output = join(workspace.folder, `fsyncs-${roots[0]}`);
  const attach = processTree(roots).flatMap((pid) => ['-p', String(pid)]);
  const args = ['-f', '-qq', '-e', 'trace=fsync,fdatasync', '-o', output, ...attach];
  const tracer = spawn(strace, args, { stdio: 'ignore' });
  const gone = once(tracer, 'exit').catch(() => undefined);
  try {
    await Promise.race([delay(ATTACH_MS), gone]);
    const attached = tracer.exitCode === null && tracer.pid !== undefined;
    await act();
    if (!attached) return undefined;
  } finally {
    tracer.kill('SIGINT');
    await gone;
  }
  const seen = readFileSync(output, 'utf8').match(/ f(?:data)?sync\(/g) ?? [];
  rmSync(output);
  return seen.length;
}
