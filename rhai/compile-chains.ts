/**
 * Code for chains (`a.b[c].d(e)`), read and assigned.
 *
 * As in the original, all indexes and arguments are evaluated first, left to right, then the base,
 * then the steps. A method gets its receiver by reference: the value travels down the path into the
 * window's first register, and afterwards, when the method may have replaced it, back up the path
 * (`Place` remembers the way). What a method returns is a temporary and has no way back.
 */
import type { AssignStmt, ChainExpr, Expr, IndexStep, MethodStep, Step } from './ast.ts';
import { OP } from './bytecode.ts';
import type { FnCompiler } from './compile.ts';
import {
  compileInto,
  cellSlot,
  makeSite,
  mayChangeLocals,
  operatorNumber,
  plainSlot,
  storeVariable,
} from './compile-expressions.ts';
import { functionKey } from './parse-functions.ts';

/** One step of the way from a variable to the current value. */
interface Via {
  readonly register: number;
  readonly step: Step;
  readonly key: number;
}

interface Plan {
  /** Registers of index values, by step. */
  readonly keys: Map<Step, number>;
  /** Windows of method calls, by step. */
  readonly windows: Map<Step, number>;
}

function isMethod(step: Step): step is MethodStep {
  return step.kind === 'method';
}

/** Evaluates the indexes and arguments of all steps into registers. */
function evaluateParts(c: FnCompiler, steps: readonly Step[]): Plan {
  const keys = new Map<Step, number>();
  const windows = new Map<Step, number>();
  const methods = steps.filter(isMethod);
  const indexes = steps.filter((s): s is IndexStep => s.kind === 'index');
  const anyChange = steps.some(
    (s) =>
      (s.kind === 'index' && mayChangeLocals(s.index)) ||
      (isMethod(s) && s.args.some(mayChangeLocals)),
  );
  for (const step of indexes) {
    const slot = anyChange ? -1 : plainSlot(c, step.index);
    keys.set(step, slot >= 0 ? slot : c.take());
  }
  // Registers for what the path reads on its way: below all windows.
  for (const step of steps) if (!isMethod(step)) keys.set(step, keys.get(step) ?? -1);
  // A callee's frame lies over everything above its window, so later calls get lower windows.
  for (const step of methods.toReversed()) {
    windows.set(step, c.take());
    for (let i = 0; i < step.args.length; i++) c.take();
  }
  for (const step of steps) {
    if (step.kind === 'index') {
      const register = keys.get(step) as number;
      if (register !== plainSlot(c, step.index)) compileInto(c, step.index, register, false);
    } else if (isMethod(step)) {
      const window = windows.get(step) as number;
      step.args.forEach((arg, i) => {
        compileInto(c, arg, window + 1 + i, true);
      });
    }
  }
  return { keys, windows };
}

/** Could the method replace the value of its receiver, rather than change it in place? */
function mayReplace(c: FnCompiler, step: MethodStep): boolean {
  const { natives, names } = c.unit;
  const { name, args } = step;
  if (names.has(name) || name === 'call') return true;
  return natives.mayMutate(name, args.length + 1) || !natives.has(name);
}

/** Could callbacks of the method change what its receiver holds? */
function mayLend(c: FnCompiler, step: MethodStep): boolean {
  return c.unit.natives.mayLend(step.name, step.args.length + 1);
}

function loadBase(c: FnCompiler, base: Expr): { register: number; temporary: boolean } {
  const slot = plainSlot(c, base);
  if (slot >= 0) {
    c.cost++;
    return { register: slot, temporary: false };
  }
  const register = c.take();
  compileInto(c, base, register, base.kind === 'const');
  return { register, temporary: base.kind !== 'variable' && base.kind !== 'this' };
}

function read(
  c: FnCompiler,
  step: Step,
  from: number,
  to: number,
  key: number,
  ref: boolean,
): void {
  if (step.kind === 'property') {
    c.at(step.pos);
    c.emit(ref ? OP.REFPROP : OP.GETPROP, to, from, c.constant(step.name));
  } else if (step.kind === 'index') {
    c.at(step.pos);
    c.proto.brackets.set(c.pc, step.opPos);
    c.emit(ref ? OP.REFIDX : OP.GETIDX, to, from, key);
  }
}

