/**
 * The door of this folder: an Engine compiles scripts and starts machines that run them.
 * Hosts import from here, json.ts, errors.ts, values.ts and conformance.ts, nothing else.
 */
import { NO_POSITION, type Position, RhaiError } from './errors.ts';
import { DEFAULT_SETTINGS, type Settings } from './limits.ts';
import type { HostObject, Value } from './values.ts';

export type { Position } from './errors.ts';
export { prettyError, RhaiError, runtimeError } from './errors.ts';
export type { Settings } from './limits.ts';
export type { Value } from './values.ts';
export { HostObject } from './values.ts';

/** Returned by a host function or getter: the machine stops there until resume or reject. */
export class Suspend {
  readonly payload: unknown;
  constructor(payload: unknown) {
    this.payload = payload;
  }
}

export type HostFn = (args: Value[], at: Position) => Value | Suspend;

export interface HostType {
  readonly name: string;
  get?(self: HostObject, property: string): Value | Suspend | undefined;
}

export interface ScopeEntry {
  readonly name: string;
  readonly value: Value;
  readonly constant?: boolean;
}

export type Outcome =
  | { readonly state: 'done'; readonly value: Value }
  | { readonly state: 'failed'; readonly error: RhaiError }
  | { readonly state: 'suspended'; readonly payload: unknown; readonly position: Position }
  | { readonly state: 'sliced' };

export interface Machine {
  /** Runs about that many operations at most, then {state:'sliced'}: call run again to go on. */
  run(maxOperations?: number): Outcome;
  /** After 'suspended': the call's result; then run(). */
  resume(value: Value): void;
  /** After 'suspended': the call throws. */
  reject(error: RhaiError): void;
}

/** A compiled script. */
export interface Program {
  readonly source: string;
}

export class Engine {
  readonly settings: Settings;

  constructor(settings: Partial<Settings> = {}) {
    this.settings = { ...DEFAULT_SETTINGS, ...settings };
  }

  registerFn(_name: string, _minArgs: number, _maxArgs: number, _fn: HostFn): void {}

  registerType(_type: HostType): void {}

  compile(source: string): Program {
    return { source };
  }

  start(_program: Program, _scope: ScopeEntry[] = []): Machine {
    throw new RhaiError('ErrorSystem', { name: 'not built yet' }, NO_POSITION);
  }
}
