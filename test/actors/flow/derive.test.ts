/** The script API (INTERFACES 3) against a log that is played: jobs end as the test says. */
import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { test } from 'node:test';
import {
  Derivation,
  type History,
  type KnownAnswer,
  type KnownJob,
  type ScriptEnv,
  type Step,
} from '../../../actors/flow/derive.ts';
import { type ErrorRecord, failure } from '../../../schemas/errors.ts';

const START_MS = 1_000_000;

/** How job n ends: its value, or its error; in which place of the log and when. */
type Ending = { value?: unknown; error?: ErrorRecord; seq?: number; at?: number };
type Answers = Record<string, (args: string) => unknown>;

const env = (script: string, overrides: Partial<ScriptEnv> = {}): ScriptEnv => ({
  script,
  args: '{}',
  flow: 'a'.repeat(26),
  context: 'default',
  caller: 'U',
  grants: ['process', 'kv:read', 'kv:write'],
  allowed: ['process', 'kv:*'],
  deployedMs: START_MS,
  sha256: (text) => createHash('sha256').update(text).digest('hex'),
  ...overrides,
});

/** A log that grows as a supervisor would let it: what the script asks is answered, what it spawns ends. */
class PlayedLog implements History {
  readonly answers: KnownAnswer[] = [];
  readonly jobs: KnownJob[] = [];
  nowMs = START_MS;
  readonly #endings: Ending[];
  readonly #replies: Answers;

  constructor(endings: Ending[], replies: Answers = {}) {
    this.#endings = endings;
    this.#replies = replies;
  }

  job(n: number): KnownJob | undefined {
    return this.jobs[n];
  }

  answer(k: number): KnownAnswer | undefined {
    return this.answers[k];
  }

  /** Runs a script to its end. */
  run(
    given: ScriptEnv,
    derivation = new Derivation(given),
  ): { step: Step; derivation: Derivation } {
    for (let rounds = 0; rounds < 1000; rounds++) {
      const step = derivation.advance(this, 10_000);
      for (const { n, digest } of derivation.jobs) this.jobs[n] ??= pending(digest);
      if (step.state === 'done' || step.state === 'failed') return { step, derivation };
      if (step.state === 'waiting') this.#end(step.jobs);
      if (step.state === 'sleeps') {
        this.answers[step.k] = { type: 'timer', dueMs: this.nowMs + step.ms };
      }
      if (step.state === 'until') this.nowMs = step.dueMs;
      if (step.state === 'asks') {
        const { name, args } = step;
        const answer = JSON.stringify(this.#replies[name]?.(args) ?? null);
        this.answers[step.k] = { type: 'call', name, args, answer, error: null };
      }
    }
    throw new Error('the script does not end');
  }

  #end(jobs: number[]): void {
    for (const n of jobs) {
      const { value = null, error = null, seq = 10 + n, at = this.nowMs } = this.#endings[n] ?? {};
      const status = error === null ? 'completed' : 'failed';
      const ended = { endedSeq: seq, endedAt: at, value: JSON.stringify(value), error };
      this.jobs[n] = { digest: this.jobs[n]?.digest ?? '', status, ...ended };
    }
  }
}

const pending = (digest: string): KnownJob => ({
  digest,
  status: 'pending',
  endedSeq: null,
  endedAt: null,
  value: null,
  error: null,
});

function valueOf(script: string, endings: Ending[] = [], replies: Answers = {}): unknown {
  const { step } = new PlayedLog(endings, replies).run(env(script));
  assert.equal(step.state, 'done', JSON.stringify(step));
  return step.state === 'done' ? JSON.parse(step.value) : undefined;
}

function errorOf(
  script: string,
  endings: Ending[] = [],
  given: Partial<ScriptEnv> = {},
): ErrorRecord {
  const { step } = new PlayedLog(endings).run(env(script, given));
  assert.ok(step.state === 'failed', JSON.stringify(step));
  return step.error;
}

const FULL = failure(
  'job_failed',
  'sh exited with code 28',
  { node: 'n1' },
  failure('job_failed', 'disk'),
);
const TWO = 'let a = process("a"); let b = process("b"); ';

test('derive - joins: values, the first to end by the log, and what never throws', () => {
  const both = [
    { value: 'one', seq: 30 },
    { value: 'two', seq: 20 },
  ];
  assert.deepEqual(valueOf(`${TWO} [join(a), b.value]`, both), ['one', 'two']);
  assert.deepEqual(valueOf(`${TWO} join_all([b, a])`, both), ['two', 'one']);
  assert.deepEqual(valueOf(`${TWO} join_any([a, b])`, both), 'two');
  assert.deepEqual(
    valueOf(`${TWO} [try_join(a), try_join(b).error.code]`, [{ value: 1 }, { error: FULL }]),
    [{ error: null, ok: true, value: 1 }, 'job_failed'],
  );
  assert.deepEqual(valueOf('join_all([])'), []);
});

