/**
 * The virtual machine: runs bytecode with frames of its own, so that it can stop at any host call,
 * at any operation, at any statement, and never recurses on the JavaScript stack for a script.
 *
 * This file is the dispatch loop and what it needs inline; calls are calls.ts, frames
 * frames.ts and returns.ts, names, modules and eval names.ts. Registers of all frames lie in one list, a frame's own
 * from `bp` on.
 *
 * M1  whatever fails in a script leaves `run` as an Outcome; no exception escapes.
 * M2  operations are counted at calls and backward jumps, by what the code between them costs; the
 *     same script with the same answers counts the same.
 * M3  between instructions the whole state is in fields: `run` can return and be called again.
 */
import { getIndex, missingProperty, setIndex } from './access.ts';
import type { CallSite, FnProto, SwitchTable } from './bytecode.ts';
import { equals, sameValue } from './compare.ts';
import { mismatch, originOf, RhaiError } from './errors.ts';
import { noteMissing } from './faults.ts';
import { hintFor } from './hints.ts';
import { type Iteration, startIteration } from './iterate.ts';
import {
  callMethod,
  callOperation,
  callSite,
  choose,
  deliver,
  signature,
  suspend,
} from './calls.ts';
import { enterFunction, popFrame } from './frames.ts';
import { asError, returnSpecial, unwind } from './returns.ts';
import { runRare } from './names.ts';
import { assignOperator, binary, negate, OPERATORS, type Operator } from './operators.ts';
import { type Frame, type MachineState, type Stop } from './state.ts';
import { Suspend } from './suspend.ts';
import { displayText } from './text.ts';
import {
  Cell,
  Char,
  copyValue,
  Float,
  HostObject,
  type Int,
  isInt,
  ownEntries,
  ownItems,
  RArray,
  RMap,
  typeName,
  type Value,
} from './values.ts';

const MAX_SAFE = 9007199254740991;
const MIN_SAFE = -9007199254740991;

/** After so many appends a text is laid out anew, where that costs few bytes for each of them. */
const APPENDS = 1024;
const BYTES_AN_APPEND = 64;

/**
 * V8 keeps a text that was appended to as a tree of its pieces, all of them alive. Asking for a
 * character makes it one piece.
 */
function flatten(m: MachineState, text: string): void {
  if (text.length > m.appends * BYTES_AN_APPEND) return;
  m.appends = 0;
  text.charCodeAt(0);
}

/** Runs until the script ends, stops or has used its slice. */
export function runMachine(m: MachineState, maxOperations = 0): Stop {
  if (m.finished) return m.finished;
  if (m.waiting) {
    return { state: 'suspended', payload: m.waiting.payload, position: m.waiting.position };
  }
  m.sliceEnd = maxOperations > 0 ? m.ops + maxOperations : Number.POSITIVE_INFINITY;
  m.updateStop();
  for (;;) {
    m.outcome = null;
    try {
      if (m.pendingError !== null) {
        const error = m.pendingError;
        m.pendingError = null;
        m.faultFrame = null;
        throw error;
      }
      loop(m);
      const outcome = m.outcome as Stop | null;
      if (outcome === null) continue;
      if (outcome.state === 'done') m.finished = outcome;
      return outcome;
    } catch (thrown) {
      const outcome = unwind(m, thrown);
      if (outcome) {
        if (outcome.state === 'failed') {
          const { error } = originOf(outcome.error);
          error.hint ??= hintFor(m, error);
        }
        m.finished = outcome;
        return outcome;
      }
    }
  }
}

/** After 'suspended': the call's result. */
export function resumeMachine(m: MachineState, value: Value): void {
  try {
    deliver(m, value);
  } catch (thrown) {
    m.pendingError = asError(thrown);
  }
}

/** After 'suspended': the call fails. */
export function rejectMachine(m: MachineState, error: RhaiError): void {
  m.waiting = null;
  m.pendingError = error;
}

