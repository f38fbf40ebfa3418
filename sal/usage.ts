/**
 * What the processes of jobs use, read from /proc: one look a second for all jobs of a runner together.
 *
 * A job is a session: its leader is what `exec.ts` starts, and whatever it starts stays in it unless it
 * leaves on purpose. Jobs in their first second are looked at more often, by walking down from the leader,
 * since most are over before a second is.
 *
 *   U1 a look costs at most a fiftieth of the time, however many processes the machine has;
 *   U2 the cpu of a leader, and of all it waited for, is known to a clock tick after its end: the kernel has
 *      added it to this process's children by then. Leaders that end in the same turn share what came; what
 *      a leader left behind counts as last seen;
 *   U3 memory and io of a job that nobody saw in time are unknown (null), not zero.
 */
import { readdirSync, readFileSync } from 'node:fs';
import { setImmediate as nextTurn } from 'node:timers/promises';
import type { Usage } from '../schemas/job.ts';
import { statFields } from './group.ts';

const SCAN_MS = 1000;
const YOUNG_MS = 1000;
const YOUNG_LOOK_MS = 100;
/** Time between scans, as a multiple of what one takes (U1). */
const SCAN_REST = 50;
/** A figure that is asked for is no older. */
const FRESH_MS = 50;
/** USER_HZ: the same on every Linux. */
const TICK_MS = 10;

export type Reading = Usage & {
  /** Resident memory at the last look. */
  memory_bytes: number | null;
};

type Seen = { ticks: number; rss: number; hwm: number; read: number; write: number; io: boolean };

/** What one job uses. `exec.ts` tells when its leader starts and ends. */
export class Meter {
  readonly #sampler: Sampler;
  #pgid: number | undefined;
  startedMs = 0;
  #lookedMs = 0;
  /** Clock ticks of all that was seen together, at their highest. */
  #ticks = 0;
  #memory: number | null = null;
  #peak: number | null = null;
  #read: number | null = null;
  #write: number | null = null;

  constructor(sampler: Sampler) {
    this.#sampler = sampler;
  }

  get pgid(): number | undefined {
    return this.#pgid;
  }

  begin(pgid: number): void {
    this.#pgid = pgid;
    this.startedMs = performance.now();
    this.#sampler.add(pgid, this);
  }

  /** Right after the leader's end; settles when its last figures are in. */
  async end(): Promise<void> {
    const pgid = this.#pgid;
    if (pgid === undefined) return;
    this.#pgid = undefined;
    await this.#sampler.remove(pgid, this);
  }

  /** Undefined before it has begun. */
  reading(): Reading | undefined {
    if (this.startedMs === 0) return undefined;
    if (this.#pgid !== undefined && performance.now() - this.#lookedMs > FRESH_MS) {
      this.#sampler.scan();
    }
    return {
      cpu_ms: this.#ticks * TICK_MS,
      memory_bytes: this.#memory,
      memory_peak_bytes: this.#peak,
      io_read_bytes: this.#read,
      io_write_bytes: this.#write,
    };
  }

  saw(processes: readonly Seen[]): void {
    this.#lookedMs = performance.now();
    if (processes.length === 0) return;
    const sum = (of: (seen: Seen) => number): number =>
      processes.reduce((total, seen) => total + of(seen), 0);
    const highest = (before: number | null, now: number): number => Math.max(before ?? 0, now);
    this.#ticks = Math.max(
      this.#ticks,
      sum(({ ticks }) => ticks),
    );
    const rss = sum((seen) => seen.rss);
    // A process that is only a zombie has no memory to see.
    if (rss > 0) {
      this.#memory = rss;
      this.#peak = highest(this.#peak, Math.max(rss, ...processes.map(({ hwm }) => hwm)));
    }
    if (processes.some(({ io }) => io)) {
      this.#read = highest(
        this.#read,
        sum(({ read }) => read),
      );
      this.#write = highest(
        this.#write,
        sum(({ write }) => write),
      );
    }
  }

  get ticks(): number {
    return this.#ticks;
  }

  addTicks(ticks: number): void {
    this.#ticks += ticks;
  }
}

export class Sampler {
  readonly #meters = new Map<number, Meter>();
  #timer: NodeJS.Timeout | undefined;
  #timerAtMs = Number.POSITIVE_INFINITY;
  #scanAtMs = 0;
  /** Of ended children of this process, as far as they are told to their meters. */
  #toldTicks = ticksOfEnded();
  /** Meters whose leader ended in this turn. */
  #ended: Meter[] = [];

