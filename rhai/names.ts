/**
 * The rarer instructions: variables by name, closures, eval, modules, throw, and the seams for
 * capture calls and the debugger.
 */
import { type CallSite, FnProto, OP, positionAt, type VariableInfo } from './bytecode.ts';
import { callOperation, callSite, scriptTarget } from './calls.ts';
import { mismatch, RhaiError } from './errors.ts';
import { enterCode, enterFunction, freeWindow } from './frames.ts';
import { moduleVariable } from './modules.ts';
import { type Frame, type MachineState, NameScope, type ScopeVariable } from './state.ts';
import { Cell, copyValue, FnPtr, RMap, type Value } from './values.ts';

function flat(value: Value | Cell): Value {
  return value instanceof Cell ? value.value : value;
}

/** The variables in sight at a frame's instruction, outermost first. */
export function visible(frame: Frame, pc: number): VariableInfo[] {
  return (frame.proto as FnProto).variables.filter((v) => v.start <= pc && pc < v.end);
}

function findByName(m: MachineState, frame: Frame, name: string): ScopeVariable | null {
  const { extras } = frame;
  if (extras) {
    for (let i = extras.length - 1; i >= 0; i--) {
      if (extras[i]?.name === name) return extras[i] as ScopeVariable;
    }
  }
  void m;
  return null;
}

function notFound(name: string): RhaiError {
  return new RhaiError('ErrorVariableNotFound', { name });
}

function getName(m: MachineState, frame: Frame, name: string, slot: number): Value {
  const extra = findByName(m, frame, name);
  if (extra) return extra.cell.value;
  if (slot >= 0) {
    const value = m.regs[frame.bp + slot] as Value | Cell;
    if (!(value instanceof Cell)) return value;
    if (value.locked) throw new RhaiError('ErrorDataRace', { name });
    return value.value;
  }
  const variable = frame.outer?.find(name);
  if (!variable) throw notFound(name);
  if (variable.cell.locked) throw new RhaiError('ErrorDataRace', { name });
  return variable.cell.value;
}

function setName(m: MachineState, frame: Frame, name: string, slot: number, value: Value): void {
  const extra = findByName(m, frame, name);
  const variable = extra ?? (slot >= 0 ? null : (frame.outer?.find(name) ?? null));
  if (variable) {
    if (variable.constant) throw new RhaiError('ErrorAssignmentToConstant', { name });
    variable.cell.value = value;
    return;
  }
  if (slot < 0) throw notFound(name);
  const current = m.regs[frame.bp + slot] as Value | Cell;
  if (current instanceof Cell) current.value = value;
  else m.regs[frame.bp + slot] = value;
}

/** A cell for a variable known by name only. */
function cellByName(m: MachineState, frame: Frame, name: string): Cell {
  const variable = findByName(m, frame, name) ?? frame.outer?.find(name);
  if (!variable) throw notFound(name);
  variable.cell.shared = true;
  return variable.cell;
}

/** All variables a frame sees, as a scope; registers become cells, so that writes are shared. */
export function scopeOf(m: MachineState, frame: Frame, pc: number): NameScope {
  const variables: ScopeVariable[] = [...(frame.outer?.variables ?? [])];
  for (const { name, slot, constant } of visible(frame, pc)) {
    const at = frame.bp + slot;
    const value = m.regs[at] as Value | Cell | undefined;
    if (value === undefined) continue;
    const cell = value instanceof Cell ? value : new Cell(value);
    m.regs[at] = cell as unknown as Value;
    variables.push({ name, cell, constant });
  }
  frame.extras ??= [];
  variables.push(...frame.extras);
  return new NameScope(variables, frame.extras);
}

function declare(
  m: MachineState,
  frame: Frame,
  name: string,
  value: Value,
  constant: boolean,
): void {
  const at = m.frames[0]?.pc ?? 0;
  const variable: ScopeVariable = { name, cell: new Cell(value), constant, at };
  frame.outer?.variables.push(variable);
  frame.outer?.additions?.push(variable);
}

function evalCode(m: MachineState, frame: Frame, pc: number): void {
  const code = (frame.proto as FnProto).code;
  const text = flat(m.regs[frame.bp + (code[pc + 1] as number)] as Value);
  frame.pc = pc + 4;
  if (typeof text !== 'string') {
    throw mismatch('string', typeof text === 'object' ? 'value' : 'i64');
  }
  const outer = scopeOf(m, frame, pc);
  const names = outer.variables.map((v) => v.name);
  let proto: FnProto;
  try {
    proto = m.engine.compileEval(text, (frame.proto as FnProto).library, names, false);
  } catch (error) {
    if (!(error instanceof RhaiError)) throw error;
    throw new RhaiError('ErrorInFunctionCall', { name: 'eval', inner: error }, m.position);
  }
  const window = frame.bp + (code[pc + 2] as number);
  const inner = enterCode(m, proto, 'eval', window, frame.bp + (code[pc + 3] as number));
  inner.outer = outer;
}

