/**
 * Flows made up under a seed: scripts of pieces whose outcome can be computed from how their jobs ended, so
 * that the value a flow must have is known without running its script.
 */
import type { FlowState, JobState } from '../../actors/flow/fold.ts';
import type { Random } from '../../bus/simulated/random.ts';

/** What a piece does to the running total; undefined: the script fails there. */
type Outcome = (total: number, job: (n: number) => JobState | undefined) => number | undefined;
type Piece = { source: string[]; jobs: number; outcome: Outcome };

export type SimulatedScript = {
  source: string;
  /** The value of a script that ran to its end, by how the jobs ended; undefined: it fails. */
  valueOf: (state: FlowState) => number | undefined;
  /** Jobs that cannot end well, by their own fault. */
  faulty: ReadonlySet<number>;
};

type Making = {
  random: Random;
  first: number;
  faulty: Set<number>;
  /** Many jobs, all of them short. */
  heavy: boolean;
  /** Jobs that outlast leases and liveness windows. */
  slow: boolean;
};

const completed = (job: JobState | undefined): boolean => job?.status === 'completed';
const valueOf = (job: JobState | undefined): number => Number(job?.value ?? Number.NaN);

export function makeScript(random: Random): SimulatedScript {
  const faulty = new Set<number>();
  const pieces: Piece[] = [];
  let first = 0;
  const heavy = random.chance(0.06);
  const slow = random.chance(0.15);
  for (let left = random.whole(1, 4); left > 0; left--) {
    const piece = random.pick(PIECES)({ random, first, faulty, heavy, slow });
    pieces.push(piece);
    first += piece.jobs;
  }
  const source = ['let total = 0;', ...pieces.flatMap((piece) => piece.source)];
  const fails = random.chance(0.04);
  source.push(fails ? 'throw "by design";' : 'total');
  return {
    source: source.join('\n'),
    faulty,
    valueOf: (state) => {
      let total: number | undefined = 0;
      for (const { outcome } of pieces) {
        total = outcome(total, (n) => state.jobs[n]);
        if (total === undefined) return undefined;
      }
      return fails ? undefined : total;
    },
  };
}

type JobOptions = { ms?: number; failures?: number; retries?: number; more?: string[] };

/** The source of one job; its value is text of the script. */
function job({ random, slow }: Making, value: string, options: JobOptions = {}): string {
  const most = slow ? 14_000 : random.chance(0.15) ? 6000 : 400;
  const ms = options.ms ?? Math.round(random.between(1, most));
  const keys = [`cmd: "work"`, `args: [${value}, "${ms}", "${options.failures ?? 0}"]`];
  if (options.retries !== undefined) keys.push(`retries: ${options.retries}`, 'backoff: "300ms"');
  if (random.chance(0.6)) keys.push('idempotent: true');
  return `process(#{ ${[...keys, ...(options.more ?? [])].join(', ')} })`;
}

const numbers = (first: number, count: number) =>
  Array.from({ length: count }, (_, i) => first + i);

function fan(making: Making): Piece {
  const { random, first, faulty, heavy } = making;
  const count = heavy ? random.whole(40, 120) : random.whole(1, 8);
  const retries = random.whole(0, 2);
  const failures = random.chance(0.3) ? random.whole(1, 3) : 0;
  const all = numbers(first, count);
  if (failures > retries) for (const n of all) faulty.add(n);
  const tries = failures > retries || random.chance(0.5);
  const ms = heavy ? { ms: random.whole(1, 150) } : {};
  const source = [
    'let hs = [];',
    `for i in 0..${count} { hs.push(${job(making, '`${i + 1}`', { failures, retries, ...ms })}); }`,
  ];
  if (tries) {
    source.push(
      'for h in hs { let r = try_join(h); if r.ok { total += r.value; } else { total += 1000; } }',
    );
    const add = (total: number, each: JobState | undefined) =>
      total + (completed(each) ? valueOf(each) : 1000);
    return { source, jobs: count, outcome: (total, at) => all.map(at).reduce(add, total) };
  }
  source.push('for v in join_all(hs) { total += v; }');
  return {
    source,
    jobs: count,
    outcome: (total, at) =>
      all.map(at).every(completed)
        ? all.map(at).reduce((sum, each) => sum + valueOf(each), total)
        : undefined,
  };
}

