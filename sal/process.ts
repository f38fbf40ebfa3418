/**
 * The process SAL: a command line of a job, run once for one attempt.
 *
 * It owns what a job's process sees (its environment) and what its end means (value or failure). Starting,
 * streaming and killing belong to `exec.ts`; whether and when an attempt may run belongs to the runner.
 */
import { tmpdir } from 'node:os';
import { HeroError } from '../schemas/errors.ts';
import { jobId } from '../schemas/ids.ts';
import type { ProcessPayload } from '../schemas/job.ts';
import { exec, type ExecResult, exitError, type OnLines } from './exec.ts';
import type { Guardian } from './guardian.ts';
import type { Meter } from './usage.ts';

export type ProcessAttempt = { context: string; flow: string; n: number; attempt: number };

export type ProcessOptions = {
  signal: AbortSignal;
  /** On the monotonic clock; null for none. */
  deadlineMs: number | null;
  onLines?: OnLines;
  guardian?: Guardian;
  meter?: Meter;
  /** Where a job without `cwd` works. */
  cwd?: string;
};

/** Both streams are cut to 64 KiB; text that needs many escapes is cut further, to fit a log entry. */
export const PROCESS_VALUE_BYTES_MAX = 160 * 1024;

/** Runs it to its end; the value is typed JSON text. Throws the signal's reason when it was aborted. */
export async function runProcess(
  payload: ProcessPayload,
  attempt: ProcessAttempt,
  options: ProcessOptions,
): Promise<string> {
  const { cwd = '/', ...rest } = options;
  const result = await exec({
    cmd: payload.cmd,
    args: payload.args,
    env: { ...BASE, ...payload.env, ...jobIdentity(attempt) },
    cwd: payload.cwd ?? cwd,
    stdin: payload.stdin,
    ...rest,
  });
  if (result.ended === 'aborted') {
    const reason: unknown = options.signal.reason;
    throw reason instanceof HeroError ? reason : new HeroError('cancelled', 'it was aborted');
  }
  if (result.ended === 'deadline') {
    throw new HeroError('timeout', `${payload.cmd} did not end in time and was killed`);
  }
  if (result.code === null || !payload.ok_codes.includes(result.code)) {
    throw exitError(payload.cmd, result);
  }
  return processValue(result);
}

/** Small and the same on every node, whatever started the runner; a job may set each of them. */
const BASE = {
  PATH: '/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin',
  HOME: process.env['HOME'] ?? '/',
  LANG: 'C.UTF-8',
  TMPDIR: tmpdir(),
};

/** Which attempt of which job a process is. */
function jobIdentity(attempt: ProcessAttempt): Record<string, string> {
  return {
    HEROBUS_CONTEXT: attempt.context,
    HEROBUS_FLOW: attempt.flow,
    HEROBUS_JOB: jobId(attempt.flow, attempt.n),
    HEROBUS_ATTEMPT: String(attempt.attempt),
  };
}

export function processValue(
  result: Pick<ExecResult, 'code' | 'stdout' | 'stderr' | 'truncated'>,
): string {
  let { stdout, stderr, truncated } = result;
  for (;;) {
    const text = JSON.stringify({ code: result.code, stdout, stderr, truncated });
    if (Buffer.byteLength(text) <= PROCESS_VALUE_BYTES_MAX) return text;
    truncated = true;
    if (stdout.length >= stderr.length) stdout = lastHalf(stdout);
    else stderr = lastHalf(stderr);
  }
}

function lastHalf(text: string): string {
  const start = Math.ceil(text.length / 2);
  const low = text.charCodeAt(start);
  // Not between the halves of a surrogate pair.
  return text.slice(low >= 0xdc00 && low <= 0xdfff ? start + 1 : start);
}