function importModule(m: MachineState, frame: Frame, pc: number): number {
  const { code, consts, library } = frame.proto as FnProto;
  const alias = consts[code[pc + 1] as number] as string;
  const written = m.regs[frame.bp + (code[pc + 2] as number)] as Value;
  frame.pc = pc + 4;
  if (typeof written !== 'string') throw mismatch('string', written === null ? '()' : 'i64');
  const path = m.settings.modulePath?.(written, library.path) ?? written;
  if (m.moduleCount >= m.settings.maxModules) throw new RhaiError('ErrorTooManyModules');
  m.moduleCount++;
  const known = m.modules.get(path);
  if (known) {
    if (alias !== '') m.imports.push({ alias, module: known });
    return pc + 4;
  }
  const source = m.settings.resolveModule?.(path);
  if (source === undefined) throw new RhaiError('ErrorModuleNotFound', { name: path });
  let proto: FnProto;
  try {
    proto = m.engine.compileModule(source, path, (frame.proto as FnProto).statements.length > 0);
  } catch (error) {
    if (!(error instanceof RhaiError)) throw error;
    throw new RhaiError('ErrorInModule', { name: path, inner: error }, m.position);
  }
  const inner = enterCode(m, proto, 'import', freeWindow(m), -1);
  inner.path = path;
  inner.alias = alias;
  inner.outer = new NameScope([]);
  return -1;
}

/** What sees no scope is called as ever. */
function callWithoutScope(m: MachineState, site: CallSite, window: number, dst: number): boolean {
  if (site.name !== 'call' || site.argc === 0) return callSite(m, site, window, dst);
  return callOperation(m, site.argc - 1, window, dst, false);
}

/** `f!(…)` and `call!(f, …)`: the function sees and changes the caller's variables. */
function captureCall(m: MachineState, frame: Frame, pc: number): number {
  const { code, consts } = frame.proto as FnProto;
  let target = consts[code[pc + 1] as number] as FnProto | CallSite;
  let window = frame.bp + (code[pc + 2] as number);
  const dst = frame.bp + (code[pc + 3] as number);
  frame.pc = pc + 4;
  if (!(target instanceof FnProto)) {
    const fn = target.name === 'call' ? (m.regs[window + 1] as Value) : null;
    const plain = fn instanceof FnPtr && fn.curry.length === 0;
    const pointed = plain ? scriptTarget(m, fn, target.argc - 1, undefined) : null;
    if (pointed === null) return callWithoutScope(m, target, window, dst) ? pc + 4 : -1;
    // Its arguments lie behind the pointer.
    target = pointed;
    window += 1;
  }
  m.regs[window] = undefined as unknown as Value;
  if (target.empty) {
    m.regs[dst] = null;
    return pc + 4;
  }
  const plainSlots = visible(frame, pc).filter((v) => {
    const value = m.regs[frame.bp + v.slot] as Value | Cell | undefined;
    return value !== undefined && !(value instanceof Cell);
  });
  const outer = scopeOf(m, frame, pc);
  const inner = enterFunction(m, target, window, dst, false);
  inner.outer = outer;
  inner.captures = plainSlots.map((v) => {
    const register = frame.bp + v.slot;
    return { register, cell: m.regs[register] as unknown as Cell };
  });
  m.ops += target.cost;
  return -1;
}

function globalConstant(m: MachineState, frame: Frame, name: string): Value {
  for (let l = (frame.proto as FnProto).library; ; l = l.parent as typeof l) {
    const value = m.globals.get(l)?.get(name);
    if (value !== undefined) return value;
    if (!l.parent) break;
  }
  throw notFound(`global::${name}`);
}

function recordGlobal(m: MachineState, frame: Frame, name: string, value: Value): void {
  let { library } = frame.proto as FnProto;
  while (library.parent) library = library.parent;
  let table = m.globals.get(library);
  if (!table) {
    table = new Map();
    m.globals.set(library, table);
  }
  table.set(name, copyValue(value));
}

function isDefined(m: MachineState, frame: Frame, pc: number, name: Value): boolean {
  if (typeof name !== 'string') throw mismatch('string', 'i64');
  if (findByName(m, frame, name) || frame.outer?.find(name)) return true;
  return visible(frame, pc).some((v) => v.name === name);
}

function step(m: MachineState, frame: Frame, pc: number): number {
  if (m.hook === null || m.steppedAt === pc * 4096 + m.depth) {
    m.steppedAt = -1;
    return pc + 1;
  }
  const { statements } = frame.proto as FnProto;
  // Pairs of position and line: a line may be the same number as a position.
  let at = 0;
  while (at < statements.length && statements[at] !== pc) at += 2;
  const line = statements[at + 1] ?? 0;
  const reason = m.hook(line, m.depth);
  if (reason === null) return pc + 1;
  m.steppedAt = pc * 4096 + m.depth;
  frame.pc = pc;
  m.outcome = { state: 'paused', position: positionAt(frame.proto as FnProto, pc), reason };
  return -1;
}

