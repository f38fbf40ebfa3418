/**
 * Process groups: a signal to all of one, and whether any of it still executes.
 *
 * A killed orphan can stay a zombie for as long as the system's first process likes; it executes nothing,
 * so it counts as gone.
 */
import { readdirSync, readFileSync } from 'node:fs';
import { setTimeout as delay } from 'node:timers/promises';

/** Sends a signal to a whole group; a group that is gone is what was wanted. */
export function signalGroup(pgid: number, signal: NodeJS.Signals | 0): boolean {
  try {
    process.kill(-pgid, signal);
    return true;
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code === 'ESRCH') return false;
    // A program that took another user's rights is there, and beyond ours.
    if (code === 'EPERM') return true;
    throw error;
  }
}

/** Waits, after a KILL, until it has taken effect; false when it has not within the time. */
export async function groupGone(pgid: number, withinMs: number): Promise<boolean> {
  const untilMs = performance.now() + withinMs;
  while (signalGroup(pgid, 0) && groupExecutes(pgid)) {
    if (performance.now() > untilMs) return false;
    await delay(5);
  }
  return true;
}

function groupExecutes(pgid: number): boolean {
  return readdirSync('/proc').some((name) => {
    if (!/^[0-9]+$/.test(name)) return false;
    const [state, , group] = statFields(name, 3);
    return Number(group) === pgid && state !== 'Z' && state !== 'X';
  });
}

/** The first fields of `/proc/<pid>/stat` after the command's name: state, parent, group, session, … */
export function statFields(pid: string, count: number): string[] {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, 'utf8');
    return stat.slice(stat.lastIndexOf(')') + 2).split(' ', count);
  } catch {
    // It ended while we looked.
    return [];
  }
}