// oxlint-disable-next-line max-lines-per-function -- the dispatch loop: one function, so that V8 keeps its state in registers
function loop(m: MachineState): void {
  let frame = m.top;
  let proto = frame.proto as FnProto;
  let code = proto.code;
  let consts = proto.consts;
  let pc = frame.pc;
  let bp = frame.bp;
  const regs = m.regs;
  try {
    for (;;) {
      switch (code[pc]) {
        case 0: // MOVE
          regs[bp + (code[pc + 1] as number)] = regs[bp + (code[pc + 2] as number)] as Value;
          pc += 3;
          continue;
        case 1: {
          // COPY
          const v = regs[bp + (code[pc + 2] as number)] as Value;
          regs[bp + (code[pc + 1] as number)] =
            typeof v === 'object' && v !== null ? copyValue(v) : v;
          pc += 3;
          continue;
        }
        case 2: // CONST
          regs[bp + (code[pc + 1] as number)] = consts[code[pc + 2] as number] as Value;
          pc += 3;
          continue;
        case 3: // INT
          regs[bp + (code[pc + 1] as number)] = code[pc + 2] as number;
          pc += 3;
          continue;
        case 4: {
          // ADD
          const a = regs[bp + (code[pc + 2] as number)] as Value;
          const b = regs[bp + (code[pc + 3] as number)] as Value;
          if (typeof a === 'number' && typeof b === 'number') {
            const r = a + b;
            if (r <= MAX_SAFE && r >= MIN_SAFE) {
              regs[bp + (code[pc + 1] as number)] = r;
              pc += 4;
              continue;
            }
          } else if (a instanceof Float && b instanceof Float) {
            regs[bp + (code[pc + 1] as number)] = new Float(a.value + b.value);
            pc += 4;
            continue;
          }
          regs[bp + (code[pc + 1] as number)] = operate(m, '+', a, b);
          pc += 4;
          continue;
        }
        case 5: {
          // SUB
          const a = regs[bp + (code[pc + 2] as number)] as Value;
          const b = regs[bp + (code[pc + 3] as number)] as Value;
          if (typeof a === 'number' && typeof b === 'number') {
            const r = a - b;
            if (r <= MAX_SAFE && r >= MIN_SAFE) {
              regs[bp + (code[pc + 1] as number)] = r;
              pc += 4;
              continue;
            }
          } else if (a instanceof Float && b instanceof Float) {
            regs[bp + (code[pc + 1] as number)] = new Float(a.value - b.value);
            pc += 4;
            continue;
          }
          regs[bp + (code[pc + 1] as number)] = operate(m, '-', a, b);
          pc += 4;
          continue;
        }
        case 6: {
          // MUL
          const a = regs[bp + (code[pc + 2] as number)] as Value;
          const b = regs[bp + (code[pc + 3] as number)] as Value;
          if (typeof a === 'number' && typeof b === 'number') {
            const r = a * b;
            if (r <= MAX_SAFE && r >= MIN_SAFE) {
              regs[bp + (code[pc + 1] as number)] = r + 0;
              pc += 4;
              continue;
            }
          } else if (a instanceof Float && b instanceof Float) {
            regs[bp + (code[pc + 1] as number)] = new Float(a.value * b.value);
            pc += 4;
            continue;
          }
          regs[bp + (code[pc + 1] as number)] = operate(m, '*', a, b);
          pc += 4;
          continue;
        }
        case 7: {
          // DIV
          const a = regs[bp + (code[pc + 2] as number)] as Value;
          const b = regs[bp + (code[pc + 3] as number)] as Value;
          if (typeof a === 'number' && typeof b === 'number' && b !== 0) {
            regs[bp + (code[pc + 1] as number)] = Math.trunc(a / b) + 0;
          } else if (a instanceof Float && b instanceof Float) {
            regs[bp + (code[pc + 1] as number)] = new Float(a.value / b.value);
          } else regs[bp + (code[pc + 1] as number)] = operate(m, '/', a, b);
          pc += 4;
          continue;
        }
        case 8: {
          // MOD
          const a = regs[bp + (code[pc + 2] as number)] as Value;
          const b = regs[bp + (code[pc + 3] as number)] as Value;
          if (typeof a === 'number' && typeof b === 'number' && b !== 0) {
            regs[bp + (code[pc + 1] as number)] = (a % b) + 0;
          } else regs[bp + (code[pc + 1] as number)] = operate(m, '%', a, b);
          pc += 4;
          continue;
        }
        case 9: {
          // ADDI
          const a = regs[bp + (code[pc + 2] as number)] as Value;
          if (typeof a === 'number') {
            const r = a + (code[pc + 3] as number);
            if (r <= MAX_SAFE && r >= MIN_SAFE) {
              regs[bp + (code[pc + 1] as number)] = r;
              pc += 4;
              continue;
            }
          }
          regs[bp + (code[pc + 1] as number)] = operate(m, '+', a, code[pc + 3] as number);
          pc += 4;
          continue;
        }
        case 10: {
          // SUBI
          const a = regs[bp + (code[pc + 2] as number)] as Value;
          if (typeof a === 'number') {
            const r = a - (code[pc + 3] as number);
            if (r <= MAX_SAFE && r >= MIN_SAFE) {
              regs[bp + (code[pc + 1] as number)] = r;
              pc += 4;
              continue;
            }
          }
          regs[bp + (code[pc + 1] as number)] = operate(m, '-', a, code[pc + 3] as number);
          pc += 4;
          continue;
        }
        case 11: {
          // MULI
          const a = regs[bp + (code[pc + 2] as number)] as Value;
          if (typeof a === 'number') {
            const r = a * (code[pc + 3] as number);
            if (r <= MAX_SAFE && r >= MIN_SAFE) {
              regs[bp + (code[pc + 1] as number)] = r + 0;
              pc += 4;
              continue;
            }
          }
          regs[bp + (code[pc + 1] as number)] = operate(m, '*', a, code[pc + 3] as number);
          pc += 4;
          continue;
        }
        case 12: {
          // DIVI
          const a = regs[bp + (code[pc + 2] as number)] as Value;
          const n = code[pc + 3] as number;
          regs[bp + (code[pc + 1] as number)] =
            typeof a === 'number' && n !== 0 ? Math.trunc(a / n) + 0 : operate(m, '/', a, n);
          pc += 4;
          continue;
        }
        case 13: {
          // MODI
          const a = regs[bp + (code[pc + 2] as number)] as Value;
          const n = code[pc + 3] as number;
          regs[bp + (code[pc + 1] as number)] =
            typeof a === 'number' && n !== 0 ? (a % n) + 0 : operate(m, '%', a, n);
          pc += 4;
          continue;
        }
        case 14: // LT
        case 15: // LE
        case 16: // GT
        case 17: {
          // GE
          const op = code[pc] as number;
          const a = regs[bp + (code[pc + 2] as number)] as Value;
          const b = regs[bp + (code[pc + 3] as number)] as Value;
          let r: Value;
          if (typeof a === 'number' && typeof b === 'number') {
            r = op === 14 ? a < b : op === 15 ? a <= b : op === 16 ? a > b : a >= b;
          } else r = operate(m, OPERATORS[op - 1] as Operator, a, b);
          regs[bp + (code[pc + 1] as number)] = r;
          pc += 4;
          continue;
        }
        case 18: // EQ
        case 19: {
          // NE
          const a = regs[bp + (code[pc + 2] as number)] as Value;
          const b = regs[bp + (code[pc + 3] as number)] as Value;
          regs[bp + (code[pc + 1] as number)] =
            typeof a === 'number' && typeof b === 'number'
              ? (a === b) === (code[pc] === 18)
              : operate(m, code[pc] === 18 ? '==' : '!=', a, b);
          pc += 4;
          continue;
        }
        case 20: // BINARY
          regs[bp + (code[pc + 2] as number)] = operate(
            m,
            OPERATORS[code[pc + 1] as number] as Operator,
            regs[bp + (code[pc + 3] as number)] as Value,
            regs[bp + (code[pc + 4] as number)] as Value,
          );
          pc += 5;
          continue;
        case 21: {
          // NOT
          const v = regs[bp + (code[pc + 2] as number)] as Value;
          regs[bp + (code[pc + 1] as number)] =
            typeof v === 'boolean' ? !v : operateUnary(m, '!', v);
          pc += 3;
          continue;
        }
        case 22: // NEG
        case 23: // PLUS
          regs[bp + (code[pc + 1] as number)] = operateUnary(
            m,
            code[pc] === 22 ? '-' : '+',
            regs[bp + (code[pc + 2] as number)] as Value,
          );
          pc += 3;
          continue;
        case 24: // JUMP
          pc = code[pc + 1] as number;
          continue;
        case 25: // JF
        case 26: {
          // JT
          const v = regs[bp + (code[pc + 1] as number)] as Value;
          if (typeof v !== 'boolean') throw mismatch('bool', typeName(v));
          pc = v === (code[pc] === 26) ? (code[pc + 2] as number) : pc + 3;
          continue;
        }
        case 27: {
          // JLTF
          const a = regs[bp + (code[pc + 1] as number)] as Value;
          const b = regs[bp + (code[pc + 2] as number)] as Value;
          if (typeof a === 'number' && typeof b === 'number' ? a < b : test(m, '<', a, b)) pc += 4;
          else pc = code[pc + 3] as number;
          continue;
        }
        case 28: {
          // JLEF
          const a = regs[bp + (code[pc + 1] as number)] as Value;
          const b = regs[bp + (code[pc + 2] as number)] as Value;
          if (typeof a === 'number' && typeof b === 'number' ? a <= b : test(m, '<=', a, b))
            pc += 4;
          else pc = code[pc + 3] as number;
          continue;
        }
        case 29: {
          // JGTF
          const a = regs[bp + (code[pc + 1] as number)] as Value;
          const b = regs[bp + (code[pc + 2] as number)] as Value;
          if (typeof a === 'number' && typeof b === 'number' ? a > b : test(m, '>', a, b)) pc += 4;
          else pc = code[pc + 3] as number;
          continue;
        }
        case 30: {
          // JGEF
          const a = regs[bp + (code[pc + 1] as number)] as Value;
          const b = regs[bp + (code[pc + 2] as number)] as Value;
          if (typeof a === 'number' && typeof b === 'number' ? a >= b : test(m, '>=', a, b))
            pc += 4;
          else pc = code[pc + 3] as number;
          continue;
        }
        case 31: {
          // JEQF
          const a = regs[bp + (code[pc + 1] as number)] as Value;
          const b = regs[bp + (code[pc + 2] as number)] as Value;
          if (typeof a === 'number' && typeof b === 'number' ? a === b : test(m, '==', a, b))
            pc += 4;
          else pc = code[pc + 3] as number;
          continue;
        }
        case 32: {
          // JNEF
          const a = regs[bp + (code[pc + 1] as number)] as Value;
          const b = regs[bp + (code[pc + 2] as number)] as Value;
          if (typeof a === 'number' && typeof b === 'number' ? a !== b : test(m, '!=', a, b))
            pc += 4;
          else pc = code[pc + 3] as number;
          continue;
        }
        case 33: {
          // JLTIF
          const a = regs[bp + (code[pc + 1] as number)] as Value;
          const n = code[pc + 2] as number;
          if (typeof a === 'number' ? a < n : test(m, '<', a, n)) pc += 4;
          else pc = code[pc + 3] as number;
          continue;
        }
        case 34: {
          // JLEIF
          const a = regs[bp + (code[pc + 1] as number)] as Value;
          const n = code[pc + 2] as number;
          if (typeof a === 'number' ? a <= n : test(m, '<=', a, n)) pc += 4;
          else pc = code[pc + 3] as number;
          continue;
        }
        case 35: {
          // JGTIF
          const a = regs[bp + (code[pc + 1] as number)] as Value;
          const n = code[pc + 2] as number;
          if (typeof a === 'number' ? a > n : test(m, '>', a, n)) pc += 4;
          else pc = code[pc + 3] as number;
          continue;
        }
        case 36: {
          // JGEIF
          const a = regs[bp + (code[pc + 1] as number)] as Value;
          const n = code[pc + 2] as number;
          if (typeof a === 'number' ? a >= n : test(m, '>=', a, n)) pc += 4;
          else pc = code[pc + 3] as number;
          continue;
        }
        case 37: {
          // JEQIF
          const a = regs[bp + (code[pc + 1] as number)] as Value;
          const n = code[pc + 2] as number;
          if (typeof a === 'number' ? a === n : test(m, '==', a, n)) pc += 4;
          else pc = code[pc + 3] as number;
          continue;
        }
        case 38: {
          // JNEIF
          const a = regs[bp + (code[pc + 1] as number)] as Value;
          const n = code[pc + 2] as number;
          if (typeof a === 'number' ? a !== n : test(m, '!=', a, n)) pc += 4;
          else pc = code[pc + 3] as number;
          continue;
        }
        case 39: // LOOP
          if ((m.ops += code[pc + 2] as number) > m.stopAt) {
            m.overBudget();
            pc = code[pc + 1] as number;
            if (m.ops >= m.sliceEnd) {
              frame.pc = pc;
              m.outcome = { state: 'sliced' };
              return;
            }
            continue;
          }
          pc = code[pc + 1] as number;
          continue;
        case 40: {
          // CALL
          const callee = consts[code[pc + 1] as number] as FnProto;
          const window = bp + (code[pc + 2] as number);
          frame.pc = pc + 4;
          regs[window] = undefined as unknown as Value;
          if (callee.empty) {
            regs[bp + (code[pc + 3] as number)] = null;
            pc += 4;
            continue;
          }
          frame = enterFunction(m, callee, window, code[pc + 3] as number);
          proto = callee;
          code = callee.code;
          consts = callee.consts;
          bp = window;
          pc = 0;
          if ((m.ops += callee.cost) > m.stopAt) {
            m.overBudget();
            if (m.ops >= m.sliceEnd) {
              frame.pc = pc;
              m.outcome = { state: 'sliced' };
              return;
            }
          }
          continue;
        }
        case 45: // RET
        case 46: {
          // RETUNIT
          const value = code[pc] === 45 ? (regs[bp + (code[pc + 1] as number)] as Value) : null;
          const { dst } = frame;
          if (frame.plain) {
            frame = popFrame(m);
            proto = frame.proto as FnProto;
            code = proto.code;
            consts = proto.consts;
            bp = frame.bp;
            pc = frame.pc;
            regs[bp + dst] = value;
            continue;
          }
          frame.pc = pc;
          returnSpecial(m, value);
          if (m.outcome !== null) return;
          break;
        }
        case 41: {
          // CALLN
          const site = consts[code[pc + 1] as number] as CallSite;
          frame.pc = pc + 4;
          m.ops++;
          if (callSite(m, site, bp + (code[pc + 2] as number), bp + (code[pc + 3] as number))) {
            pc += 4;
            continue;
          }
          if (m.outcome !== null) return;
          break;
        }
        case 42: {
          // METHOD
          const site = consts[code[pc + 1] as number] as CallSite;
          frame.pc = pc + 4;
          m.ops++;
          if (callMethod(m, site, bp + (code[pc + 2] as number), bp + (code[pc + 3] as number))) {
            pc += 4;
            continue;
          }
          if (m.outcome !== null) return;
          break;
        }
        case 43: // CALLFN
        case 44: {
          // CALLON
          frame.pc = pc + 4;
          callOperation(
            m,
            code[pc + 1] as number,
            bp + (code[pc + 2] as number),
            bp + (code[pc + 3] as number),
            code[pc] === 44,
          );
          if (m.outcome !== null) return;
          break;
        }
        case 47: {
          // GETIDX
          const base = regs[bp + (code[pc + 2] as number)] as Value;
          const i = regs[bp + (code[pc + 3] as number)] as Value;
          let v: Value | undefined;
          if (base instanceof RArray && typeof i === 'number' && i >= 0) v = base.items[i];
          else if (base instanceof RMap && typeof i === 'string') v = base.items.get(i);
          if (v === undefined) v = indexSlow(m, base, i, pc, bp + (code[pc + 1] as number));
          regs[bp + (code[pc + 1] as number)] = v;
          pc += 4;
          continue;
        }
        case 48: {
          // SETIDX
          const base = regs[bp + (code[pc + 1] as number)] as Value;
          const i = regs[bp + (code[pc + 2] as number)] as Value;
          const v = regs[bp + (code[pc + 3] as number)] as Value;
          if (
            base instanceof RArray &&
            typeof i === 'number' &&
            i >= 0 &&
            i < base.items.length &&
            !m.checksSize
          ) {
            if (base.shared) ownItems(base)[i] = v;
            else base.items[i] = v;
          } else regs[bp + (code[pc + 1] as number)] = setIndexSlow(m, base, i, v);
          pc += 4;
          continue;
        }
        case 49: {
          // REFIDX
          const base = regs[bp + (code[pc + 2] as number)] as Value;
          if (base instanceof RArray) {
            if (base.shared) ownItems(base);
          } else if (base instanceof RMap && base.shared) ownEntries(base);
          const i = regs[bp + (code[pc + 3] as number)] as Value;
          let v: Value | undefined;
          if (base instanceof RArray && typeof i === 'number' && i >= 0) v = base.items[i];
          if (v === undefined) v = indexSlow(m, base, i, pc, bp + (code[pc + 1] as number));
          regs[bp + (code[pc + 1] as number)] = v;
          pc += 4;
          continue;
        }
        case 50: // GETPROP
        case 52: {
          // REFPROP
          const base = regs[bp + (code[pc + 2] as number)] as Value;
          const name = consts[code[pc + 3] as number] as string;
          if (base instanceof RMap) {
            if (base.shared && code[pc] === 52) ownEntries(base);
            const v = base.items.get(name);
            if (v !== undefined) {
              regs[bp + (code[pc + 1] as number)] = v;
              pc += 4;
              continue;
            }
          }
          frame.pc = pc + 4;
          if (readProperty(m, base, name, bp + (code[pc + 1] as number))) {
            pc += 4;
            continue;
          }
          return;
        }
        case 51: // SETPROP
        case 69: {
          // BACKPROP
          const base = regs[bp + (code[pc + 1] as number)] as Value;
          const name = consts[code[pc + 2] as number] as string;
          const v = regs[bp + (code[pc + 3] as number)] as Value;
          if (base instanceof RMap && !m.checksSize) {
            if (base.shared) ownEntries(base).set(name, v);
            else base.items.set(name, v);
          } else {
            regs[bp + (code[pc + 1] as number)] = writeProperty(m, base, name, v, code[pc] === 69);
          }
          pc += 4;
          continue;
        }
        case 53: {
          // ADDA
          const at = bp + (code[pc + 1] as number);
          const a = regs[at] as Value;
          const b = regs[bp + (code[pc + 2] as number)] as Value;
          if (typeof a === 'number' && typeof b === 'number') {
            const r = a + b;
            if (r <= MAX_SAFE && r >= MIN_SAFE) {
              regs[at] = r;
              pc += 3;
              continue;
            }
          } else if (a instanceof Float && b instanceof Float) {
            regs[at] = new Float(a.value + b.value);
            pc += 3;
            continue;
          } else if (typeof a === 'string' && typeof b === 'string' && !m.checksSize) {
            regs[at] = a + b;
            if (++m.appends >= APPENDS) flatten(m, regs[at] as string);
            pc += 3;
            continue;
          }
          regs[at] = opAssign(m, '+', a, b);
          pc += 3;
          continue;
        }
        case 54: {
          // ADDAI
          const at = bp + (code[pc + 1] as number);
          const a = regs[at] as Value;
          if (typeof a === 'number') {
            const r = a + (code[pc + 2] as number);
            if (r <= MAX_SAFE && r >= MIN_SAFE) {
              regs[at] = r;
              pc += 3;
              continue;
            }
          }
          regs[at] = opAssign(m, '+', a, code[pc + 2] as number);
          pc += 3;
          continue;
        }
        case 55: {
          // SUBA
          const at = bp + (code[pc + 1] as number);
          const a = regs[at] as Value;
          const b = regs[bp + (code[pc + 2] as number)] as Value;
          if (typeof a === 'number' && typeof b === 'number') {
            const r = a - b;
            if (r <= MAX_SAFE && r >= MIN_SAFE) {
              regs[at] = r;
              pc += 3;
              continue;
            }
          } else if (a instanceof Float && b instanceof Float) {
            regs[at] = new Float(a.value - b.value);
            pc += 3;
            continue;
          }
          regs[at] = opAssign(m, '-', a, b);
          pc += 3;
          continue;
        }
        case 56: {
          // SUBAI
          const at = bp + (code[pc + 1] as number);
          const a = regs[at] as Value;
          if (typeof a === 'number') {
            const r = a - (code[pc + 2] as number);
            if (r <= MAX_SAFE && r >= MIN_SAFE) {
              regs[at] = r;
              pc += 3;
              continue;
            }
          }
          regs[at] = opAssign(m, '-', a, code[pc + 2] as number);
          pc += 3;
          continue;
        }
        case 57: {
          // OPA
          const at = bp + (code[pc + 2] as number);
          const a = regs[at] as Value;
          const b = regs[bp + (code[pc + 3] as number)] as Value;
          const op = OPERATORS[code[pc + 1] as number] as Operator;
          if (op === '*' && a instanceof Float && b instanceof Float && m.settings.fastOperators)
            regs[at] = new Float(a.value * b.value);
          else regs[at] = opAssign(m, op, a, b);
          pc += 4;
          continue;
        }
        case 58: {
          // NEWCELL
          const at = bp + (code[pc + 1] as number);
          regs[at] = new Cell(regs[at] as Value) as unknown as Value;
          pc += 2;
          continue;
        }
        case 59: {
          // LOADCELL
          const cell = regs[bp + (code[pc + 2] as number)] as unknown as Cell;
          if (cell.locked)
            throw new RhaiError('ErrorDataRace', { name: nameAt(frame, code[pc + 2] as number) });
          regs[bp + (code[pc + 1] as number)] = cell.value;
          pc += 3;
          continue;
        }
        case 60: {
          // STORECELL
          const cell = regs[bp + (code[pc + 1] as number)] as unknown as Cell;
          if (cell.locked)
            throw new RhaiError('ErrorDataRace', { name: nameAt(frame, code[pc + 1] as number) });
          cell.value = regs[bp + (code[pc + 2] as number)] as Value;
          pc += 3;
          continue;
        }
        case 66: {
          // ARRAY
          const first = bp + (code[pc + 2] as number);
          const array = new RArray(regs.slice(first, first + (code[pc + 3] as number)));
          if (m.checksSize) m.checkSize(array);
          regs[bp + (code[pc + 1] as number)] = array;
          pc += 4;
          continue;
        }
        case 67: {
          // MAP
          const keys = consts[code[pc + 2] as number] as readonly string[];
          const first = bp + (code[pc + 3] as number);
          const items = new Map<string, Value>();
          for (let i = 0; i < keys.length; i++) {
            items.set(keys[i] as string, regs[first + i] as Value);
          }
          const map = new RMap(items);
          if (m.checksSize) m.checkSize(map);
          regs[bp + (code[pc + 1] as number)] = map;
          pc += 4;
          continue;
        }
        case 68: {
          // INTERP
          const first = bp + (code[pc + 2] as number);
          const count = code[pc + 3] as number;
          let text = '';
          for (let i = 0; i < count; i++) {
            const v = regs[first + i] as Value;
            text += typeof v === 'string' ? v : displayText(v);
            if (m.checksSize) m.checkSize(text);
          }
          regs[bp + (code[pc + 1] as number)] = text;
          pc += 4;
          continue;
        }
        case 71: // FORINIT
          regs[bp + (code[pc + 1] as number)] = startIteration(
            regs[bp + (code[pc + 2] as number)] as Value,
          ) as unknown as Value;
          pc += 3;
          continue;
        case 72: {
          // FORNEXT
          const it = regs[bp + (code[pc + 1] as number)] as unknown as Iteration;
          if (it.ints) {
            const n = it.at;
            if (n < it.end) {
              it.at = n + 1;
              regs[bp + (code[pc + 2] as number)] = n;
              pc += 4;
            } else pc = code[pc + 3] as number;
            continue;
          }
          const v = it.next();
          if (v === undefined) pc = code[pc + 3] as number;
          else {
            regs[bp + (code[pc + 2] as number)] = v;
            pc += 4;
          }
          continue;
        }
        case 73: {
          // FORNEXT2
          const it = regs[bp + (code[pc + 1] as number)] as unknown as Iteration;
          const v = it.next();
          if (v === undefined) pc = code[pc + 4] as number;
          else {
            regs[bp + (code[pc + 2] as number)] = v;
            regs[bp + (code[pc + 3] as number)] = it.count++;
            pc += 5;
          }
          continue;
        }
        case 74: {
          // SWITCH
          const table = consts[code[pc + 1] as number] as SwitchTable;
          const v = regs[bp + (code[pc + 2] as number)] as Value;
          if (typeof v === 'number' && !table.guarded) {
            const arms = table.ints.get(v);
            if (arms !== undefined) {
              pc = table.targets[arms[0] as number] as number;
              continue;
            }
          }
          const arms = candidates(table, v);
          regs[bp + (code[pc + 3] as number)] = arms as unknown as Value;
          pc = table.targets[arms.shift() as number] as number;
          continue;
        }
        case 75: {
          // SWITCHNEXT
          const table = consts[code[pc + 1] as number] as SwitchTable;
          const arms = regs[bp + (code[pc + 2] as number)] as unknown as number[];
          pc = table.targets[arms.shift() as number] as number;
          continue;
        }
        case 76: // JUNIT
          pc = regs[bp + (code[pc + 1] as number)] === null ? (code[pc + 2] as number) : pc + 3;
          continue;
        case 77: // JNUNIT
          pc = regs[bp + (code[pc + 1] as number)] === null ? pc + 3 : (code[pc + 2] as number);
          continue;
        case 79: {
          // THIS
          let self = regs[bp] as Value | undefined;
          if (self === undefined) throw new RhaiError('ErrorUnboundThis');
          if (self instanceof Cell) self = self.value;
          regs[bp + (code[pc + 1] as number)] = self;
          pc += 2;
          continue;
        }
        case 99: {
          // THISW
          const self = regs[bp] as Value | Cell | undefined;
          if (self === undefined) throw new RhaiError('ErrorUnboundThis');
          if (frame.frozen) throw new RhaiError('ErrorAssignmentToConstant', { name: '' });
          regs[bp + (code[pc + 1] as number)] = self instanceof Cell ? self.value : self;
          pc += 2;
          continue;
        }
        case 80: {
          // BOOLCHECK
          const v = regs[bp + (code[pc + 1] as number)] as Value;
          if (typeof v !== 'boolean') throw mismatch('bool', typeName(v));
          pc += 2;
          continue;
        }
        case 98: {
          // LINREM
          const x = regs[bp + (code[pc + 2] as number)] as Value;
          const r =
            typeof x === 'number'
              ? linearRemainder(x, consts[code[pc + 3] as number] as readonly number[])
              : -1;
          if (r < 0) pc += 5;
          else {
            regs[bp + (code[pc + 1] as number)] = r;
            pc = code[pc + 4] as number;
          }
          continue;
        }
        default: {
          // The rare ones change frames or look names up.
          frame.pc = pc;
          const next = runRare(m, code[pc] as number, frame, pc);
          if (next >= 0) {
            pc = next;
            continue;
          }
          if (m.outcome !== null) return;
        }
      }
      // The frame on top has changed.
      if (m.ops >= m.sliceEnd) {
        m.outcome = { state: 'sliced' };
        return;
      }
      frame = m.top;
      proto = frame.proto as FnProto;
      code = proto.code;
      consts = proto.consts;
      bp = frame.bp;
      pc = frame.pc;
    }
  } catch (thrown) {
    m.faultPc = pc;
    m.faultFrame = frame;
    throw thrown;
  }
}

