/**
 * What a deployment script may call (INTERFACES 3), as host functions of the Rhai engine.
 *
 * The script is capless: it spawns, waits and asks. Nothing here does anything; spawning notes a job down
 * in the run, and everything that waits or asks becomes a `Question` that `derive.ts` answers from the log.
 */
import type { SentFile } from '../../schemas/blob.ts';
import { HeroError } from '../../schemas/errors.ts';
import { JobKind, type JobSpec } from '../../schemas/job.ts';
import {
  type Engine,
  type HostFn,
  HostObject,
  type Position,
  Suspend,
  type Value,
} from '../../rhai/engine.ts';
import { toJson } from '../../rhai/json.ts';
import { Float, RArray, RMap } from '../../rhai/values.ts';
import { durationMs, HANDLE, handleNumber, jobSpec, salSpec } from './spec.ts';

/** What a script waits for or asks. */
export type Question =
  | { type: 'join'; job: number }
  | { type: 'try'; job: number }
  | { type: 'all'; jobs: number[] }
  | { type: 'any'; jobs: number[] }
  | { type: 'call'; name: string; args: string }
  | { type: 'sleep'; ms: number }
  /** It spawned this job and has so many open that it may not go on yet. */
  | { type: 'room'; job: number };

/** What the functions need of the run they belong to. */
export type Run = {
  spawn(spec: JobSpec, at: Position): number;
  /** May it spawn another one now? */
  hasRoom(): boolean;
  /** The answer where the log has one; undefined: the script must wait. Throws what a join throws. */
  answer(question: Question, at: Position): Value | undefined;
  jobId(n: number): string;
  nowMs(): number;
  randomFloat(): number;
  randomUuid(): string;
  arg(name: string): Value | undefined;
  /** What was sent along with the deployment. */
  files: Readonly<Record<string, SentFile>>;
  /** Throws unless the signer granted and the context allows it. */
  require(capability: string): void;
  note(stream: 'log' | 'progress', text: string): void;
};

/** A question stands in an entry of the log. */
const CALL_LENGTH_MAX = 64 * 1024;

const usage = (message: string): HeroError => new HeroError('bad_job', message);

export function registerFunctions(engine: Engine, run: Run, guard: (fn: HostFn) => HostFn): void {
  const define = (name: string, min: number, max: number, fn: HostFn): void =>
    engine.registerFn(name, min, max, guard(fn));
  const ask = (question: Question, at: Position): Value | Suspend =>
    run.answer(question, at) ?? new Suspend(question);

  defineSpawns(define, run);
  defineWaits(define, ask);
  defineState(define, ask, run);
  defineValues(define, ask, run);

  engine.registerType({
    name: HANDLE,
    get: (self: HostObject, property: string) => {
      const n = handleNumber(self) ?? 0;
      switch (property) {
        case 'id':
          return run.jobId(n);
        case 'value':
          return new Suspend({ type: 'join', job: n } satisfies Question);
        case 'status':
        case 'node':
          return new Suspend({ type: 'call', name: property, args: String(n) } satisfies Question);
        default:
          return undefined;
      }
    },
  });
}

type Define = (name: string, min: number, max: number, fn: HostFn) => void;
type Ask = (question: Question, at: Position) => Value | Suspend;

function defineSpawns(define: Define, run: Run): void {
  const spawned = (n: number): Value | Suspend =>
    run.hasRoom() ? handle(n) : new Suspend({ type: 'room', job: n } satisfies Question);
  for (const kind of JobKind.options) {
    if (kind === 'sal') continue;
    define(kind, 1, kind === 'process' ? 2 : 1, (args, at) =>
      spawned(run.spawn(jobSpec(kind, spawnEntries(kind, args), run.files), at)),
    );
  }
  define('sal', 1, 3, ([op, args, options], at) => {
    if (typeof op !== 'string')
      throw usage('sal: the first argument is the operation, as in "file.write"');
    const spec = salSpec(
      op,
      args ?? new RMap(),
      options instanceof RMap ? options.items : new Map(),
    );
    return spawned(run.spawn(spec, at));
  });
}

export const handle = (n: number): HostObject => new HostObject(HANDLE, { n });