/**
 * Runs one of the rarer instructions. The result is the next code position, or -1 when the frame on
 * top has changed or the machine stops.
 */
// oxlint-disable-next-line max-lines-per-function -- one switch, one short case an instruction
export function runRare(m: MachineState, op: number, frame: Frame, pc: number): number {
  const { code, consts } = frame.proto as FnProto;
  const { regs } = m;
  const { bp } = frame;
  const a = code[pc + 1] as number;
  const b = code[pc + 2] as number;
  const d = code[pc + 3] as number;
  switch (op) {
    case OP.SHARE: {
      const cell = regs[bp + a] as Value | Cell;
      if (cell instanceof Cell) cell.shared = true;
      else {
        const fresh = new Cell(cell);
        fresh.shared = true;
        regs[bp + a] = fresh as unknown as Value;
      }
      return pc + 2;
    }
    case OP.NAMEGET:
      regs[bp + a] = getName(m, frame, consts[b] as string, d);
      return pc + 4;
    case OP.NAMESET:
      setName(m, frame, consts[a] as string, b, regs[bp + d] as Value);
      return pc + 4;
    case OP.NAMEREF:
      regs[bp + a] = cellByName(m, frame, consts[b] as string) as unknown as Value;
      return pc + 4;
    case OP.DECLARE:
      if (b < 0) {
        const name = consts[a] as string;
        if (frame.extras) frame.extras = frame.extras.filter((v) => v.name !== name);
      } else declare(m, frame, consts[a] as string, flat(regs[bp + b] as Value), d === 1);
      return pc + 4;
    case OP.CLOSURE: {
      const first = bp + d;
      const curry = regs.slice(first, first + (code[pc + 4] as number));
      const proto = consts[b] as FnProto;
      regs[bp + a] = new FnPtr(proto.name, curry as (Value | Cell)[], proto, proto.library);
      return pc + 5;
    }
    case OP.THROW: {
      frame.pc = pc + 2;
      throw new RhaiError('ErrorRuntime', { value: regs[bp + a] as Value });
    }
    case OP.EVAL:
      evalCode(m, frame, pc);
      return -1;
    case OP.IMPORT:
      return importModule(m, frame, pc);
    case OP.EXPORT: {
      frame.exports ??= [];
      const alias = consts[d] as string;
      frame.exports.push({ alias, register: bp + b });
      return pc + 5;
    }
    case OP.GLOBALGET:
      regs[bp + a] = globalConstant(m, frame, consts[b] as string);
      return pc + 3;
    case OP.MODULEGET:
      regs[bp + a] = moduleVariable(m, consts[b] as string[]);
      return pc + 3;
    case OP.GLOBALSET:
      recordGlobal(m, frame, consts[a] as string, flat(regs[bp + b] as Value));
      return pc + 3;
    case OP.ISDEF:
      regs[bp + a] = isDefined(m, frame, pc, regs[bp + b] as Value);
      return pc + 3;
    case OP.ISSHARED: {
      const cell = regs[bp + b] as Value | Cell;
      regs[bp + a] = cell instanceof Cell && cell.shared;
      return pc + 3;
    }
    case OP.CONSTCHECK:
      // What is no map has no property to set: a clearer error follows.
      if (b >= 0 && !(regs[bp + b] instanceof RMap)) return pc + 3;
      throw new RhaiError('ErrorAssignmentToConstant', { name: consts[a] as string });
    case OP.VARCHECK: {
      const count = a + (frame.outer?.variables.length ?? 0);
      if (count > m.settings.maxVariables) throw new RhaiError('ErrorTooManyVariables');
      return pc + 2;
    }
    case OP.FNREF: {
      const name = consts[b] as string;
      regs[bp + a] = new FnPtr(name, [], null, (frame.proto as FnProto).library);
      return pc + 3;
    }
    case OP.CALLCAP:
      return captureCall(m, frame, pc);
    case OP.IMPORTEND:
      m.imports.length = Math.max(m.imports.length - a, frame.imports);
      return pc + 2;
    case OP.STEP:
      return step(m, frame, pc);
    case OP.EXTRAS:
      frame.extras ??= [];
      if (b === 0) regs[bp + a] = frame.extras.length;
      else frame.extras.length = Math.min(frame.extras.length, regs[bp + a] as number);
      return pc + 3;
    case OP.LOCKCELL: {
      const cell = regs[bp + a] as unknown as Cell;
      if (b === 1) {
        if (!cell.locked) m.locks.push({ cell, depth: m.depth });
        cell.locked = true;
      } else {
        cell.locked = false;
        const at = m.locks.findLastIndex((l) => l.cell === cell);
        if (at >= 0) m.locks.splice(at, 1);
      }
      return pc + 3;
    }
    default:
      throw new RhaiError('ErrorSystem', { name: `unknown instruction ${op}` });
  }
}