/** `(x * factor + addend) % modulus` in pieces below 2^53; -1 where that is not the exact result. */
function linearRemainder(x: number, terms: readonly number[]): number {
  const factor = terms[0] as number;
  const addend = terms[1] as number;
  const modulus = terms[2] as number;
  if (x < 0 || x * factor + addend > 9.2e18) return -1;
  const part = x % modulus;
  const low = part & 0xffff;
  const high = (part - low) / 65536;
  return ((((high * factor) % modulus) * 65536 + low * factor + addend) % modulus) + 0;
}

function indexSlow(m: MachineState, base: Value, index: Value, pc: number, dst: number): Value {
  const value = getIndex(base, index, m.settings);
  if (value === null) noteMissing(m, pc, dst, base, index);
  return value;
}

function setIndexSlow(m: MachineState, base: Value, index: Value, value: Value): Value {
  const result = setIndex(base, index, value);
  if (m.checksSize) m.checkSize(result);
  return result;
}

/** `base.name`. False when the answer comes later. */
function readProperty(m: MachineState, base: Value, name: string, dst: number): boolean {
  if (base instanceof RMap) {
    if (m.settings.failOnInvalidMapProperty) throw missingProperty(name);
    noteMissing(m, m.top.pc - 4, dst, base, name);
    m.regs[dst] = null;
    return true;
  }
  if (base instanceof HostObject) {
    const answer = m.engine.getter(base.type)?.(base, name);
    if (answer instanceof Suspend) {
      suspend(m, answer, dst);
      return false;
    }
    if (answer !== undefined) {
      m.regs[dst] = answer;
      return true;
    }
  }
  const args = [base];
  const getter = choose(m.natives.getter(name), args);
  if (!getter?.code) {
    const type = typeName(base);
    throw new RhaiError('ErrorDotExpr', {
      name: `Unknown property '${name}' - a getter is not registered for type '${type}'`,
    });
  }
  m.regs[dst] = getter.code(args, m);
  return true;
}

