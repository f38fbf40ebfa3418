/**
 * Leaving frames: returns that are not plain (to a process, from an eval or a module), and errors on
 * their way to a handler, wrapped as they pass out of functions. Entering frames is frames.ts.
 */
import { stepProcess } from './calls.ts';
import { type FnProto, OP, positionAt } from './bytecode.ts';
import {
  errorToMap,
  isCatchable,
  NO_POSITION,
  type Position,
  RhaiError,
  type StackFrame,
} from './errors.ts';
import { noteFault } from './faults.ts';
import { enterFunction, popFrame } from './frames.ts';
import { functionKey } from './parse-functions.ts';
import { ExitSignal, type Frame, type MachineState, Module, type Stop } from './state.ts';
import { Cell, type Value } from './values.ts';

/** A frame that is not plain returns. */
export function returnSpecial(m: MachineState, value: Value): void {
  const frame = m.top;
  if (frame.captures) {
    for (const { register, cell } of frame.captures) m.regs[register] = cell.value;
  }
  if (frame.kind === 'fn') {
    returnFromFunction(m, frame, value);
    return;
  }
  switch (frame.kind) {
    case 'main':
      if (m.afterMain !== null) callAfterMain(m, frame);
      else m.outcome = { state: 'done', value };
      return;
    case 'eval': {
      // Imports of an eval stay.
      frame.imports = m.imports.length;
      popFrame(m);
      m.regs[frame.dst] = value;
      return;
    }
    case 'import':
      finishImport(m, frame);
      return;
    case 'called':
      popFrame(m);
      m.outcome = { state: 'done', value };
      return;
    default:
  }
}

/** To a script at an absolute register, or to the process that called it. */
function returnFromFunction(m: MachineState, frame: Frame, value: Value): void {
  const self = m.regs[frame.bp] as Value | undefined;
  const below = popFrame(m);
  if (below.process === null) {
    if (frame.dst >= 0) m.regs[frame.dst] = value;
    return;
  }
  if (below.callback && self !== undefined) below.callback.self = self;
  stepProcess(m, value);
}

/** The host's `call_fn`: the function runs on the scope as if it were top level. */
function callAfterMain(m: MachineState, frame: Frame): void {
  const { name, args } = m.afterMain as NonNullable<MachineState['afterMain']>;
  m.afterMain = null;
  const main = frame.proto as FnProto;
  const proto = main.library.find(functionKey(name, args.length, null));
  if (!proto) throw new RhaiError('ErrorFunctionNotFound', { name }, NO_POSITION);
  if (proto.empty) {
    m.outcome = { state: 'done', value: null };
    return;
  }
  // What comes back to the main frame ends the script.
  const window = main.registers;
  const result = window - 1;
  const inner = enterFunction(m, proto, window, result, false);
  // It sees the host's scope; what the script's body declared is gone.
  inner.outer = m.scope;
  m.keepsGlobals = false;
  m.regs[window] = undefined as unknown as Value;
  args.forEach((arg, i) => {
    m.regs[window + 1 + i] = arg;
  });
  inner.kind = 'called';
}

function finishImport(m: MachineState, frame: Frame): void {
  const proto = frame.proto as FnProto;
  const variables = new Map<string, Value>();
  for (const { alias, register } of frame.exports ?? []) {
    const value = m.regs[register] as Value | Cell;
    variables.set(alias, value instanceof Cell ? value.value : value);
  }
  const module = new Module(frame.path, proto.library, variables, m.imports.slice(frame.imports));
  m.modules.set(frame.path, module);
  m.moduleOf.set(proto.library, module);
  popFrame(m);
  if (frame.alias !== '') m.imports.push({ alias: frame.alias, module });
}

/** Whatever was thrown, as an error of Rhai. */
export function asError(thrown: unknown): RhaiError {
  if (thrown instanceof RhaiError) return thrown;
  if (thrown instanceof RangeError) {
    // Nesting of values that JavaScript's own stack or strings cannot follow.
    return /stack/i.test(thrown.message)
      ? new RhaiError('ErrorStackOverflow')
      : new RhaiError('ErrorDataTooLarge', { name: 'Length of string' });
  }
  const message = thrown instanceof Error ? thrown.message : String(thrown);
  return new RhaiError('ErrorSystem', { name: message });
}

function pcOf(m: MachineState, frame: Frame): number {
  return frame === m.faultFrame ? m.faultPc : Math.max(frame.pc - 1, 0);
}

function stackOf(m: MachineState): StackFrame[] {
  const stack: StackFrame[] = [];
  for (let i = m.depth; i >= 0 && stack.length < 64; i--) {
    const frame = m.frames[i] as Frame;
    if (frame.proto === null) continue;
    stack.push({ fn: frame.proto.name, position: positionAt(frame.proto, pcOf(m, frame)) });
  }
  return stack;
}

