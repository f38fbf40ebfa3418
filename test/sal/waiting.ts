/** Waiting for what happens elsewhere (other processes), with a deadline and no fixed sleeps. */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { setTimeout as delay } from 'node:timers/promises';

/** Waits until the look finds something; fails with what was waited for after the deadline. */
export async function until<T>(
  what: string,
  look: () => T | undefined | false | Promise<T | undefined | false>,
  deadlineMs = 10_000,
): Promise<T> {
  const endsMs = performance.now() + deadlineMs;
  for (;;) {
    const found = await look();
    if (found !== undefined && found !== false) return found;
    if (performance.now() > endsMs) assert.fail(`not within ${deadlineMs} ms: ${what}`);
    await delay(5);
  }
}

/** Executing, as opposed to gone or a zombie nobody has reaped yet. */
export function isAlive(pid: number): boolean {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, 'utf8');
    return !/\) [ZX] /.test(stat);
  } catch {
    return false;
  }
}

export const untilGone = (pid: number, deadlineMs = 1000): Promise<true> =>
  until(`process ${pid} is gone`, () => !isAlive(pid), deadlineMs);
