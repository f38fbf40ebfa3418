/**
 * What is done to the cluster: processes of drawn roles killed at drawn moments, and others stopped for a
 * while. The seed gives roles, moments and lengths; which process of a role it hits is how things stand then.
 */
import { setTimeout as delay } from 'node:timers/promises';
import type { Random } from '../../bus/simulated/random.ts';
import { type Cluster, type Role, ROLES, signal, type Victim } from './cluster.ts';

export type Faults = { kills: Record<Role, number>; pauses: Record<Role, number> };

type Told = (what: string) => void;

/** The server and the control plane hold up everything: more often, and there would be no load to hit. */
const DRAWN: readonly Role[] = [
  'nats-server',
  'control plane',
  'supervisor',
  'supervisor',
  'runners’ parent',
  'runner',
  'runner',
];
const HOLDS_UP_ALL: ReadonlySet<Role> = new Set(['nats-server', 'control plane']);
/** Between two kills: sometimes before what was killed runs again, sometimes well into the work. */
const BETWEEN_MS = { burst: [0, 150], usual: [150, 2200] } as const;
const BURST = 0.2;
/** Shorter than anybody notices, or longer than a lease (5 s) and than the dead are waited for (8 s). */
const PAUSE_MS = { short: [50, 2500], long: [5000, 10_000] } as const;
const LONG = 0.35;
/** How often a kill comes with a pause. */
const PAUSE = 0.25;
/**
 * What holds up everything is mostly let come to work again before the next kill of it, or a slow machine
 * would only ever see it start; and now and then it is hit while it recovers.
 */
const WHILE_RECOVERING = 0.25;
const ENTRIES_MIN = 60;
const AT_WORK_WITHIN_MS = 20_000;
/** How long a process of a drawn role is waited for, when none runs. */
const VICTIM_WITHIN_MS = 10_000;
const LOOK_MS = 20;

const none = (): Record<Role, number> =>
  Object.fromEntries(ROLES.map((role) => [role, 0])) as Record<Role, number>;

export async function inflict(
  cluster: Cluster,
  random: Random,
  count: number,
  tell: Told,
  /** Entries that were written to logs so far. */
  entries: () => number,
): Promise<Faults> {
  const faults: Faults = { kills: none(), pauses: none() };
  const moments = random.fork();
  const pauses = new Pauses(cluster, random.fork(), faults, tell);
  let struckAt = entries();
  try {
    for (let kill = 0; kill < count; ) {
      const [min, max] = moments.chance(BURST) ? BETWEEN_MS.burst : BETWEEN_MS.usual;
      const role = moments.pick(DRAWN);
      const which = moments.float();
      const withPause = moments.chance(PAUSE);
      const recovered = !moments.chance(WHILE_RECOVERING);
      await delay(moments.between(min, max));
      if (recovered && HOLDS_UP_ALL.has(role)) await atWork(() => entries() - struckAt);
      if (withPause) pauses.begin();
      const victim = await victimOf(cluster, role, which);
      if (victim === undefined) continue;
      victim.kill();
      kill += 1;
      faults.kills[role] += 1;
      if (HOLDS_UP_ALL.has(role)) struckAt = entries();
      tell(`kill ${kill}: ${victim.name}`);
    }
  } finally {
    await pauses.end();
  }
  return faults;
}

async function atWork(written: () => number): Promise<void> {
  const untilMs = performance.now() + AT_WORK_WITHIN_MS;
  while (written() < ENTRIES_MIN && performance.now() < untilMs) await delay(LOOK_MS);
}

async function victimOf(cluster: Cluster, role: Role, which: number): Promise<Victim | undefined> {
  const untilMs = performance.now() + VICTIM_WITHIN_MS;
  for (;;) {
    const victims = cluster.victims(role);
    const victim = victims[Math.floor(which * victims.length)];
    if (victim !== undefined || performance.now() > untilMs) return victim;
    await delay(LOOK_MS);
  }
}

/** At most one process is stopped at a time; kills go on meanwhile. */
class Pauses {
  readonly #cluster: Cluster;
  readonly #random: Random;
  readonly #faults: Faults;
  readonly #tell: Told;
  readonly #ending = new AbortController();
  #current: Promise<void> | undefined;

  constructor(cluster: Cluster, random: Random, faults: Faults, tell: Told) {
    this.#cluster = cluster;
    this.#random = random;
    this.#faults = faults;
    this.#tell = tell;
  }

  begin(): void {
    const role = this.#random.pick(DRAWN);
    const which = this.#random.float();
    const [min, max] = this.#random.chance(LONG) ? PAUSE_MS.long : PAUSE_MS.short;
    const forMs = this.#random.between(min, max);
    if (this.#current !== undefined) return;
    const victims = this.#cluster.victims(role);
    const victim = victims[Math.floor(which * victims.length)];
    if (victim === undefined) return;
    this.#faults.pauses[role] += 1;
    this.#tell(`stopped for ${Math.round(forMs)} ms: ${victim.name}`);
    this.#current = this.#hold(victim, forMs);
  }

  async end(): Promise<void> {
    this.#ending.abort();
    await this.#current;
  }

  async #hold({ pid }: Victim, forMs: number): Promise<void> {
    signal(pid, 'SIGSTOP');
    await delay(forMs, undefined, { signal: this.#ending.signal }).catch(() => undefined);
    signal(pid, 'SIGCONT');
    this.#current = undefined;
  }
}
