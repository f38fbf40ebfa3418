/**
 * Calls: which function a call site means for the arguments at hand, function pointers, native
 * functions and the processes of those that call back.
 */
import type { CallSite, FnProto, Library } from './bytecode.ts';
import { mismatch, RhaiError } from './errors.ts';
import { enterFunction, freeWindow, openFrame, popFrame } from './frames.ts';
import { findModule } from './modules.ts';
import { type Callback, fits, maskOf, type NativeFn } from './natives.ts';
import { functionKey } from './parse-functions.ts';
import { type MachineState, Module } from './state.ts';
import { Suspend } from './suspend.ts';
import { Cell, FnPtr, RMap, typeName, type Value } from './values.ts';

/** The types of arguments as the original names them in errors. */
export function signature(name: string, args: readonly Value[]): string {
  const types = args.map((a) =>
    typeof a === 'string' ? '&str | ImmutableString | String' : typeName(a),
  );
  return `${name} (${types.join(', ')})`;
}

function notFound(name: string, args: readonly Value[]): RhaiError {
  return new RhaiError('ErrorFunctionNotFound', { name: signature(name, args) });
}

export function choose(overloads: readonly NativeFn[], args: readonly Value[]): NativeFn | null {
  for (let i = 0; i < overloads.length; i++) {
    const fn = overloads[i] as NativeFn;
    if (fits(fn, args)) return fn;
  }
  return null;
}

/**
 * Runs a native function. True when its value is in register `dst`; false when a frame was pushed
 * or the machine waits for the host.
 */
function runNative(
  m: MachineState,
  fn: NativeFn,
  args: Value[],
  dst: number,
  frozen = false,
): boolean {
  if (fn.process !== null) {
    m.frozen = frozen;
    const frame = openFrame(m);
    frame.kind = 'native';
    frame.proto = null;
    frame.process = fn.process(args, m);
    frame.dst = dst;
    frame.plain = false;
    frame.bp = freeWindow(m);
    frame.level = (m.frames[m.depth - 1]?.level ?? 0) + 1;
    frame.imports = m.imports.length;
    stepProcess(m, null, true);
    return false;
  }
  const result: Value | Suspend = (fn.code as NonNullable<NativeFn['code']>)(args, m);
  if (fn.host && (result as unknown) instanceof Suspend) {
    suspend(m, result as unknown as Suspend, dst);
    return false;
  }
  if (m.checksSize) {
    m.checkSize(result);
    if (fn.mutates) m.checkSize(args[0] as Value);
  }
  m.regs[dst] = result;
  return true;
}

export function suspend(m: MachineState, answer: Suspend, dst: number): void {
  const { position } = m;
  m.waiting = { payload: answer.payload, position, dst };
  m.outcome = { state: 'suspended', payload: answer.payload, position };
}

/** Gives a suspended call its result. */
export function deliver(m: MachineState, value: Value): void {
  const waiting = m.waiting;
  if (!waiting) return;
  m.waiting = null;
  m.outcome = null;
  if (waiting.dst >= 0) m.regs[waiting.dst] = value;
  else stepProcess(m, value);
}

/** Continues the process on top with the result of its call, through processes that end. */
export function stepProcess(m: MachineState, input: Value, first = false): void {
  let value = input;
  let fresh = first;
  for (;;) {
    const frame = m.top;
    const process = frame.process;
    if (process === null) return;
    const step = fresh ? process.next(null) : process.next(value);
    fresh = false;
    if (step.done) {
      const { dst } = frame;
      const below = popFrame(m);
      if (m.checksSize) m.checkSize(step.value);
      if (dst >= 0) {
        m.regs[dst] = step.value;
        return;
      }
      if (below.process === null) return;
      value = step.value;
      continue;
    }
    frame.callback = step.value;
    const result = callBack(m, step.value);
    if (result === undefined) {
      if (m.top.process !== null && m.top !== frame) {
        fresh = true;
        continue;
      }
      return;
    }
    value = result;
  }
}

