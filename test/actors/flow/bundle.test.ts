/** Bundles and large values against a log that is played: found, refused and replayed the same. */
import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { test } from 'node:test';
import { moduleName } from '../../../actors/flow/bundle.ts';
import {
  Derivation,
  type KnownJob,
  type ScriptEnv,
  type Step,
} from '../../../actors/flow/derive.ts';
import type { BlobRef } from '../../../schemas/blob.ts';
import { Deployment } from '../../../schemas/deployment.ts';
import { ProcessPayload } from '../../../schemas/job.ts';

const sha256 = (text: string): string => createHash('sha256').update(text).digest('hex');

type Modules = Record<string, string>;
const env = (script: string, modules: Modules = {}, more: Partial<ScriptEnv> = {}): ScriptEnv => ({
  script,
  modules,
  args: '{}',
  flow: 'a'.repeat(26),
  context: 'default',
  caller: 'U',
  grants: ['process'],
  allowed: ['process'],
  deployedMs: 1_000_000,
  sha256,
  ...more,
});

/** Ends every job it is asked for with the value given; large ones come only when they are fetched. */
class Log {
  readonly jobs = new Map<number, KnownJob>();
  readonly fetched: number[][] = [];
  readonly #values: string[];
  readonly #asBlobs: boolean;
  #large = new Map<number, string>();

  constructor(values: unknown[], asBlobs = false) {
    this.#values = values.map((value) => JSON.stringify(value));
    this.#asBlobs = asBlobs;
  }

  run(given: ScriptEnv): { step: Step; derivation: Derivation } {
    const derivation = new Derivation(given);
    const history = {
      job: (n: number) => this.jobs.get(n),
      answer: () => undefined,
      large: (n: number) => this.#large.get(n),
      nowMs: 0,
    };
    for (let rounds = 0; rounds < 100; rounds++) {
      const step = derivation.advance(history, 100_000);
      // As in a worker: what was fetched is there for one advance.
      this.#large = new Map();
      if (step.state === 'waiting') this.#endAll(derivation);
      else if (step.state === 'fetches') {
        this.fetched.push(step.jobs);
        this.#large = new Map(step.jobs.map((n) => [n, this.#values[n] ?? 'null']));
      } else return { step, derivation };
    }
    throw new Error('the script does not end');
  }

  /** The last one first. */
  #endAll({ jobs }: Derivation): void {
    for (const { n, digest } of jobs.toReversed()) if (!this.jobs.has(n)) this.#end(n, digest);
  }

  #end(n: number, digest: string): void {
    const text = this.#values[n] ?? 'null';
    const valueRef: BlobRef | null = this.#asBlobs
      ? { blob: sha256(text), size: text.length }
      : null;
    this.jobs.set(n, {
      digest,
      status: 'completed',
      endedSeq: this.jobs.size,
      endedAt: 0,
      value: this.#asBlobs ? null : text,
      valueRef,
      error: null,
    });
  }
}

function errorOf(given: ScriptEnv): { code: string; message: string } {
  const { step } = new Log([]).run(given);
  assert.equal(step.state, 'failed');
  return step.state === 'failed' ? step.error : { code: '', message: '' };
}

const MODULES: Modules = {
  'lib/jobs': 'import "../names" as names;\nfn begin(n) {\n  process("echo", [names::of(n)])\n}',
  names: 'fn of(n) { `job ${n}` }\nexport const FIRST = join(process("first")).stdout;',
};

test('bundle - what an import means', () => {
  const cases: [path: string, from: string, name: string][] = [
    ['util', '', 'util'],
    ['lib/util.rhai', '', 'lib/util'],
    ['./util', 'lib/main', 'lib/util'],
    ['../util', 'lib/main', 'util'],
    ['../util', 'main', '../util'],
    ['../../a', '../lib/x', '../../a'],
    ['a//b/./c', '', 'a/b/c'],
    ['/etc/passwd', 'lib/x', '/etc/passwd'],
  ];
  for (const [path, from, name] of cases) assert.equal(moduleName(path, from), name, path);
});

