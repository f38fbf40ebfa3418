/**
 * The knobs of an engine: limits (0 or Infinity = none, where it says so), language options and the
 * host's callbacks. Only data and defaults; the limits are enforced where the thing grows: depths in
 * the parser, operations, call levels and sizes in the machine and the standard library.
 */
import type { Position } from './errors.ts';

export interface Settings {
  /** 0 = none. */
  maxOperations: number;
  maxCallLevels: number;
  /** Nesting of expressions at global level; 0 = none but the hard ceiling of the parser. */
  maxExprDepth: number;
  /** Nesting of expressions in functions. */
  maxFunctionExprDepth: number;
  /** In UTF-8 bytes; 0 = none. */
  maxStringSize: number;
  maxArraySize: number;
  maxMapSize: number;
  /** All values of all variables and temporaries grown by one script, in units; 0 = none. */
  maxTotalSize: number;
  maxVariables: number;
  maxFunctions: number;
  maxModules: number;
  strictVariables: boolean;
  allowEval: boolean;
  allowLooping: boolean;
  allowShadowing: boolean;
  allowAnonymousFn: boolean;
  allowIfExpression: boolean;
  allowSwitchExpression: boolean;
  allowStatementExpression: boolean;
  allowLoopExpressions: boolean;
  failOnInvalidMapProperty: boolean;
  fastOperators: boolean;
  optimizationLevel: 'None' | 'Simple' | 'Full';
  disabledSymbols: ReadonlySet<string>;
  /** Names that act as binary operators, with their precedence. */
  customOperators: ReadonlyMap<string, number>;
  /** False: no standard library (the original's `Engine::new_raw`). */
  standardLibrary: boolean;
  /** Seconds; without it `timestamp()` is an error. */
  clock: (() => number) | undefined;
  /** The source of a module, or undefined when there is none of that name. */
  resolveModule: ((path: string) => string | undefined) | undefined;
  /** What a module is known by, of the path as written and the module it is written in ('': the script). */
  modulePath: ((path: string, from: string) => string) | undefined;
  onPrint: (text: string, at: Position) => void;
  onDebug: (text: string, at: Position) => void;
  /** Called every few thousand operations; true ends the script with ErrorTerminated. */
  onProgress: ((operations: number) => boolean) | undefined;
}

export const DEFAULT_SETTINGS: Settings = {
  maxOperations: 0,
  maxCallLevels: 64,
  maxExprDepth: 64,
  maxFunctionExprDepth: 32,
  maxStringSize: 0,
  maxArraySize: 0,
  maxMapSize: 0,
  maxTotalSize: 0,
  maxVariables: Number.POSITIVE_INFINITY,
  maxFunctions: Number.POSITIVE_INFINITY,
  maxModules: Number.POSITIVE_INFINITY,
  strictVariables: false,
  allowEval: true,
  allowLooping: true,
  allowShadowing: true,
  allowAnonymousFn: true,
  allowIfExpression: true,
  allowSwitchExpression: true,
  allowStatementExpression: true,
  allowLoopExpressions: true,
  failOnInvalidMapProperty: false,
  fastOperators: true,
  optimizationLevel: 'Simple',
  disabledSymbols: new Set(),
  customOperators: new Map(),
  standardLibrary: true,
  clock: undefined,
  resolveModule: undefined,
  modulePath: undefined,
  onPrint: () => {},
  onDebug: () => {},
  onProgress: undefined,
};
