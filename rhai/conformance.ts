/**
 * The conformance protocol (reference/rhai-protocol.md): one case object in, one answer object out.
 * Every case gets an engine and a scope of its own, and whatever happens in it is in the answer.
 * Typed values are typed.ts; reading lines and writing them is the CLI's.
 */
import { Engine, type VirtualMachine } from './engine.ts';
import { originOf, RhaiError } from './errors.ts';
import type { Settings } from './limits.ts';
import { NameScope, type ScopeVariable } from './state.ts';
import { fromTyped, toTyped, type Typed } from './typed.ts';
import { Cell, type Value } from './values.ts';

type Json = Record<string, unknown>;

function record(value: unknown): Json {
  return typeof value === 'object' && value !== null ? (value as Json) : {};
}
function list(value: unknown): unknown[] {
  return Array.isArray(value) ? value : [];
}
function text(value: unknown): string {
  return typeof value === 'string' ? value : '';
}

interface Knobs {
  settings: Partial<Settings>;
  disabled: Set<string>;
  operators: Map<string, number>;
}

type Knob = (knobs: Knobs, args: readonly unknown[]) => void;

function size(key: keyof Settings, zeroIsNone: boolean): Knob {
  return ({ settings }, [value]) => {
    const n = Number(value);
    Object.assign(settings, { [key]: zeroIsNone || n !== 0 ? n : 0 });
  };
}
function flag(key: keyof Settings): Knob {
  return ({ settings }, [value]) => {
    Object.assign(settings, { [key]: value === true });
  };
}

const KNOBS: Record<string, Knob> = {
  set_max_operations: size('maxOperations', true),
  set_max_call_levels: size('maxCallLevels', false),
  set_max_expr_depths: ({ settings }, [global, fn]) => {
    settings.maxExprDepth = Number(global);
    settings.maxFunctionExprDepth = Number(fn);
  },
  set_max_string_size: size('maxStringSize', true),
  set_max_array_size: size('maxArraySize', true),
  set_max_map_size: size('maxMapSize', true),
  set_max_modules: size('maxModules', false),
  set_max_variables: size('maxVariables', false),
  set_max_functions: size('maxFunctions', false),
  set_fail_on_invalid_map_property: flag('failOnInvalidMapProperty'),
  set_allow_looping: flag('allowLooping'),
  set_allow_shadowing: flag('allowShadowing'),
  set_allow_anonymous_fn: flag('allowAnonymousFn'),
  set_allow_if_expression: flag('allowIfExpression'),
  set_allow_switch_expression: flag('allowSwitchExpression'),
  set_allow_statement_expression: flag('allowStatementExpression'),
  set_allow_loop_expressions: flag('allowLoopExpressions'),
  set_strict_variables: flag('strictVariables'),
  set_fast_operators: flag('fastOperators'),
  set_optimization_level: ({ settings }, [level]) => {
    if (level === 'None' || level === 'Simple' || level === 'Full') {
      settings.optimizationLevel = level;
    }
  },
  disable_symbol: ({ disabled }, [symbol]) => {
    disabled.add(text(symbol));
  },
  register_custom_operator: ({ operators }, [name, precedence]) => {
    operators.set(text(name), Number(precedence));
  },
  new_raw: ({ settings }) => {
    settings.standardLibrary = false;
  },
};

/** Asked every few thousand operations; true ends the case with ErrorTerminated. */
export type Patience = (operations: number) => boolean;

function makeEngine(given: Json, output: unknown[], onProgress?: Patience): Engine {
  const knobs: Knobs = { settings: {}, disabled: new Set(), operators: new Map() };
  for (const entry of list(given['engine'])) {
    const [name, ...args] = list(entry);
    const key = text(name);
    if (Object.hasOwn(KNOBS, key)) KNOBS[key]?.(knobs, args);
  }
  const modules = record(given['modules']);
  return new Engine({
    ...knobs.settings,
    disabledSymbols: knobs.disabled,
    customOperators: knobs.operators,
    resolveModule: (path) => (Object.hasOwn(modules, path) ? text(modules[path]) : undefined),
    clock: () => 0,
    onProgress,
    onPrint: (line) => output.push(['print', line]),
    onDebug: (line, at) => output.push(['debug', line, at.line, at.column]),
  });
}