test('derive - a failed job throws at its join; what is caught says all that is known', () => {
  const script = 'let a = process("a"); try { join(a) } catch (e) { return e; } 0';
  const job = `${'a'.repeat(26)}.0`;
  assert.deepEqual(valueOf(script, [{ error: FULL }]), {
    cause: { cause: null, code: 'job_failed', message: 'disk', node: null },
    code: 'job_failed',
    job,
    message: 'sh exited with code 28',
    name: 'a',
    node: 'n1',
  });
  const uncaught = errorOf('\n let a = process("a");\n  join(a)', [{ error: FULL }]);
  assert.equal(uncaught.code, 'job_failed');
  assert.match(uncaught.message, /^line 3: job 0 \(a\): sh exited with code 28/);
  assert.deepEqual(uncaught.cause, FULL);
  assert.equal(
    errorOf(`${TWO} join_any([a, b])`, [{ error: FULL, seq: 1 }, { seq: 2 }]).code,
    'job_failed',
  );
});

test('derive - jobs that were never joined are named when the script is done', () => {
  const { step } = new PlayedLog([]).run(env(`${TWO} join(b); 5`));
  assert.deepEqual(step, { state: 'done', value: '5', unjoined: [0] });
});

test('derive - a handle: id, status, node, cancel; the last three are recorded', () => {
  const replies = { status: () => 'running', node: () => 'n7', cancel: () => null };
  const log = new PlayedLog([], replies);
  const script = 'let a = process("a"); [a.id, a.status, a.node, a.cancel(), try_join(a).ok]';
  const { step } = log.run(env(script));
  assert.deepEqual(step.state === 'done' && JSON.parse(step.value), [
    `${'a'.repeat(26)}.0`,
    'running',
    'n7',
    null,
    true,
  ]);
  assert.deepEqual(
    log.answers.map((answer) => answer.type === 'call' && [answer.name, answer.args]),
    [
      ['status', '0'],
      ['node', '0'],
      ['cancel', '0'],
    ],
  );
});

test('derive - time stands still but for what the script waits for', () => {
  assert.deepEqual(valueOf('let t = now(); sleep("2d"); sleep(1); sleep(0.5); [t, now() - t]'), [
    START_MS,
    2 * 86_400_000 + 1500,
  ]);
  assert.equal(
    valueOf('let a = process("a"); join(a); now()', [{ at: START_MS + 77 }]),
    START_MS + 77,
  );
});

test('derive - run again from the log alone it does the same, and asks nothing new', () => {
  const script = `
    let jobs = [];
    for n in 0..5 { jobs.push(process(#{ cmd: "x", args: [uuid(), \`\${random()}\`] })); }
    sleep("1h");
    let seen = nodes(#{ group: "g" }).len;
    kv_set("k", now());
    [join_all(jobs), seen, kv_get("k"), now(), uuid()]`;
  const log = new PlayedLog([], { nodes: () => [{ name: 'n' }], kv_get: () => 9 });
  const first = log.run(env(script));
  const [answers, jobs] = [log.answers.length, JSON.stringify(log.jobs)];
  const again = log.run(env(script));
  assert.deepEqual(again.step, first.step);
  assert.deepEqual(again.derivation.jobs, first.derivation.jobs);
  assert.equal(log.answers.length, answers);
  assert.equal(JSON.stringify(log.jobs), jobs);
  assert.ok(again.derivation.takeNotes().every(({ replayed }) => replayed));
});

test('derive - another script than the log was made by is found out, and cannot catch it', () => {
  const log = new PlayedLog([{ value: 1 }]);
  log.run(env('join(process("a")); sleep(1); 1'));
  const of = (script: string): string => {
    const { step } = log.run(env(script));
    return step.state === 'failed'
      ? `${step.error.code} ${step.error.message.slice(0, 6)}`
      : step.state;
  };
  assert.equal(of('try { join(process("b")) } catch { } sleep(1); 1'), 'replay_mismatch line 1');
  assert.equal(
    of('join(process("a"));\ntry { kv_get("k") } catch { } 1'),
    'replay_mismatch line 2',
  );
});

test('derive - what was not granted, or is not allowed, is refused where it is asked for', () => {
  const granted = errorOf('process("a")', [], { grants: [] });
  assert.equal(granted.code, 'capability_not_granted');
  assert.match(granted.message, /--grant process/);
  assert.equal(
    errorOf('kv_set("k", 1)', [], { allowed: ['process'] }).code,
    'capability_not_allowed',
  );
  const caught = 'try { sal("file.read", #{ path: "x" }) } catch (e) { return e.code; } 0';
  assert.equal(valueOf(caught), 'capability_not_granted');
});