/** Takes an error to its handler, or ends the script. */
export function unwind(m: MachineState, thrown: unknown): Stop | null {
  if (thrown instanceof ExitSignal) {
    m.depth = 0;
    return { state: 'done', value: thrown.value };
  }
  let error = asError(thrown);
  if (error.callStack.length === 0) error.callStack = stackOf(m);
  noteFault(m, error);
  while (m.depth >= 0) {
    const frame = m.top;
    if (frame.proto === null) {
      const { callback } = frame;
      if (callback?.swallow && isCatchable(error)) {
        m.faultFrame = null;
        try {
          stepProcess(m, null);
          return null;
        } catch (next) {
          // The process's next call failed at once: that is swallowed too, or not.
          error = asError(next);
          continue;
        }
      }
      popFrame(m);
      if (callback?.wrap && error.kind === 'ErrorFunctionNotFound' && error.position.line === 0) {
        error.position = m.position;
      }
      if (callback?.wrap) error = wrap('ErrorInFunctionCall', callback.wrap, error, m.position);
      continue;
    }
    const pc = pcOf(m, frame);
    if (error.position.line === 0 && !isUnplaced(error, frame.proto.code[pc] ?? 0)) {
      // What cannot be indexed at all is told at the bracket, what cannot be an element at the
      // assignment, other faults at the index.
      const { brackets, assignments } = frame.proto;
      const elsewhere = error.details.assigned ? assignments : brackets;
      const known = error.kind === 'ErrorIndexingType' || error.details.assigned;
      error.position = (known ? elsewhere.get(pc) : undefined) ?? positionAt(frame.proto, pc);
    }
    const replaced = handle(m, frame, pc, error);
    if (replaced === null) return null;
    error = replaced;
    if (m.depth === 0) {
      frame.pc = pc;
      break;
    }
    popFrame(m);
    error = leave(m, frame, error);
  }
  return { state: 'failed', error };
}

/**
 * The original gives arithmetic errors of its built-in binary operators no position; the call stack
 * has it, and so has `prettyError`.
 */
function isUnplaced(error: RhaiError, op: number): boolean {
  if (error.kind !== 'ErrorArithmetic') return false;
  return (op >= OP.ADD && op <= OP.BINARY) || (op >= OP.JLTF && op <= OP.JNEIF);
}

/** Null when a handler takes the error; else the error, or the one it stands for. */
function handle(m: MachineState, frame: Frame, pc: number, error: RhaiError): RhaiError | null {
  const { handlers } = frame.proto as FnProto;
  let current = error;
  for (const handler of handlers) {
    if (pc < handler.start || pc >= handler.end) continue;
    const register = frame.bp + handler.register;
    if (handler.target < 0) {
      // Inside a catch block: `throw` without a value throws the caught error again.
      if (current.kind === 'ErrorRuntime' && current.details.value === null) {
        const caught = m.regs[register + 1] as unknown as RhaiError;
        const again = new RhaiError(caught.kind, caught.details, current.position);
        again.callStack = caught.callStack;
        current = again;
      }
      continue;
    }
    if (!isCatchable(current)) continue;
    m.regs[register] = caughtValue(current);
    m.regs[register + 1] = current as unknown as Value;
    frame.pc = handler.target;
    m.faultFrame = null;
    while (m.locks.length > 0 && (m.locks.at(-1)?.depth ?? -1) >= m.depth) {
      const lock = m.locks.pop();
      if (lock) lock.cell.locked = false;
    }
    return null;
  }
  return current;
}

function caughtValue(error: RhaiError): Value {
  let inner = error;
  while (inner.details.inner) inner = inner.details.inner;
  if (inner.kind === 'ErrorRuntime') return inner.details.value ?? null;
  const map = errorToMap(error);
  if (error.position.line > 0) {
    map.items.set('line', error.position.line);
    map.items.set('position', error.position.column);
  }
  return map;
}

/** The error as the caller sees it. */
function leave(m: MachineState, frame: Frame, error: RhaiError): RhaiError {
  const proto = frame.proto as FnProto;
  const below = m.top;
  const at: Position =
    below.proto === null ? NO_POSITION : positionAt(below.proto, Math.max(below.pc - 1, 0));
  if (frame.kind === 'called') return error;
  if (frame.kind === 'import') {
    return wrap('ErrorInModule', frame.path, error, at);
  }
  if (frame.kind === 'eval') return wrap('ErrorInFunctionCall', 'eval', error, at);
  if (!isCatchable(error) && error.kind !== 'ErrorInFunctionCall') {
    if (at.line > 0) error.position = at;
    return error;
  }
  return wrap('ErrorInFunctionCall', proto.name, error, at, proto.library.path);
}

function wrap(
  kind: 'ErrorInFunctionCall' | 'ErrorInModule',
  name: string,
  inner: RhaiError,
  at: Position,
  second = '',
): RhaiError {
  const error = new RhaiError(kind, { name, second, inner }, at);
  error.callStack = inner.callStack;
  return error;
}