function write(c: FnCompiler, via: Via, value: number, op: number = OP.SETPROP): void {
  const { step, register, key } = via;
  c.at(step.pos);
  if (step.kind === 'property') c.emit(op, register, c.constant(step.name), value);
  else if (step.kind === 'index') {
    c.proto.brackets.set(c.pc, step.opPos);
    c.emit(OP.SETIDX, register, key, value);
  }
}

/** Sends a changed value back up the path and into the variable. */
function writeBack(c: FnCompiler, base: Expr, path: readonly Via[], value: number): void {
  let current = value;
  for (const via of path.toReversed()) {
    write(c, via, current, OP.BACKPROP);
    current = via.register;
  }
  storeBase(c, base, current);
}

function storeBase(c: FnCompiler, base: Expr, register: number): void {
  if (base.kind === 'variable' && base.namespace.length === 0) storeVariable(c, base, register);
  else if (base.kind === 'this' && register !== 0) c.emit(OP.MOVE, 0, register);
}

function isConstantBase(base: Expr): boolean {
  return base.kind === 'variable' && (base.decl?.constant === true || base.namespace.length > 0);
}

/** Emits a method call on the value in `receiver`; the result goes to `dst`. */
function callMethod(
  c: FnCompiler,
  step: MethodStep,
  window: number,
  receiver: number,
  dst: number,
  flags: { readonly constant: boolean; readonly onThis: boolean; readonly byRef: boolean },
): void {
  if (receiver !== window) c.emit(OP.MOVE, window, receiver);
  const { name, args } = step;
  c.at(step.pos);
  if (name === 'call') {
    c.emit(OP.CALLON, args.length, window, dst);
    return;
  }
  const key = functionKey(name, args.length, null);
  const site = makeSite(c, name, args.length + 1, {
    plain: c.unit.library.find(key),
    typed: c.unit.typed.get(key) ?? null,
    ...flags,
  });
  c.emit(OP.METHOD, c.constant(site), window, dst);
}

export function compileChain(c: FnCompiler, expr: ChainExpr, dst: number, owned: boolean): void {
  const { base, steps } = expr;
  const mark = c.next;
  // Registers of the path come first, so that the windows of calls lie above them.
  const path = steps.map((step, i) => (isMethod(step) || i === steps.length - 1 ? -1 : c.take()));
  const lastTemp = c.take();
  const plan = evaluateParts(c, steps);
  const { register: baseRegister, temporary } = loadBaseBelow(c, base, lastTemp, steps);
  const units: number[] = [];
  let current = baseRegister;
  let via: Via[] = [];
  let hasWay = !temporary;
  let anyOptional = false;
  // A path that a later method may change is read for change.
  const lastChange = steps.findLastIndex((s) => isMethod(s) && (mayReplace(c, s) || mayLend(c, s)));
  const lastMethodBefore = (i: number): boolean => steps.slice(0, i).some(isMethod);
  steps.forEach((step, i) => {
    if (step.optional) {
      anyOptional = true;
      units.push(c.jump(OP.JUNIT, current));
    }
    const shared = isMethod(step) && step.name === 'is_shared' && step.args.length === 0;
    if (shared && i === 0 && base.kind === 'variable' && cellSlot(c, base) >= 0) {
      c.emit(OP.ISSHARED, lastTemp, cellSlot(c, base));
      current = lastTemp;
      hasWay = false;
      return;
    }
    if (isMethod(step)) {
      const window = plan.windows.get(step) as number;
      const changes = mayReplace(c, step);
      const lock = hasWay && base.kind === 'variable' ? cellSlot(c, base) : -1;
      const constant = hasWay && isConstantBase(base);
      const guard =
        lock >= 0 &&
        changes &&
        via.length === 0 &&
        (c.unit.names.has(step.name) || step.name === 'call');
      if (guard) c.emit(OP.LOCKCELL, lock, 1);
      const onThis = hasWay && base.kind === 'this';
      callMethod(c, step, window, current, lastTemp, { constant, onThis, byRef: hasWay });
      if (guard) c.emit(OP.LOCKCELL, lock, 0);
      if (changes && hasWay && !constant) {
        const result = lastTemp;
        writeBack(c, base, via, window);
        current = result;
      } else current = lastTemp;
      via = [];
      hasWay = false;
      return;
    }
    const to = i === steps.length - 1 ? lastTemp : (path[i] as number);
    const key = plan.keys.get(step) as number;
    const ref = i < lastChange && !lastMethodBefore(i) && hasWay;
    read(c, step, current, to, key, ref);
    via.push({ register: current, step, key });
    current = to;
  });
  c.drop(mark);
  if (owned && !isMethod(steps.at(-1) as Step)) c.emit(OP.COPY, dst, current);
  else if (current !== dst) c.emit(OP.MOVE, dst, current);
  if (anyOptional) {
    const end = c.jump(OP.JUMP);
    c.patch(units);
    c.emit(OP.CONST, dst, c.constant(null));
    c.patch(end);
  }
}