function makeScope(given: unknown): NameScope {
  return new NameScope(
    list(given).map((entry): ScopeVariable => {
      const { name, value, const: constant } = record(entry);
      return { name: text(name), cell: new Cell(fromTyped(value)), constant: constant === true };
    }),
  );
}

interface Session {
  readonly engine: Engine;
  scope: NameScope;
}

function finish(session: Session, machine: VirtualMachine): Value {
  const outcome = machine.run();
  session.scope = machine.keepScope();
  if (outcome.state === 'done') return outcome.value;
  if (outcome.state === 'failed') throw outcome.error;
  throw new RhaiError('ErrorSystem', { name: 'the script waits for a host' });
}

function runMode(session: Session, mode: string, script: string, step: Json): Value {
  const { engine } = session;
  const scope = session.scope.variables.map((v) => ({
    name: v.name,
    value: v.cell.value,
    constant: v.constant,
  }));
  switch (mode) {
    case 'compile':
      engine.compile(script);
      return null;
    case 'compile_with_scope':
      engine.compile(script, { scope });
      return null;
    case 'compile_expression':
      engine.compile(script, { expression: true });
      return null;
    case 'expression': {
      const program = engine.compile(script, { expression: true, scope });
      return finish(session, engine.startOn(program, session.scope));
    }
    case 'compile_eval':
      return finish(session, engine.startOn(engine.compile(script), session.scope));
    case 'run':
      finish(session, engine.startOn(engine.compile(script, { scope }), session.scope));
      return null;
    case 'call_fn': {
      const call = record(step['call']);
      const args = list(call['args']).map(fromTyped);
      const program = engine.compile(script);
      return finish(session, engine.startCall(program, session.scope, text(call['name']), args));
    }
    case 'parse_json':
      return engine.parseJson(script, step['has_null'] === true);
    default:
      return finish(session, engine.startOn(engine.compile(script, { scope }), session.scope));
  }
}

/** Calls that an answer shows around an error; of more, only the outermost and the error itself. */
const INNER_MAX = 100;

function errorAnswer(error: RhaiError, depth = 0): Json {
  const answer: Json = { error: error.kind, message: error.message };
  const { line, column } = error.position;
  if (line > 0) answer['pos'] = [line, column];
  if (error.parse !== undefined) answer['parse'] = error.parse;
  if (error.lex !== undefined) answer['lex'] = error.lex;
  if (error.inner) {
    const inner = depth < INNER_MAX ? error.inner : originOf(error).error;
    answer['inner'] = errorAnswer(inner, depth + 1);
  }
  if (error.thrown !== undefined) answer['thrown'] = toTyped(error.thrown);
  return answer;
}

function scopeAnswer(scope: NameScope): unknown[] {
  return scope.variables.map((v): [string, boolean, Typed] => [
    v.name,
    v.constant,
    toTyped(v.cell.value),
  ]);
}

/** Runs one case of the protocol. Never throws; ends if the script does, or if the patience does. */
export function runCase(given: object, isOver?: Patience): Json {
  const step = record(given);
  const answer: Json = 'id' in step ? { id: step['id'] } : {};
  const output: unknown[] = [];
  let session: Session | null = null;
  try {
    session = { engine: makeEngine(step, output, isOver), scope: makeScope(step['scope']) };
    for (const entry of list(step['prelude'])) {
      const before = record(entry);
      try {
        runMode(session, text(before['mode']), text(before['script']), before);
      } catch (error) {
        if (!(error instanceof RhaiError)) throw error;
      }
    }
    const value = runMode(session, text(step['mode']), text(step['script']), step);
    answer['ok'] = toTyped(value);
  } catch (thrown) {
    const error =
      thrown instanceof RhaiError
        ? thrown
        : new RhaiError('ErrorSystem', { name: thrown instanceof Error ? thrown.message : '' });
    Object.assign(answer, errorAnswer(error));
  }
  if (output.length > 0) answer['output'] = output;
  if (step['scope_after'] === true && session) answer['scope'] = scopeAnswer(session.scope);
  return answer;
}