/** The result of a process's call, or undefined when a frame was pushed or the machine waits. */
function callBack(m: MachineState, call: Callback): Value | undefined {
  const { curry } = call.fn;
  const args = curry.length === 0 ? call.args : [...curry, ...call.args];
  m.charge(1);
  const proto = scriptTarget(m, call.fn, args.length, call.self);
  if (proto) {
    const window = m.top.bp;
    if (proto.empty) return null;
    enterFunction(m, proto, window, -1, false).frozen = call.frozen;
    placeArguments(m, window, args, call.self);
    pushModuleImports(m, proto.library);
    m.ops += proto.cost;
    return undefined;
  }
  const plain = args.map(flat);
  const all = call.self === undefined ? plain : [call.self, ...plain];
  const fn = choose(m.natives.find(call.fn.name, all.length), all);
  if (!fn) throw notFound(call.fn.name, all);
  if (fn.process !== null) {
    const frame = openFrame(m);
    frame.kind = 'native';
    frame.proto = null;
    frame.process = fn.process(all, m);
    frame.dst = -1;
    frame.plain = false;
    frame.bp = freeWindow(m);
    frame.level = (m.frames[m.depth - 1]?.level ?? 0) + 1;
    frame.imports = m.imports.length;
    return undefined;
  }
  const result: Value | Suspend = (fn.code as NonNullable<NativeFn['code']>)(all, m);
  if (fn.host && (result as unknown) instanceof Suspend) {
    suspend(m, result as unknown as Suspend, -1);
    return undefined;
  }
  if (call.self !== undefined) call.self = all[0] as Value;
  return result;
}

function flat(value: Value | Cell): Value {
  return value instanceof Cell ? value.value : value;
}

function placeArguments(
  m: MachineState,
  window: number,
  args: readonly (Value | Cell)[],
  self: Value | undefined,
): void {
  m.regs[window] = self as Value;
  for (let i = 0; i < args.length; i++) m.regs[window + 1 + i] = args[i] as Value;
}

/** The library of the script frame nearest to the top. */
function currentLibrary(m: MachineState): Library | null {
  for (let i = m.depth; i >= 0; i--) {
    const proto = m.frames[i]?.proto;
    if (proto) return proto.library;
  }
  return null;
}

/** The script function a pointer means for so many arguments. */
export function scriptTarget(
  m: MachineState,
  fn: FnPtr,
  argc: number,
  self: Value | undefined,
): FnProto | null {
  if (fn.fn && fn.fn.arity === argc) return fn.fn;
  const library = fn.library ?? currentLibrary(m);
  if (!library) return null;
  if (self !== undefined) {
    const typed = library.find(functionKey(fn.name, argc, typeName(self)));
    if (typed) return typed;
  }
  return (
    library.find(functionKey(fn.name, argc, null)) ??
    currentLibrary(m)?.find(functionKey(fn.name, argc, null)) ??
    null
  );
}

/** A function of a module sees what the module imported. */
export function pushModuleImports(m: MachineState, library: Library): void {
  if (m.moduleOf.size === 0) return;
  const module = m.moduleOf.get(library);
  if (module) m.imports.push(...module.imports);
}

function checkRace(name: string, args: readonly (Value | Cell)[]): void {
  const at = args.findIndex((a) => a instanceof Cell && a.locked);
  if (at < 0) return;
  throw new RhaiError('ErrorDataRace', { name: `argument #${at + 1} of function '${name}'` });
}

/** Calls a function pointer; the result goes to the absolute register. */
export function callPointer(
  m: MachineState,
  fn: FnPtr,
  given: readonly Value[],
  self: Value | undefined,
  window: number,
  dst: number,
): boolean {
  const args = fn.curry.length === 0 ? given : [...fn.curry, ...given];
  checkRace(fn.name, args);
  const proto = scriptTarget(m, fn, args.length, self);
  if (proto) {
    placeArguments(m, window, args, self);
    if (proto.empty) {
      m.regs[dst] = null;
      return true;
    }
    enterFunction(m, proto, window, dst - m.top.bp);
    pushModuleImports(m, proto.library);
    m.ops += proto.cost;
    if (m.ops > m.stopAt) m.overBudget();
    return false;
  }
  const plain = args.map(flat);
  const all = self === undefined ? plain : [self, ...plain];
  const native = choose(m.natives.find(fn.name, all.length), all);
  if (!native) throw notFound(fn.name, all);
  const done = runNative(m, native, all, dst);
  if (done && self !== undefined) m.regs[window] = all[0] as Value;
  return done;
}

/** `call(f, …)`, `f.call(…)`, `x.call(f, …)`; true when the value is there already. */
export function callOperation(
  m: MachineState,
  argc: number,
  window: number,
  dst: number,
  method: boolean,
): boolean {
  const { regs } = m;
  const first = regs[method ? window : window + 1] as Value;
  if (first instanceof FnPtr) {
    // The pointer itself stays where it is: the callee's window lies behind it.
    const start = method ? window + 1 : window + 2;
    const args = regs.slice(start, start + argc);
    return callPointer(m, first, args, undefined, window + 1, dst);
  }
  if (!method) throw mismatch('Fn', typeName(first));
  const fn = argc > 0 ? (regs[window + 1] as Value) : first;
  if (!(fn instanceof FnPtr)) throw mismatch('Fn', typeName(fn));
  return callPointer(m, fn, regs.slice(window + 2, window + 1 + argc), first, window, dst);
}

