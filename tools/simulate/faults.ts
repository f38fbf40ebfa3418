/**
 * What goes wrong in one simulation, and when: made up beforehand under the seed, over a stretch of time
 * after which nothing more goes wrong.
 */
import type { Random } from '../../bus/simulated/random.ts';
import type { Scheduler } from '../../bus/simulated/scheduler.ts';
import { NO_FAULTS, type ServerFaults } from '../../bus/simulated/server.ts';
import type { Machine, Slot, World } from './world.ts';

type Doing = { world: World; random: Random; scheduler: Scheduler };
type Fault = (doing: Doing) => void;

const ROLES_THAT_DIE: ReadonlySet<Slot['role']> = new Set([
  'control',
  'coord',
  'supervisor',
  'runner',
]);

/** How long something lasts: mostly short, now and then longer than every lease and liveness window. */
function lasting(random: Random): number {
  return random.chance(0.6) ? random.between(50, 3000) : random.between(3000, 16_000);
}

const back = (random: Random) =>
  random.chance(0.7) ? random.between(50, 1500) : random.between(1500, 12_000);

function victim({ world, random }: Doing): Slot {
  return random.pick(world.slots.filter(({ role }) => ROLES_THAT_DIE.has(role)));
}

function machine({ world, random }: Doing): Machine {
  return random.pick(world.machines.filter(({ name }) => name !== 'user'));
}

/** How a cut wire is noticed: by a reset, or when nothing has come for two pings. */
const unnoticed = (random: Random) => (random.chance(0.5) ? null : random.between(3000, 15_000));

const KINDS: Record<string, Fault> = {
  dieBetweenEffects: (doing) => {
    const { world, random } = doing;
    const slot = victim(doing);
    slot.process?.dieAfter(random.whole(0, 25), () =>
      world.kill(slot, 'between two effects', back(random)),
    );
  },
  kill: (doing) => doing.world.kill(victim(doing), 'killed', back(doing.random)),
  stop: (doing) => doing.world.stop(victim(doing), back(doing.random)),
  killMachine: (doing) => {
    const { world, random } = doing;
    const backMs = back(random);
    for (const slot of machine(doing).slots) world.kill(slot, 'its machine died', backMs);
  },
  killAll: ({ world, random }) => {
    for (const slot of world.slots) {
      if (ROLES_THAT_DIE.has(slot.role)) world.kill(slot, 'everything died', back(random));
    }
  },
  pause: (doing) => doing.world.pause(victim(doing), lasting(doing.random)),
  pauseMachine: (doing) => doing.world.pauseMachine(machine(doing), lasting(doing.random)),
  cut: (doing) => {
    const { world, random } = doing;
    const slot = random.pick(world.slots);
    world.cut([slot], { forMs: lasting(random), unnoticedMs: unnoticed(random) });
  },
  cutMachine: (doing) => {
    const { world, random } = doing;
    const cut = { forMs: lasting(random), unnoticedMs: unnoticed(random) };
    world.cut(machine(doing).slots, cut);
  },
  stall: (doing) => {
    const { world, random } = doing;
    world.stall([random.pick(world.slots)], random.between(50, 8000));
  },
  serverStall: ({ world, random }) => world.stall(world.slots, random.between(50, 6000)),
  serverRestart: ({ world, random }) =>
    world.restartServer(random.chance(0.7) ? random.between(50, 1000) : random.between(1000, 8000)),
  serverClock: ({ world, random }) => {
    world.serverWallOffMs += Math.round(random.between(-1500, 1500));
  },
  scriptWorkerDies: ({ world, random }) => {
    const workers = [...world.scriptWorkers.values()];
    if (workers.length > 0) random.pick(workers).die();
  },
  noise: ({ world, random, scheduler }) => {
    const faults: ServerFaults = {
      lostAck: random.pick([0, 0.02, 0.2]),
      lostReply: random.pick([0, 0.02, 0.1]),
      // With no link going down, as on a route between servers.
      lostCopy: random.pick([0, 0.02, 0.2]),
      againEarly: random.pick([0, 0.1, 0.5]),
    };
    world.server.faults = faults;
    scheduler.after(lasting(random), undefined, () => {
      world.server.faults = { ...NO_FAULTS };
    });
  },
};

export type FaultPlan = { fromMs: number; untilMs: number };

/** Everything that will go wrong, each at its moment. */
export function scheduleFaults(doing: Doing, { fromMs, untilMs }: FaultPlan): number {
  const { random, scheduler, world } = doing;
  const names = Object.keys(KINDS);
  // A simulation of few kinds goes deeper into each than one of all.
  const kinds = random.chance(0.4)
    ? names
    : Array.from({ length: random.whole(1, 4) }, () => random.pick(names));
  const count = random.chance(0.05) ? 0 : random.whole(1, 14);
  for (let i = 0; i < count; i++) {
    const kind = KINDS[random.pick(kinds)];
    scheduler.at(random.between(fromMs, untilMs), undefined, () => kind?.(doing));
  }
  scheduler.at(untilMs, undefined, () => {
    world.server.faults = { ...NO_FAULTS };
  });
  return count;
}