test('bundle - modules spawn, join and are replayed to the same jobs', () => {
  const script =
    'import "lib/jobs" as jobs;\nlet a = jobs::begin(1);\njoin(a).stdout + join(jobs::begin(2)).stdout';
  const log = new Log([{ stdout: 'f' }, { stdout: 'one' }, { stdout: 'two' }]);
  const first = log.run(env(script, MODULES));
  assert.deepEqual(first.step, { state: 'done', value: '"onetwo"', unjoined: [] });
  assert.deepEqual(
    first.derivation.jobs.map(({ spec, line }) => [
      (spec.payload as { args?: string[] }).args,
      line,
    ]),
    [
      [undefined, 2],
      [['job 1'], 3],
      [['job 2'], 3],
    ],
  );
  const again = log.run(env(script, MODULES));
  assert.deepEqual(again.step, first.step);
  assert.deepEqual(again.derivation.jobs, first.derivation.jobs);
  // Another module is another script: the log does not fit it.
  const changed = { ...MODULES, names: MODULES['names']?.replace('job ', 'Job ') ?? '' };
  const { step } = log.run(env(script, changed));
  assert.equal(step.state === 'failed' && step.error.code, 'replay_mismatch');
});

test('bundle - what does not fit together is refused before anything is spawned', () => {
  const cases: [script: string, modules: Modules, says: RegExp][] = [
    [
      'import "nope" as n;',
      {},
      /^1: import "nope" as n;\n +\^ .*no module "nope"; none was signed/,
    ],
    ['import "a" as a;', { a: '\nimport "b" as b;' }, /^a:2: import "b" as b;\n +\^ .*there are a/],
    ['import "a" as a;', { a: 'fn f( {' }, /^a:1: fn f\( \{\n +\^ Syntax error/],
    ['import "a" as a;', { a: 'fn f() { args }' }, /^a:1: fn f.*\n +\^ .*Undefined variable: args/],
    [
      'import "x/a" as a;',
      { 'x/a': 'import "b" as b;', 'x/b': 'import "../x/a" as a;' },
      /^x\/b:1: .*\n +\^ .*imports go round: x\/a -> x\/b -> x\/a/,
    ],
    ['import "/etc/a" as a;', { a: '' }, /no module "\/etc\/a"/],
    ['import "__proto__" as a;', { a: '' }, /no module "__proto__"/],
  ];
  for (const [script, modules, says] of cases) {
    const { code, message } = errorOf(env(script, modules));
    assert.equal(code, 'script_syntax', script);
    assert.match(message, says);
  }
  const large = { a: `//${'é'.repeat(260 * 1024)}` };
  assert.equal(errorOf(env('import "a" as a;', large)).code, 'script_limit');
});

test('bundle - an import whose path is computed finds the bundle only, and does not go round for ever', () => {
  const modules = { a: 'let me = "a"; import me as again;' };
  assert.equal(errorOf(env('let n = "b"; import n as b;', modules)).code, 'script_failed');
  assert.equal(errorOf(env('import "a" as a;', modules)).code, 'script_limit');
});

test('bundle - an error in a module names module, line and place', () => {
  const modules = {
    'lib/bad': 'fn f(x) {\n  x.nothing\n}\nfn g() { throw "no" }\nfn h() { arg("who") }',
  };
  const run = (call: string) => errorOf(env(`import "lib/bad" as b;\nb::${call}`, modules)).message;
  assert.match(run('f(1)'), /^lib\/bad:2: {3}x\.nothing\n +\^ Unknown property 'nothing'/);
  assert.match(run('g()'), /^lib\/bad:4: fn g\(\) \{ throw "no" \}\n +\^ Runtime error: no/);
  assert.match(run('h()'), /^lib\/bad line 5: argument "who" is missing/);
});

test('bundle - names on the wire: normal forms only, a bounded number', () => {
  const payload = (more: object): unknown => ({
    v: 1,
    context: 'default',
    script: '1',
    nonce: 'n'.repeat(8),
    issued_at: '2026-01-01T00:00:00.000Z',
    expires_at: '2026-01-01T00:01:00.000Z',
    ...more,
  });
  const accepts = (more: object): boolean => Deployment.safeParse(payload(more)).success;
  for (const name of ['a', 'lib/a', '../a', '../../lib/a', 'a b', '..a/b']) {
    assert.ok(accepts({ modules: { [name]: '' } }), name);
    assert.equal(moduleName(name, ''), name);
  }
  for (const name of [
    '',
    '/a',
    'a/',
    './a',
    'a/./b',
    'a/../b',
    'a//b',
    '..',
    'a/..',
    'a\0',
    'a\nb',
  ]) {
    assert.ok(!accepts({ modules: { [name]: '' } }), JSON.stringify(name));
  }
  const many = Array.from({ length: 65 }, (_, i): [string, string] => [`m${i}`, '']);
  assert.ok(!accepts({ modules: Object.fromEntries(many) }));
  const file = { sha256: 'a'.repeat(64), size: 1 };
  assert.ok(accepts({ files: { 'conf/app.toml': file } }));
  assert.ok(!accepts({ files: { '../app.toml': file } }));
  assert.ok(!accepts({ files: { a: { ...file, sha256: 'A'.repeat(64) } } }));
});

test('files - a job names what was sent along, by what was signed of it', () => {
  const files = {
    conf: { sha256: 'c'.repeat(64), size: 3 },
    'bin/run': { sha256: 'd'.repeat(64), size: 5 },
  };
  const spawn = (given: string): Step & { files?: unknown } => {
    const { step, derivation } = new Log([]).run(
      env(`process(#{cmd: "x", files: ${given}}); 0`, {}, { files }),
    );
    const payload = derivation.jobs[0]?.spec.payload;
    return { ...step, files: payload === undefined ? [] : ProcessPayload.parse(payload).files };
  };
  assert.deepEqual(spawn('["bin/run"]').files, [{ ...files['bin/run'], path: 'bin/run' }]);
  assert.deepEqual(spawn('#{"z": "conf", "etc/app": "conf"}').files, [
    { ...files.conf, path: 'etc/app' },
    { ...files.conf, path: 'z' },
  ]);
  const wrong: [given: string, says: RegExp][] = [
    ['["nope"]', /"nope" was not sent along; there are: conf, bin\/run/],
    ['#{"../x": "conf"}', /"\.\.\/x" cannot be placed: it has a part `\.\.`/],
    ['#{"/x": "conf"}', /it is absolute/],
    ['#{"a": "conf", "a/b": "conf"}', /`a` is a file, and a folder of `a\/b`/],
    ['["conf", "conf"]', /`conf` stands twice/],
    ['"conf"', /must be an array of names, or a map/],
  ];
  for (const [given, says] of wrong) {
    const step = spawn(given);
    assert.ok(step.state === 'failed', given);
    assert.equal(step.error.code, 'bad_job');
    assert.match(step.error.message, says);
  }
});

test('values - large ones are fetched when they are joined, and replayed to the same', () => {
  const big = ['x'.repeat(100), 'y'.repeat(200), 'z'.repeat(300)];
  const script = `
    let jobs = [process("a"), process("b"), process("c")];
    let one = jobs[0].value.len();
    let first = join_any(jobs);
    let all = join_all(jobs).map(|v| v.len());
    let tried = try_join(jobs[1]);
    [one, all, first, tried.ok, tried.value.len()]`;
  const log = new Log(big, true);
  const first = log.run(env(script)).step;
  const expected = JSON.stringify([100, [100, 200, 300], 'z'.repeat(300), true, 200]);
  assert.deepEqual(first, { state: 'done', value: expected, unjoined: [] });
  // The winner of join_any is the one that ended first, and only its value is fetched; what is joined
  // together is there together.
  assert.deepEqual(log.fetched, [[0], [2], [0, 1, 2]]);
  assert.deepEqual(log.run(env(script)).step, first);
  assert.deepEqual(new Log(big).run(env(script)).step, first, 'as if the log held them');
});

test('values - more than a script can hold is refused by what the log says, before it is fetched', () => {
  const log = new Log([], true);
  const given = env('join_all([process("a"), process("b")])');
  const size = 40 * 1024 * 1024;
  const run = log.run(given);
  assert.equal(run.step.state, 'done');
  for (const job of log.jobs.values()) job.valueRef = { blob: 'a'.repeat(64), size };
  log.fetched.length = 0;
  const { step } = log.run(given);
  assert.equal(step.state === 'failed' && step.error.code, 'script_limit');
  assert.deepEqual(log.fetched, []);
});
