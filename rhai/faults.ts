/**
 * What is noted about an error where it happens, while the registers still hold what it happened to:
 * hints.ts makes advice of it once nobody has caught the error. Kept small, because most errors that
 * scripts catch never need it.
 */
import { type CallSite, type FnProto, OP } from './bytecode.ts';
import type { ErrorKind, RhaiError } from './errors.ts';
import type { MissingRead } from './missing.ts';
import type { MachineState } from './state.ts';
import { Cell, RMap, typeName, type Value } from './values.ts';

export interface Fault {
  readonly proto: FnProto;
  readonly pc: number;
  /** The types of the values the instruction was given. */
  readonly types: readonly string[];
  /** Where a `()` among them came from; `sure`: it is that very value. */
  readonly missing: { readonly read: MissingRead; readonly sure: boolean } | null;
}

const FAULTS = new WeakMap<RhaiError, Fault>();

export const faultOf = (error: RhaiError): Fault | undefined => FAULTS.get(error);

/** Kinds that are about the values of one instruction. */
const OF_VALUES: ReadonlySet<ErrorKind> = new Set([
  'ErrorFunctionNotFound',
  'ErrorMismatchDataType',
  'ErrorDotExpr',
  'ErrorIndexingType',
  'ErrorFor',
]);

const RANGES: readonly (readonly [first: number, last: number, offsets: readonly number[]])[] = [
  [OP.ADD, OP.MOD, [2, 3]],
  [OP.ADDI, OP.MODI, [2]],
  [OP.LT, OP.NE, [2, 3]],
  [OP.BINARY, OP.BINARY, [3, 4]],
  [OP.NOT, OP.PLUS, [2]],
  [OP.JF, OP.JT, [1]],
  [OP.JLTF, OP.JNEF, [1, 2]],
  [OP.JLTIF, OP.JNEIF, [1]],
  [OP.GETIDX, OP.GETIDX, [2, 3]],
  [OP.SETIDX, OP.SETIDX, [1, 2]],
  [OP.REFIDX, OP.REFIDX, [2, 3]],
  [OP.GETPROP, OP.GETPROP, [2]],
  [OP.SETPROP, OP.SETPROP, [1]],
  [OP.REFPROP, OP.REFPROP, [2]],
  [OP.BACKPROP, OP.BACKPROP, [1]],
  [OP.ADDA, OP.ADDA, [1, 2]],
  [OP.ADDAI, OP.ADDAI, [1]],
  [OP.SUBA, OP.SUBA, [1, 2]],
  [OP.SUBAI, OP.SUBAI, [1]],
  [OP.OPA, OP.OPA, [2, 3]],
  [OP.FORINIT, OP.FORINIT, [2]],
  [OP.BOOLCHECK, OP.BOOLCHECK, [1]],
];

/** The registers an instruction reads its values from, relative to its frame. */
function operands({ code, consts }: FnProto, pc: number): number[] {
  const op = code[pc] as number;
  if (op === OP.METHOD || op === OP.CALLN) {
    const { argc } = consts[code[pc + 1] as number] as CallSite;
    const first = (code[pc + 2] as number) + (op === OP.METHOD ? 0 : 1);
    return Array.from({ length: argc }, (_, i) => first + i);
  }
  const known = RANGES.find(([first, last]) => op >= first && op <= last);
  return known === undefined ? [] : known[2].map((offset) => code[pc + offset] as number);
}

/** Notes an error that has just been thrown. */
export function noteFault(m: MachineState, error: RhaiError): void {
  const frame = m.faultFrame;
  if (frame === null || frame.proto === null || FAULTS.has(error)) return;
  const { proto, bp } = frame;
  const pc = m.faultPc;
  const types: string[] = [];
  let missing: Fault['missing'] = null;
  if (OF_VALUES.has(error.kind)) {
    for (const register of operands(proto, pc)) {
      const held = m.regs[bp + register] as Value | Cell | undefined;
      const value = held instanceof Cell ? held.value : (held ?? null);
      types.push(typeName(value));
      if (value !== null || missing?.sure === true) continue;
      missing = originOfUnit(m, proto, bp + register) ?? missing;
    }
  }
  FAULTS.set(error, { proto, pc, types, missing });
}

function originOfUnit(m: MachineState, proto: FnProto, register: number): Fault['missing'] {
  const exact = m.missing.into(register);
  if (exact !== undefined) return { read: exact, sure: true };
  const read = m.missing.latest(proto);
  return read === undefined ? null : { read, sure: false };
}

/** Notes a read that gave unit because a map has no such key. */
export function noteMissing(
  m: MachineState,
  pc: number,
  register: number,
  base: Value,
  key: Value,
): void {
  if (base instanceof RMap && typeof key === 'string' && !base.items.has(key)) {
    m.missing.note(m.top.proto, pc, register, key, base);
  }
}