/** `back`: the value was read from there and may be the same still, so that a setter is no must. */
function writeProperty(
  m: MachineState,
  base: Value,
  name: string,
  value: Value,
  back: boolean,
): Value {
  if (base instanceof RMap) {
    ownEntries(base).set(name, value);
    if (m.checksSize) m.checkSize(base);
    return base;
  }
  const args = [base, value];
  const setter = choose(m.natives.find(`set$${name}`, 2), args);
  if (!setter?.code) {
    if (back) return base;
    const types = `type '${typeName(base)}' to handle '${typeName(value)}'`;
    throw new RhaiError('ErrorDotExpr', {
      name: `No writable property '${name}' - a setter is not registered for ${types}`,
    });
  }
  setter.code(args, m);
  return args[0] as Value;
}

/** A comparison in a condition. */
function test(m: MachineState, op: Operator, a: Value, b: Value): boolean {
  const result = operate(m, op, a, b);
  if (typeof result !== 'boolean') throw mismatch('bool', typeName(result));
  return result;
}

function operate(m: MachineState, op: Operator, a: Value, b: Value): Value {
  if (!m.settings.fastOperators) {
    const fn = choose(m.natives.find(op, 2), [a, b]);
    if (fn?.code) return fn.code([a, b], m);
  }
  const bare = !m.settings.standardLibrary && needsLibrary(op, a, b);
  const result = bare ? undefined : op === '==' ? equals(a, b) : binary(op, a, b);
  if (result === undefined) return registered(m, op, [a, b]);
  if (m.checksSize && (typeof result === 'string' || typeof result === 'object')) {
    m.checkSize(result);
  }
  return result;
}