/** A call of a native function, or of one in a module; absolute registers. */
export function callSite(m: MachineState, site: CallSite, window: number, dst: number): boolean {
  const { argc, name } = site;
  if (site.namespace.length === 0 && callDirect(m, site, window + 1, dst, site.constant))
    return true;
  const args = m.regs.slice(window + 1, window + 1 + argc);
  if (site.namespace.length > 0) return callQualified(m, site, args, window, dst);
  const fn = choose(site.overloads, args);
  if (!fn) {
    // A name the compiler did not know: a custom operator, or a function of a scope around.
    const proto = site.operator
      ? null
      : (currentLibrary(m)?.find(functionKey(name, argc, null)) ?? null);
    if (!proto) throw notFound(name, args);
    enterFunction(m, proto, window, dst, false);
    m.ops += proto.cost;
    return false;
  }
  const done = runNative(m, fn, args, dst, site.constant);
  if (fn.mutates && site.byRef) m.regs[window + 1] = args[0] as Value;
  return done;
}

function callQualified(
  m: MachineState,
  site: CallSite,
  args: Value[],
  window: number,
  dst: number,
): boolean {
  const path = site.namespace.join('::');
  const target = findModule(m, site.namespace, site.root);
  const library = target instanceof Module ? target.library : target;
  const proto = library?.functions.get(functionKey(site.name, site.argc, null));
  if (!proto || (proto.isPrivate && target instanceof Module)) {
    throw notFound(`${path}::${site.name}`, args);
  }
  m.regs[window] = undefined as unknown as Value;
  if (proto.empty) {
    m.regs[dst] = null;
    return true;
  }
  enterFunction(m, proto, window, dst, false);
  pushModuleImports(m, proto.library);
  m.ops += proto.cost;
  return false;
}

/** `receiver.name(args)`; absolute registers. */
export function callMethod(m: MachineState, site: CallSite, window: number, dst: number): boolean {
  const { name, argc } = site;
  const { regs } = m;
  const self = regs[window] as Value;
  const frozen = site.constant || (site.onThis && m.top.frozen);
  if (self instanceof RMap) {
    const property = self.items.get(name);
    if (property instanceof FnPtr) {
      return callPointer(m, property, regs.slice(window + 1, window + argc), self, window, dst);
    }
  }
  const proto = site.typed?.get(typeName(self)) ?? site.plain;
  if (proto) {
    if (proto.empty) {
      regs[dst] = null;
      return true;
    }
    const frame = enterFunction(m, proto, window, dst - m.top.bp);
    if (frozen) frame.frozen = true;
    m.ops += proto.cost;
    if (m.ops > m.stopAt) m.overBudget();
    return false;
  }
  if (callDirect(m, site, window, dst, frozen)) return true;
  const args = regs.slice(window, window + argc);
  const fn = choose(site.overloads, args);
  if (!fn) throw name === 'curry' ? mismatch('Fn', typeName(self)) : notFound(name, args);
  if (fn.mutates && frozen) {
    throw new RhaiError('ErrorNonPureMethodCallOnConstant', { name });
  }
  const done = runNative(m, fn, args, dst, frozen);
  if (fn.mutates) regs[window] = args[0] as Value;
  return done;
}

/** The call without a list of arguments, where the function allows it. */
function callDirect(
  m: MachineState,
  site: CallSite,
  first: number,
  dst: number,
  frozen: boolean,
): boolean {
  const { overloads, argc } = site;
  if (argc > 2 || argc === 0) return false;
  const self = m.regs[first] as Value;
  const arg = argc === 2 ? (m.regs[first + 1] as Value) : null;
  const mask = maskOf(self);
  for (let i = 0; i < overloads.length; i++) {
    const fn = overloads[i] as NativeFn;
    const { masks, direct } = fn;
    if ((mask & (masks[0] as number)) === 0) continue;
    if (argc === 2 && (maskOf(arg) & (masks[1] as number)) === 0) continue;
    if (direct === null || (fn.mutates && frozen)) return false;
    const result = direct(self, arg);
    if (m.checksSize) {
      m.checkSize(result);
      if (fn.mutates) m.checkSize(self);
    }
    m.regs[dst] = result;
    return true;
  }
  return false;
}