  add(pgid: number, meter: Meter): void {
    if (this.#meters.size === 0) this.#scanAtMs = meter.startedMs + SCAN_MS;
    this.#meters.set(pgid, meter);
    this.#arm(meter.startedMs + YOUNG_LOOK_MS);
  }

  async remove(pgid: number, meter: Meter): Promise<void> {
    this.#meters.delete(pgid);
    this.#ended.push(meter);
    await nextTurn();
    this.#tellEnded();
  }

  /** Looks at every process of the machine once, for all jobs. */
  scan(): void {
    const begunMs = performance.now();
    const found = new Map<number, Seen[]>([...this.#meters.keys()].map((pgid) => [pgid, []]));
    for (const pid of readdirSync('/proc')) {
      if (!/^[0-9]+$/.test(pid)) continue;
      const stat = statFields(pid, 15);
      const seen = found.get(Number(stat[SESSION]));
      if (seen !== undefined) seen.push(lookAt(pid, stat));
    }
    for (const [pgid, seen] of found) this.#meters.get(pgid)?.saw(seen);
    const now = performance.now();
    this.#scanAtMs = now + Math.max(SCAN_MS, SCAN_REST * (now - begunMs));
  }

  close(): void {
    clearTimeout(this.#timer);
    this.#meters.clear();
  }

  #arm(atMs: number): void {
    if (atMs >= this.#timerAtMs) return;
    clearTimeout(this.#timer);
    this.#timerAtMs = atMs;
    this.#timer = setTimeout(() => this.#tick(), Math.max(1, atMs - performance.now()));
    this.#timer.unref();
  }

  #tick(): void {
    this.#timerAtMs = Number.POSITIVE_INFINITY;
    if (this.#meters.size === 0) return;
    const now = performance.now();
    const young = [...this.#meters].filter(([, { startedMs }]) => now - startedMs < YOUNG_MS);
    if (now >= this.#scanAtMs) this.scan();
    else for (const [pgid, meter] of young) meter.saw(walk(String(pgid)));
    this.#arm(young.length > 0 ? now + YOUNG_LOOK_MS : this.#scanAtMs);
  }

  /** U2: what the kernel added since the last time belongs to those that ended since. */
  #tellEnded(): void {
    const ended = this.#ended.splice(0);
    if (ended.length === 0) return;
    const ticks = ticksOfEnded();
    const seen = ended.reduce((sum, meter) => sum + meter.ticks, 0);
    const news = Math.max(0, ticks - this.#toldTicks - seen);
    this.#toldTicks = ticks;
    for (const [i, meter] of ended.entries()) {
      meter.addTicks(Math.floor(news / ended.length) + (i < news % ended.length ? 1 : 0));
    }
  }
}

const SESSION = 3;
const [UTIME, CSTIME] = [11, 14];

/** User and system time of a process and of the children it waited for. */
function ticksOf(stat: readonly string[], from = UTIME): number {
  return stat.slice(from, CSTIME + 1).reduce((sum, field) => sum + Number(field), 0);
}

const ticksOfEnded = (): number => ticksOf(statFields('self', 15), UTIME + 2);

function lookAt(pid: string, stat: readonly string[]): Seen {
  const status = readOf(pid, 'status');
  const io = readOf(pid, 'io');
  return {
    ticks: ticksOf(stat),
    rss: figure(status, 'VmRSS') * 1024,
    hwm: figure(status, 'VmHWM') * 1024,
    read: figure(io, 'read_bytes'),
    write: figure(io, 'write_bytes'),
    io: io !== '',
  };
}

/** A process with its children and theirs. */
function walk(pid: string): Seen[] {
  const stat = statFields(pid, 15);
  if (stat.length === 0) return [];
  const children = readOf(pid, `task/${pid}/children`).split(' ');
  return [lookAt(pid, stat), ...children.filter((child) => child !== '').flatMap(walk)];
}

function readOf(pid: string, file: string): string {
  try {
    return readFileSync(`/proc/${pid}/${file}`, 'utf8');
  } catch {
    // It ended while we looked, or it took rights that hide it.
    return '';
  }
}

function figure(text: string, name: string): number {
  return Number(new RegExp(`^${name}:\\s*(\\d+)`, 'm').exec(text)?.[1] ?? 0);
}
