/**
 * Frames: entering script functions and other code, and the registers they stand on. Which function
 * a call means is calls.ts; how frames are left is returns.ts.
 */
import type { FnProto } from './bytecode.ts';
import { RhaiError } from './errors.ts';
import { Frame, type MachineState } from './state.ts';
import type { Value } from './values.ts';

/** A fresh frame on top. */
export function openFrame(m: MachineState): Frame {
  const depth = ++m.depth;
  let frame = m.frames[depth];
  if (frame === undefined) {
    frame = new Frame();
    m.frames[depth] = frame;
    return frame;
  }
  frame.process = null;
  frame.callback = null;
  frame.outer = null;
  frame.extras = null;
  frame.exports = null;
  frame.captures = null;
  return frame;
}

function growRegisters(m: MachineState, size: number): void {
  while (m.regs.length < size) m.regs.push(null);
}

/**
 * Enters a script function whose arguments lie in its window. Returns the frame on top: the
 * caller's own when the function is empty.
 */
export function enterFunction(
  m: MachineState,
  proto: FnProto,
  window: number,
  dst: number,
  plain = true,
): Frame {
  const caller = m.top;
  if (proto.empty) {
    if (plain) m.regs[caller.bp + dst] = null;
    return caller;
  }
  const level = caller.level + 1;
  if (level > m.settings.maxCallLevels) throw new RhaiError('ErrorStackOverflow');
  if (proto.arity > m.settings.maxVariables) throw new RhaiError('ErrorTooManyVariables');
  const frame = openFrame(m);
  frame.kind = 'fn';
  frame.proto = proto;
  frame.pc = 0;
  frame.bp = window;
  frame.dst = dst;
  frame.plain = plain;
  frame.level = level;
  frame.frozen = false;
  frame.imports = m.imports.length;
  const end = window + proto.registers;
  if (end > m.regs.length) growRegisters(m, end + 256);
  return frame;
}

/** Leaves the top frame; the result is the frame below. */
export function popFrame(m: MachineState): Frame {
  const frame = m.frames[m.depth] as Frame;
  if (m.imports.length !== frame.imports) m.imports.length = frame.imports;
  return m.frames[--m.depth] as Frame;
}

/** A window above everything the frames on the stack use. */
export function freeWindow(m: MachineState): number {
  for (let i = m.depth; i >= 0; i--) {
    const frame = m.frames[i] as Frame;
    if (frame.proto !== null) return frame.bp + frame.proto.registers;
  }
  return 0;
}

/** Puts code that is not a function on top: the main script, an eval, a module. */
export function enterCode(
  m: MachineState,
  proto: FnProto,
  kind: 'main' | 'eval' | 'import',
  window: number,
  dst: number,
): Frame {
  const level = m.depth < 0 ? 0 : m.top.level + 1;
  if (level > m.settings.maxCallLevels && m.depth >= 0) throw new RhaiError('ErrorStackOverflow');
  const frame = openFrame(m);
  frame.kind = kind;
  frame.proto = proto;
  frame.pc = 0;
  frame.bp = window;
  frame.dst = dst;
  frame.plain = false;
  frame.level = level;
  frame.imports = m.imports.length;
  growRegisters(m, window + proto.registers + 256);
  // Variables that have not been reached yet are told from those that have.
  for (const { slot } of proto.globals) m.regs[window + slot] = undefined as unknown as Value;
  m.regs[window] = undefined as unknown as Value;
  m.ops += proto.cost;
  if (m.ops > m.stopAt) m.overBudget();
  return frame;
}
