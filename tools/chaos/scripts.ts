/**
 * Deployments made up under a seed: scripts of pieces whose outcome can be computed from how their jobs ended,
 * so that the value a flow must have is known without running its script.
 *
 * Every process job appends one line `<job> <attempt>` to the flow's trace when it begins, in one write.
 */
import type { FlowState, JobState } from '../../actors/flow/fold.ts';
import type { Random } from '../../bus/simulated/random.ts';

export type PlannedJob = {
  /** It writes to the trace. */
  traced: boolean;
  idempotent: boolean;
  /** The script cancels it. */
  cancelled: boolean;
};

/** A key of the user's bucket and what it holds once its flow has completed. */
export type Counter = { key: string; value: number };

/** What a piece does to the running total; undefined: the script fails there. */
type Outcome = (total: number, job: (n: number) => JobState | undefined) => number | undefined;
type Piece = { source: string[]; jobs: PlannedJob[]; counters?: Counter[]; outcome: Outcome };

export type Script = {
  source: string;
  jobs: PlannedJob[];
  counters: Counter[];
  /** The value of a script that ran to its end, by how the jobs ended; undefined: it fails. */
  valueOf: (state: FlowState) => number | undefined;
};

type Making = { random: Random; first: number; key: string };

const PIECES_MAX = 3;
/** What stands for a job that ended without a value. */
const WITHOUT_VALUE = 1000;
const WORK = [
  'echo "$HEROBUS_JOB $HEROBUS_ATTEMPT" >> "$TRACE"',
  'sleep "$SECONDS_OF_WORK"',
  '[ "$HEROBUS_ATTEMPT" -ge "$ENOUGH" ] || exit 7',
  'printf %s "$RESULT"',
].join('; ');
const PREAMBLE = [
  'let trace = arg("trace");',
  `let work = \`${WORK}\`;`,
  'let total = 0;',
  'fn number(value) { parse_int(value.stdout) }',
];