/** Operators that come with the standard library, not with the language. */
function needsLibrary(op: Operator, a: Value, b: Value): boolean {
  if (a instanceof RArray || a instanceof RMap) return typeName(a) === typeName(b);
  if (op !== '+' || (typeof a !== 'string' && typeof b !== 'string')) return false;
  const other = typeof a === 'string' ? b : a;
  return other !== null && typeof other !== 'string' && !(other instanceof Char);
}

/** An operator that is not built in for these types. */
function registered(m: MachineState, op: string, args: Value[]): Value {
  const fn = choose(m.natives.find(op, args.length), args);
  if (!fn?.code) throw new RhaiError('ErrorFunctionNotFound', { name: signature(op, args) });
  return fn.code(args, m);
}

function operateUnary(m: MachineState, op: '-' | '+' | '!', value: Value): Value {
  if (!m.settings.standardLibrary) return registered(m, op, [value]);
  if (op === '-') {
    const result = negate(value);
    if (result !== undefined) return result;
  } else if (op === '+' && (isInt(value) || value instanceof Float)) return value;
  return registered(m, op, [value]);
}

function opAssign(m: MachineState, op: Operator, target: Value, value: Value): Value {
  const changed = assignOperator(op, target, value);
  if (changed === undefined) return operate(m, op, target, value);
  if (m.checksSize) m.checkSize(changed);
  return changed;
}

/** The name of a captured variable, for errors. */
function nameAt(frame: Frame, slot: number): string {
  return frame.proto?.variables.findLast((v) => v.slot === slot)?.name ?? '';
}

/** The arms to try, in order: exact values, then ranges, then the default. */
function candidates(table: SwitchTable, value: Value): number[] {
  const last = table.targets.length - 1;
  const arms: number[] = [];
  if (typeof value === 'number') arms.push(...(table.ints.get(value) ?? []));
  else if (typeof value === 'string') arms.push(...(table.strings.get(value) ?? []));
  else {
    const found = table.others.find((o) => sameValue(o.value, value));
    if (found) arms.push(...found.arms);
  }
  for (const { start, end, inclusive, arm } of table.ranges) {
    if (inRange(value, start as Int, end as Int, inclusive)) arms.push(arm);
  }
  arms.push(last);
  return arms;
}

function inRange(value: Value, start: Int, end: Int, inclusive: boolean): boolean {
  if (isInt(value)) return value >= start && (inclusive ? value <= end : value < end);
  if (!(value instanceof Float)) return false;
  const x = value.value;
  return x >= Number(start) && (inclusive ? x <= Number(end) : x < Number(end));
}