function chain(making: Making): Piece {
  const { random, first } = making;
  const count = random.whole(2, 4);
  const all = numbers(first, count);
  return {
    source: [
      'let x = 1;',
      `for i in 0..${count} { x = ${job(making, '`${x + 1}`')}.value; }`,
      'total += x;',
    ],
    jobs: count,
    // A failed link ends the script: what it never spawned is not there.
    outcome: (total, at) =>
      all.map(at).every(completed) ? total + valueOf(at(first + count - 1)) : undefined,
  };
}

function ordered(making: Making): Piece {
  const { first } = making;
  return {
    source: [
      `let a = ${job(making, '"7"')};`,
      `let b = ${job(making, '"8"', { more: ['after: [a]'] })};`,
      'total += join(b);',
    ],
    jobs: 2,
    outcome: (total, at) =>
      completed(at(first + 1)) && completed(at(first)) ? total + 8 : undefined,
  };
}

function cancelled(making: Making): Piece {
  const { random, first, faulty } = making;
  faulty.add(first);
  return {
    source: [
      `let c = ${job(making, '"9"', { ms: random.whole(1, 8000) })};`,
      random.chance(0.5) ? `sleep("${random.whole(1, 900)}ms");` : '',
      'c.cancel();',
      'let r = try_join(c);',
      'if r.ok { total += 5; } else { total += 6; }',
    ],
    jobs: 1,
    outcome: (total, at) => total + (completed(at(first)) ? 5 : 6),
  };
}

function anyOf(making: Making): Piece {
  const { first } = making;
  return {
    source: [
      `let two = [${job(making, '"3"')}, ${job(making, '"4"')}];`,
      'try { join_any(two); } catch { }',
      'for h in two { try_join(h); }',
      'total += 3;',
    ],
    jobs: 2,
    outcome: (total, at) => (numbers(first, 2).every((n) => at(n)) ? total + 3 : undefined),
  };
}

function late(making: Making): Piece {
  const { random, first, faulty } = making;
  faulty.add(first);
  return {
    source: [
      `let t = ${job(making, '"2"', { ms: random.whole(1, 4000), more: ['timeout: "900ms"'] })};`,
      'let r = try_join(t);',
      'if r.ok { total += r.value; } else { total += 1; }',
    ],
    jobs: 1,
    outcome: (total, at) => total + (completed(at(first)) ? 2 : 1),
  };
}

function slept(making: Making): Piece {
  const { random } = making;
  return {
    source: [`sleep("${random.whole(1, 7000)}ms");`, 'total += 11;'],
    jobs: 0,
    outcome: (total) => total + 11,
  };
}

function kept(making: Making): Piece {
  const { random } = making;
  const key = `k${random.word()}`;
  return {
    source: [`kv_set("${key}", total + 1);`, `total += kv_get("${key}");`],
    jobs: 0,
    outcome: (total) => total + total + 1,
  };
}

function asked(making: Making): Piece {
  const { first } = making;
  return {
    source: [
      'let seen = `${random()} ${uuid()} ${now()} ${nodes(#{}).len()}`;',
      'log(seen);',
      `let h = ${job(making, '"13"')};`,
      'log(`${h.status} ${h.node} ${h.id}`);',
      'total += join(h);',
    ],
    jobs: 1,
    outcome: (total, at) => (completed(at(first)) ? total + 13 : undefined),
  };
}

const PIECES = [fan, fan, chain, ordered, cancelled, anyOf, late, slept, kept, asked];