/** `key`: below which the script keeps its counters. */
export function makeScript(random: Random, key: string): Script {
  const pieces: Piece[] = [];
  let first = 0;
  for (let left = random.whole(1, PIECES_MAX); left > 0; left--) {
    const piece = random.pick(PIECES)({ random, first, key: `${key}/${pieces.length}` });
    pieces.push(piece);
    first += piece.jobs.length;
  }
  const fails = random.chance(0.04);
  const last = fails ? 'throw "by design";' : 'total';
  return {
    source: [...PREAMBLE, ...pieces.flatMap(({ source }) => source), last].join('\n'),
    jobs: pieces.flatMap(({ jobs }) => jobs),
    counters: pieces.flatMap(({ counters = [] }) => counters),
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

type WorkOptions = {
  random: Random;
  /** Text of the script: what the job prints. */
  result: string;
  idempotent?: boolean;
  seconds?: number;
  /** Attempts before this one fail. */
  enough?: number;
  more?: string[];
};

function work(options: WorkOptions): string {
  const { random, result, idempotent = true, enough = 1, more = [] } = options;
  const seconds = options.seconds ?? random.between(0.01, random.chance(0.2) ? 2 : 0.5);
  const env = [
    'TRACE: trace',
    `SECONDS_OF_WORK: "${seconds.toFixed(2)}"`,
    `ENOUGH: "${enough}"`,
    `RESULT: ${result}`,
  ];
  const keys = [
    'cmd: "sh"',
    'args: ["-c", work]',
    `env: #{ ${env.join(', ')} }`,
    `idempotent: ${idempotent}`,
    ...(enough > 1 ? ['retries: 4', 'backoff: "100ms"'] : []),
    ...more,
  ];
  return `process(#{ ${keys.join(', ')} })`;
}

const traced = (count: number, idempotent = true): PlannedJob[] =>
  Array.from({ length: count }, () => ({ traced: true, idempotent, cancelled: false }));
const untraced = (count: number): PlannedJob[] =>
  Array.from({ length: count }, () => ({ traced: false, idempotent: true, cancelled: false }));

const completed = (job: JobState | undefined): boolean => job?.status === 'completed';
const numbers = (first: number, count: number) =>
  Array.from({ length: count }, (_, i) => first + i);
const triangle = (count: number): number => (count * (count + 1)) / 2;

/** Jobs side by side, all of which must complete. */
function fan({ random, first }: Making): Piece {
  const count = random.whole(2, 8);
  return {
    source: [
      'let hs = [];',
      `for i in 1..=${count} { hs.push(${work({ random, result: '`${i}`' })}); }`,
      'for v in join_all(hs) { total += number(v); }',
    ],
    jobs: traced(count),
    outcome: (total, at) =>
      numbers(first, count).map(at).every(completed) ? total + triangle(count) : undefined,
  };
}

/** Jobs that may not run again when nobody knows how far they came; some fail first, and are tried again. */
function unrepeatable({ random, first }: Making): Piece {
  const count = random.whole(1, 5);
  const enough = random.chance(0.4) ? 2 : 1;
  const each = work({ random, result: '`${i}`', idempotent: false, enough });
  return {
    source: [
      'let us = [];',
      `for i in 1..=${count} { us.push(${each}); }`,
      'for h in us {',
      '  let r = try_join(h);',
      `  if r.ok { total += number(r.value); } else { total += ${WITHOUT_VALUE}; }`,
      '}',
    ],
    jobs: traced(count, false),
    outcome: (total, at) =>
      numbers(0, count).reduce(
        (sum, i) => sum + (completed(at(first + i)) ? i + 1 : WITHOUT_VALUE),
        total,
      ),
  };
}

/** Fails in its first attempts, by design. */
function stubborn({ random, first }: Making): Piece {
  return {
    source: [`total += number(join(${work({ random, result: '"17"', enough: 3 })}));`],
    jobs: traced(1),
    outcome: (total, at) => (completed(at(first)) ? total + 17 : undefined),
  };
}

/** Each link is made of what the one before gave. */
function chain({ random, first }: Making): Piece {
  const count = random.whole(2, 4);
  const link = work({ random, result: '`${x + 1}`', seconds: 0.05 });
  return {
    source: ['let x = 0;', `for i in 0..${count} { x = number(${link}.value); }`, 'total += x;'],
    jobs: traced(count),
    outcome: (total, at) =>
      numbers(first, count).map(at).every(completed) ? total + count : undefined,
  };
}

function ordered({ random, first }: Making): Piece {
  return {
    source: [
      `let a = ${work({ random, result: '"7"' })};`,
      `let b = ${work({ random, result: '"8"', more: ['after: [a]'] })};`,
      'total += number(join(b));',
      'join(a);',
    ],
    jobs: traced(2),
    outcome: (total, at) => (numbers(first, 2).map(at).every(completed) ? total + 8 : undefined),
  };
}

function anyOf({ random }: Making): Piece {
  return {
    source: [
      `let two = [${work({ random, result: '"3"' })}, ${work({ random, result: '"4"' })}];`,
      'join_any(two);',
      'for h in two { join(h); }',
      'total += 3;',
    ],
    jobs: traced(2),
    outcome: (total) => total + 3,
  };
}

function cancelled({ random, first }: Making): Piece {
  return {
    source: [
      `let c = ${work({ random, result: '"9"', seconds: random.between(0.1, 4) })};`,
      random.chance(0.5) ? `sleep("${random.whole(1, 900)}ms");` : '',
      'c.cancel();',
      'if try_join(c).ok { total += 5; } else { total += 6; }',
    ],
    jobs: [{ traced: true, idempotent: true, cancelled: true }],
    outcome: (total, at) => total + (completed(at(first)) ? 5 : 6),
  };
}

/** One SAL job after another on one key of the user's bucket. */
function kept({ random, first, key }: Making): Piece {
  const count = random.whole(1, 4);
  return {
    source: [
      `for i in 1..=${count} { join(sal("kv.set", #{ key: "${key}", value: i })); }`,
      'join(sal("noop.run", #{}));',
      `total += kv_get("${key}");`,
    ],
    jobs: untraced(count + 1),
    counters: [{ key, value: count }],
    outcome: (total, at) =>
      numbers(first, count + 1)
        .map(at)
        .every(completed)
        ? total + count
        : undefined,
  };
}

/** Counted by the script itself: a step done twice, or not at all, shows. */
function counted({ random, key }: Making): Piece {
  const count = random.whole(2, 6);
  return {
    source: [
      `kv_set("${key}", 0);`,
      `for i in 0..${count} { kv_set("${key}", kv_get("${key}") + 1); }`,
      `total += kv_get("${key}");`,
    ],
    jobs: [],
    counters: [{ key, value: count }],
    outcome: (total) => total + count,
  };
}

function slept({ random }: Making): Piece {
  return {
    source: [`sleep("${random.whole(1, 2500)}ms");`, 'total += 11;'],
    jobs: [],
    outcome: (total) => total + 11,
  };
}

const PIECES = [
  fan,
  fan,
  unrepeatable,
  unrepeatable,
  stubborn,
  chain,
  ordered,
  anyOf,
  cancelled,
  kept,
  counted,
  slept,
];