/** The base of a chain; one that is computed is evaluated after the arguments, as in the original. */
function loadBaseBelow(
  c: FnCompiler,
  base: Expr,
  register: number,
  steps: readonly Step[],
): { register: number; temporary: boolean } {
  const slot = plainSlot(c, base);
  if (slot >= 0) {
    c.cost++;
    return { register: slot, temporary: false };
  }
  const temporary = base.kind !== 'variable' && base.kind !== 'this';
  // The last step writes `register`; longer paths need the base to outlive that.
  const own = steps.length > 1 && !temporary ? c.take() : register;
  compileInto(c, base, own, base.kind === 'const');
  return { register: own, temporary };
}

/** `chain = value`, `chain op= value`; the value is in a register already. */
export function assignChain(c: FnCompiler, stmt: AssignStmt, value: number): void {
  const target = stmt.target as ChainExpr;
  const { base, steps } = target;
  const mark = c.next;
  const registers = steps.map(() => c.take());
  const plan = evaluateParts(c, steps);
  const { register: baseRegister } = loadBase(c, base);
  if (base.kind === 'this' && steps.at(-1)?.kind === 'index') {
    c.at(base.pos);
    c.emit(OP.THISW, baseRegister);
  }
  const skips: number[] = [];
  const path: Via[] = [];
  let current = baseRegister;
  steps.forEach((step, i) => {
    if (step.optional) skips.push(c.jump(OP.JUNIT, current));
    const key = plan.keys.get(step) as number;
    path.push({ register: current, step, key });
    if (i === steps.length - 1) return;
    const to = registers[i] as number;
    read(c, step, current, to, key, true);
    current = to;
  });
  const last = path.at(-1) as Via;
  if (base.kind === 'variable' && base.decl?.constant) {
    c.at(base.pos);
    const keyed = last.step.kind === 'index' ? -1 : last.register;
    c.emit(OP.CONSTCHECK, c.constant(base.name), keyed);
  }
  let result = value;
  if (stmt.op !== '') {
    result = registers.at(-1) as number;
    read(c, last.step, last.register, result, last.key, true);
    // A key that is missing is there from now on, whatever becomes of the operation.
    const known = c.jump(OP.JNUNIT, result);
    write(c, last, result, OP.BACKPROP);
    c.patch(known);
    c.at(stmt.pos);
    c.emit(OP.OPA, operatorNumber(stmt.op), result, value);
  }
  if (last.step.kind === 'index') c.proto.assignments.set(c.pc, stmt.pos);
  write(c, last, result);
  // Containers were changed in place; strings, integers and host objects were replaced.
  for (let i = path.length - 2; i >= 0; i--) {
    write(c, path[i] as Via, (path[i + 1] as Via).register, OP.BACKPROP);
  }
  storeBase(c, base, baseRegister);
  c.patch(skips);
  c.drop(mark);
}