test('derive - mistakes name the key, what is wrong and what would do', () => {
  const cases: [script: string, said: RegExp][] = [
    ['process(#{ cmd: "a", retrys: 3 })', /key `retrys` is not known; did you mean `retries`\?/],
    ['process(#{ cmd: "a", timeout: "soon" })', /`timeout` must be a duration like "500ms"/],
    ['process(#{ cmd: "a", after: ["x"] })', /`after` must be an array of job handles/],
    ['process(#{ cmd: "a", retries: 1000 })', /`retries` must be a whole number from 0 to 100/],
    ['process(#{ cmd: "a", node: "group=" })', /"group=" is no selector term/],
    ['process(#{ args: [] })', /process needs `cmd`/],
    ['process("a", "b")', /the second argument is an array/],
    ['sal("write", #{})', /write family\.operation/],
    ['join(3)', /join takes the handle of a job/],
    ['join_any([])', /join_any of no jobs would wait for ever/],
    ['sleep("1w")', /`sleep` must be a duration/],
    ['progress("half", 1)', /whole numbers/],
    ['arg("missing")', /pass --arg missing=/],
  ];
  for (const [script, said] of cases) assert.match(errorOf(script).message, said, script);
});

test('derive - nothing is run when a script names what is not there, or would evaluate text', () => {
  const cases: [script: string, said: RegExp][] = [
    ['log("begins");\nlet x = 1;\nx + nope', /Undefined variable: nope \(line 3, position 5\)/],
    ['log("begins");\nif false { nope }', /Undefined variable: nope \(line 2, position 12\)/],
    ['log("begins"); eval("1 + 1")', /reserved keyword 'eval' is disabled \(line 1, position 16\)/],
    ['log("begins"); let eval = 1;', /'eval' is (disabled|a reserved)/],
  ];
  for (const [script, said] of cases) {
    const { step, derivation } = new PlayedLog([]).run(env(script));
    assert.ok(step.state === 'failed', script);
    assert.match(step.error.message, said, script);
    assert.match(step.error.message, /\nhint: /, script);
    assert.equal(step.error.code, 'script_syntax', script);
    assert.deepEqual(derivation.takeNotes(), [], script);
  }
});

test('derive - more jobs than a script may spawn are script_limit', () => {
  // Not on a node: there a script is held at its spawns, and the jobs before the limit would all be run.
  const error = errorOf('for i in 0..1000000 { process("true"); }');
  assert.equal(error.code, 'script_limit');
  assert.match(error.message, /at most 200000 jobs/);
});

test('derive - arguments and constants of the flow', () => {
  const given = { args: '{"n":9223372036854775807,"x":1.0}' };
  const { step } = new PlayedLog([]).run(
    env('[arg("n"), arg("x"), args.n, arg("y", "z"), flow, context, caller]', given),
  );
  const constants = `"${'a'.repeat(26)}","default","U"`;
  const max = '9223372036854775807';
  assert.equal(step.state === 'done' && step.value, `[${max},1.0,${max},"z",${constants}]`);
});

test('derive - log and progress are notes, in order', () => {
  const { derivation } = new PlayedLog([]).run(
    env('log("a"); progress(1, 2, "b"); log(#{c: 1}); print("d");'),
  );
  assert.deepEqual(
    derivation.takeNotes().map(({ stream, text }) => `${stream} ${text}`),
    ['log a', 'progress 1/2 b', 'log {"c":1}', 'log d'],
  );
});

test('derive - a script that is held at its spawns derives the same, and is never held by what the log has', () => {
  const script = `let all = [];
    for i in 0..40 { all.push(process("echo", [i.to_string()])); }
    [1, 2].map(|i| join(process("echo", [i.to_string()])));
    join_all(all).len()`;
  const free = new PlayedLog([]).run(env(script));
  const held = new PlayedLog([]);
  const derivation = new Derivation(env(script));
  let holds = 0;
  for (let spawnTo = 5; ; ) {
    const history = { ...bound(held), spawnTo };
    const step = derivation.advance(history, 10_000);
    for (const { n, digest } of derivation.jobs) held.jobs[n] ??= pending(digest);
    if (step.state === 'held') {
      holds += 1;
      assert.equal(step.jobs, spawnTo, 'held at the very job');
      spawnTo += 5;
      continue;
    }
    if (step.state !== 'waiting') break;
    for (const n of step.jobs) {
      const end = { status: 'completed' as const, endedSeq: 10 + n, endedAt: 1, value: 'null' };
      held.jobs[n] = { ...(held.jobs[n] as KnownJob), ...end };
    }
  }
  assert.ok(holds > 5, String(holds));
  assert.deepEqual(derivation.jobs, free.derivation.jobs);
  const again = new Derivation(env(script)).advance({ ...bound(held), spawnTo: 0 }, 1_000_000);
  assert.equal(
    again.state,
    'done',
    'a replay passes all jobs of the log, however many it may spawn',
  );
});

const bound = (log: PlayedLog): History => ({
  job: (n) => log.job(n),
  answer: (k) => log.answer(k),
  nowMs: START_MS,
});

test('derive - a delay stands in the spec, and nowhere where there is none', () => {
  const script = 'process(#{cmd: "a", delay: "10m"}); process(#{cmd: "a"}); 0';
  const { derivation } = new PlayedLog([]).run(env(script));
  assert.deepEqual(
    derivation.jobs.map(({ spec }) => spec.delay_ms),
    [600_000, undefined],
  );
  assert.ok(!('delay_ms' in (derivation.jobs[1]?.spec ?? {})));
  assert.match(errorOf('process(#{cmd: "a", delay: "400d"})').message, /at most 365 days/);
});
