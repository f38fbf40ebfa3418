/**
 * `herobus script run`: runs a script on this machine, without a bus and without jobs.
 *
 * Of a deployment's functions it has those that need nothing but the script itself: arg, log, progress.
 * What spawns or asks is for `deploy`.
 */
import type { Command } from 'commander';
import { type Bundle, explain, moduleSettings, placeOf } from '../../actors/flow/bundle.ts';
import { SCRIPT_LIMITS } from '../../actors/flow/derive.ts';
import { Engine, hintOf, RhaiError, runtimeError, type Value } from '../../rhai/engine.ts';
import { runCase } from '../../rhai/conformance.ts';
import { fromJson, toJson } from '../../rhai/json.ts';
import { RMap } from '../../rhai/values.ts';
import { HeroError } from '../../schemas/errors.ts';
import { exactJson, stringifyTyped } from '../../schemas/json.ts';
import { collect, parseArgs } from './arguments.ts';
import { readBundle } from './bundle.ts';
import { usage } from './failure.ts';
import { answerLines } from './json-lines.ts';
import { globals, print, printJson, say, valueText, withExample } from './output.ts';

type RunOptions = { arg?: string[]; jsonLines?: boolean };

/** A hundred times what the heaviest script of the benchmark takes. */
const CASE_ENDS_WITHIN_MS = 30_000;

/** Spawning and asking: there is nobody to do it. */
const NEEDS_BUS =
  /^(process|container|vm|wasm|script|sal|join|try_join|join_all|join_any|sleep|nodes|kv_(?:get|set|del|list))(?= )/;

export function registerScriptRun(script: Command): void {
  const command = script
    .command('run')
    .description(
      'Runs a script on this machine without a bus: no jobs, no state. Its value goes to stdout.',
    )
    .argument('[file]', 'the script; - reads it from standard input')
    .option('--arg <k=v>', 'an argument: k=v a string, k:=json typed; may be repeated', collect)
    .option('--json-lines', 'cases from standard input, one a line, and as many answers')
    .action(async (path: string | undefined, options: RunOptions, self: Command) => {
      if (options.jsonLines) {
        if (path !== undefined && path !== '-') {
          throw usage('--json-lines reads its cases from standard input, not from a file');
        }
        return answerLines(process.stdin, process.stdout, runPatiently);
      }
      if (path === undefined) throw usage('which script? name its file, or - for standard input');
      return runScript(path, options, globals(self).json ?? false);
    });
  withExample(
    command,
    'herobus script run sums.rhai --arg n:=10',
    'herobus script run --json-lines < cases.jsonl',
  );
}

/** A case that does not end is ended, so that those behind it have their turn. */
function runPatiently(testCase: object): object {
  const until = performance.now() + CASE_ENDS_WITHIN_MS;
  return runCase(testCase, () => performance.now() > until);
}

async function runScript(path: string, options: RunOptions, json: boolean): Promise<void> {
  const args = fromJson(stringifyTyped(parseArgs(options.arg ?? [])));
  const bundle = await readBundle(path);
  const engine = new Engine({
    ...SCRIPT_LIMITS,
    ...moduleSettings(bundle),
    clock: () => performance.now() / 1000,
    onPrint: (text: string) => (json ? say(text) : print(text)),
    onDebug: (text: string) => say(text),
  });
  registerSimple(engine, args);
  const value = exactJson(toJson(valueOf(engine, bundle, args)));
  if (json) printJson('value', value);
  else if (value !== null) print(valueText(value));
}

function valueOf(engine: Engine, bundle: Bundle, args: Value): Value {
  const scope = [{ name: 'args', value: args, constant: true }];
  try {
    const outcome = engine.start(engine.compile(bundle.script, { scope }), scope).run();
    if (outcome.state === 'done') return outcome.value;
    if (outcome.state === 'failed') throw outcome.error;
    throw new HeroError('internal', `the script stopped: ${outcome.state}`);
  } catch (error) {
    if (!(error instanceof RhaiError)) throw error;
    throw told(error, bundle);
  }
}

function told(error: RhaiError, bundle: Bundle): HeroError {
  let inner = error;
  while (inner.inner !== undefined) inner = inner.inner;
  const text = explain(error, bundle);
  const hint = hintOf(error);
  const advice = hint === undefined ? {} : { fix: hint };
  if (error.kind === 'ErrorParsing') {
    return new HeroError('script_syntax', `the script does not compile\n${text}`, advice);
  }
  const missing = inner.kind === 'ErrorFunctionNotFound' ? (inner.details.name ?? '') : '';
  const hosted = NEEDS_BUS.exec(missing)?.[1];
  if (hosted === undefined) {
    return new HeroError('script_failed', `the script failed\n${text}`, advice);
  }
  const where = placeOf(error);
  return new HeroError(
    'script_failed',
    `${hosted}() needs a deployment${where === undefined ? '' : `: ${where}`}`,
    { fix: 'Run the script with `herobus deploy`, or see what it would do with `herobus plan`.' },
  );
}

function registerSimple(engine: Engine, args: Value): void {
  const known = args instanceof RMap ? args.items : new Map<string, Value>();
  engine.registerFn('arg', 1, 2, ([name, fallback], at) => {
    const key = textOf(name);
    const value = known.get(key) ?? fallback;
    if (value !== undefined) return value;
    throw runtimeError(`argument "${key}" is missing: pass --arg ${key}=…`, at);
  });
  engine.registerFn('log', 1, 1, ([text]) => {
    say(textOf(text));
    return null;
  });
  engine.registerFn('progress', 2, 3, ([done, total, text]) => {
    say(`${textOf(done)}/${textOf(total)}${text === undefined ? '' : ` ${textOf(text)}`}`);
    return null;
  });
}

const textOf = (value: Value | undefined): string =>
  typeof value === 'string' ? value : toJson(value ?? null);