/** `process(#{…})`, `process("cmd")` or `process("cmd", ["arg", …])`. */
function spawnEntries(kind: string, args: Value[]): ReadonlyMap<string, Value> {
  const [first, second] = args;
  if (first instanceof RMap && second === undefined) return first.items;
  if (kind === 'process' && typeof first === 'string') {
    if (second !== undefined && !(second instanceof RArray)) {
      throw usage('process("cmd", […]): the second argument is an array of strings');
    }
    const entries = new Map<string, Value>([['cmd', first]]);
    if (second !== undefined) entries.set('args', second);
    return entries;
  }
  throw usage(`${kind} takes a map: ${kind}(#{ … })`);
}

function defineWaits(define: Define, ask: Ask): void {
  const one = (value: Value | undefined, name: string): number => {
    const n = handleNumber(value);
    if (n === undefined) throw usage(`${name} takes the handle of a job`);
    return n;
  };
  const many = (value: Value | undefined, name: string): number[] => {
    if (!(value instanceof RArray)) throw usage(`${name} takes an array of handles`);
    return value.items.map((item) => one(item, name));
  };
  define('join', 1, 1, ([h], at) => ask({ type: 'join', job: one(h, 'join') }, at));
  define('try_join', 1, 1, ([h], at) => ask({ type: 'try', job: one(h, 'try_join') }, at));
  define('join_all', 1, 1, ([hs], at) => ask({ type: 'all', jobs: many(hs, 'join_all') }, at));
  define('join_any', 1, 1, ([hs], at) => {
    const jobs = many(hs, 'join_any');
    if (jobs.length === 0) throw usage('join_any of no jobs would wait for ever');
    return ask({ type: 'any', jobs }, at);
  });
  define('cancel', 1, 1, ([h], at) =>
    ask({ type: 'call', name: 'cancel', args: String(one(h, 'cancel')) }, at),
  );
  define('sleep', 1, 1, ([d], at) => ask({ type: 'sleep', ms: durationMs(d, 'sleep') }, at));
}

function defineState(define: Define, ask: Ask, run: Run): void {
  const key = (value: Value | undefined, name: string): string => {
    if (typeof value !== 'string') throw usage(`${name}: the key is a string`);
    return value;
  };
  const call = (name: string, capability: string, args: Value[], at: Position): Value | Suspend => {
    run.require(capability);
    const text = toJson(new RArray(args));
    if (text.length > CALL_LENGTH_MAX) {
      throw new HeroError(
        'too_large',
        `${name}: key and value have ${text.length} characters; at most ${CALL_LENGTH_MAX} are kept`,
      );
    }
    return ask({ type: 'call', name, args: text }, at);
  };
  define('kv_get', 1, 1, ([k], at) => call('kv_get', 'kv:read', [key(k, 'kv_get')], at));
  define('kv_list', 0, 1, ([p], at) => call('kv_list', 'kv:read', [key(p ?? '', 'kv_list')], at));
  define('kv_del', 1, 1, ([k], at) => call('kv_del', 'kv:write', [key(k, 'kv_del')], at));
  define('kv_set', 2, 2, ([k, v], at) =>
    call('kv_set', 'kv:write', [key(k, 'kv_set'), v ?? null], at),
  );
}

function count(value: Value | undefined): string {
  if (typeof value === 'number') return String(value);
  throw usage('progress: how much is done and how much there is are whole numbers');
}

function defineValues(define: Define, ask: Ask, run: Run): void {
  define('nodes', 0, 1, ([filter], at) =>
    ask({ type: 'call', name: 'nodes', args: toJson(filter ?? new RMap()) }, at),
  );
  define('now', 0, 0, () => run.nowMs());
  define('random', 0, 0, () => new Float(run.randomFloat()));
  define('uuid', 0, 0, () => run.randomUuid());
  define('arg', 1, 2, ([name, fallback]) => {
    if (typeof name !== 'string') throw usage('arg: the name is a string');
    const value = run.arg(name) ?? fallback;
    if (value !== undefined) return value;
    throw new HeroError('script_failed', `argument "${name}" is missing: pass --arg ${name}=…`);
  });
  define('log', 1, 1, ([text]) => {
    run.note('log', typeof text === 'string' ? text : toJson(text ?? null));
    return null;
  });
  define('progress', 2, 3, ([done, total, text]) => {
    run.note(
      'progress',
      `${count(done)}/${count(total)}${typeof text === 'string' ? ` ${text}` : ''}`,
    );
    return null;
  });
}
