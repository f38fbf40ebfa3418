/**
 * The debugger's seam: breakpoints by line, step, next and out, frames with their variables, and
 * evaluation in a frame. It works on scripts compiled with `{ debug: true }`, which have a stop point
 * before each statement; all other scripts carry no trace of it.
 *
 * The adapter (DAP) is elsewhere; this knows lines, frames and values, no protocol.
 */
import type { Engine, VirtualMachine } from './engine.ts';
import { Program } from './engine.ts';
import { positionAt } from './bytecode.ts';
import type { Position } from './errors.ts';
import { scopeOf, visible } from './names.ts';
import type { Frame, Stop } from './state.ts';
import { Cell, type Value } from './values.ts';

export interface DebugFrame {
  /** '' for the script's outermost code. */
  readonly fn: string;
  readonly position: Position;
  /** From 0, the innermost frame. */
  readonly index: number;
}

export interface DebugVariable {
  readonly name: string;
  readonly value: Value;
  readonly constant: boolean;
}

type Mode = 'run' | 'step' | 'next' | 'out';

export class Debugger {
  private readonly engine: Engine;
  private readonly machine: VirtualMachine;
  private readonly lines = new Set<number>();
  private mode: Mode = 'run';
  private from = 0;
  private pauseAsked = false;

  constructor(engine: Engine, machine: VirtualMachine) {
    this.engine = engine;
    this.machine = machine;
    machine.state.hook = (line, depth) => this.decide(line, depth);
  }

  setBreakpoints(lines: Iterable<number>): void {
    this.lines.clear();
    for (const line of lines) this.lines.add(line);
  }

  /** Lines where a breakpoint can hit: those where a statement begins. */
  possibleLines(): number[] {
    const lines = new Set<number>();
    const { main } = this.machine;
    for (const proto of [main, ...main.library.functions.values()]) {
      for (let i = 1; i < proto.statements.length; i += 2) lines.add(proto.statements[i] as number);
    }
    return [...lines].toSorted((a, b) => a - b);
  }

  /** Stops before the next statement. */
  pause(): void {
    this.pauseAsked = true;
  }

  /** Goes on to the next breakpoint. */
  continue(maxOperations = 0): Stop {
    return this.go('run', maxOperations);
  }

  /** To the next statement, into functions. */
  step(maxOperations = 0): Stop {
    return this.go('step', maxOperations);
  }

  /** To the next statement of this frame, or of a caller. */
  next(maxOperations = 0): Stop {
    return this.go('next', maxOperations);
  }

  /** To the next statement after this function has returned. */
  out(maxOperations = 0): Stop {
    return this.go('out', maxOperations);
  }

  private go(mode: Mode, maxOperations: number): Stop {
    this.mode = mode;
    this.from = this.machine.state.depth;
    return this.machine.run(maxOperations);
  }

  private decide(line: number, depth: number): string | null {
    if (this.pauseAsked) {
      this.pauseAsked = false;
      return 'pause';
    }
    if (this.mode === 'step') return 'step';
    if (this.mode === 'next' && depth <= this.from) return 'step';
    if (this.mode === 'out' && depth < this.from) return 'step';
    return this.lines.has(line) ? 'breakpoint' : null;
  }

  private scriptFrames(): Frame[] {
    const { frames, depth } = this.machine.state;
    return frames
      .slice(0, depth + 1)
      .filter((f) => f.proto !== null)
      .toReversed();
  }

  frames(): DebugFrame[] {
    return this.scriptFrames().map((frame, index) => {
      const proto = frame.proto as NonNullable<Frame['proto']>;
      const pc = index === 0 ? frame.pc : Math.max(frame.pc - 1, 0);
      return { fn: proto.name, position: positionAt(proto, pc), index };
    });
  }

  /** The variables in sight, innermost last; `this` first when it is bound. */
  variables(index = 0): DebugVariable[] {
    const frame = this.scriptFrames()[index];
    if (!frame) return [];
    const { regs } = this.machine.state;
    const out: DebugVariable[] = [];
    const self = regs[frame.bp] as Value | undefined;
    if (self !== undefined && frame.kind === 'fn') {
      out.push({ name: 'this', value: self, constant: false });
    }
    for (const { name, cell, constant } of frame.outer?.variables ?? []) {
      out.push({ name, value: cell.value, constant });
    }
    for (const { name, slot, constant } of visible(frame, frame.pc)) {
      const value = regs[frame.bp + slot] as Value | Cell | undefined;
      if (value === undefined) continue;
      out.push({ name, value: value instanceof Cell ? value.value : value, constant });
    }
    return out;
  }

  /** Runs a script on the variables of a frame; assignments to them stay. */
  evaluate(source: string, index = 0, maxOperations = 100_000): Stop {
    const frame = this.scriptFrames()[index];
    const { state } = this.machine;
    if (!frame?.proto) return { state: 'sliced' };
    const plain = visible(frame, frame.pc).filter(
      (v) => !((state.regs[frame.bp + v.slot] as Value | Cell | undefined) instanceof Cell),
    );
    const scope = scopeOf(state, frame, frame.pc);
    const names = scope.variables.map((v) => v.name);
    const main = this.engine.compileEval(source, frame.proto.library, names, true);
    const result = this.engine.startOn(new Program(source, main), scope).run(maxOperations);
    for (const { slot } of plain) {
      const at = frame.bp + slot;
      const value = state.regs[at] as Value | Cell | undefined;
      if (value instanceof Cell) state.regs[at] = value.value;
    }
    return result;
  }
}
