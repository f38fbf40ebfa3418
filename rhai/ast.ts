/**
 * The syntax tree: what the parser makes, the optimiser rewrites and the compiler reads.
 *
 * The parser has already resolved names: a `Variable` points at its `Declaration`, or at none when
 * no variable of that name is in sight (it is then looked up by name at run time).
 * A chain (`a.b[c].d()`) is one flat node, so that its length is never a depth.
 */
import type { Position } from './errors.ts';
import type { FnProto } from './bytecode.ts';
import type { Value } from './values.ts';

/** A local variable. One `let` is one declaration, and a second `let` of the name in the same block is the same. */
export interface Declaration {
  readonly name: string;
  constant: boolean;
  /** A closure captures it: it lives in a cell. */
  captured: boolean;
  /** Has an export alias, so that it is never reused by a second `let`. */
  aliased: boolean;
  slot: number;
}

export interface Name {
  readonly name: string;
  readonly pos: Position;
}

export type Expr =
  | ConstExpr
  | InterpolatedExpr
  | ArrayExpr
  | MapExpr
  | VariableExpr
  | ThisExpr
  | LogicExpr
  | CallExpr
  | ChainExpr
  | BlockExpr
  | ClosureExpr;

export interface ConstExpr {
  readonly kind: 'const';
  readonly value: Value;
  readonly pos: Position;
}
export interface InterpolatedExpr {
  readonly kind: 'interpolated';
  segments: Expr[];
  readonly pos: Position;
}
export interface ArrayExpr {
  readonly kind: 'array';
  items: Expr[];
  readonly pos: Position;
}
export interface MapExpr {
  readonly kind: 'map';
  readonly entries: { readonly key: Name; value: Expr }[];
  readonly pos: Position;
}
export interface VariableExpr {
  readonly kind: 'variable';
  readonly name: string;
  readonly decl: Declaration | null;
  /** `a::b::name`. */
  readonly namespace: readonly Name[];
  /** It is the name of a script function, when no variable has it. */
  readonly isFn: boolean;
  readonly pos: Position;
}
export interface ThisExpr {
  readonly kind: 'this';
  readonly pos: Position;
}
export interface LogicExpr {
  readonly kind: 'and' | 'or' | 'coalesce';
  items: Expr[];
  pos: Position;
}
export interface CallExpr {
  readonly kind: 'call';
  readonly name: string;
  readonly namespace: readonly Name[];
  args: Expr[];
  /** `f!(…)`. */
  readonly capture: boolean;
  /** An operator: never a script function. */
  readonly operator: boolean;
  readonly pos: Position;
}
export interface ChainExpr {
  readonly kind: 'chain';
  base: Expr;
  readonly steps: Step[];
  readonly pos: Position;
}
export type Step = PropertyStep | MethodStep | IndexStep;
export interface PropertyStep {
  readonly kind: 'property';
  readonly name: string;
  readonly optional: boolean;
  readonly pos: Position;
  readonly opPos: Position;
}
export interface MethodStep {
  readonly kind: 'method';
  readonly name: string;
  args: Expr[];
  readonly optional: boolean;
  readonly pos: Position;
  readonly opPos: Position;
}
export interface IndexStep {
  readonly kind: 'index';
  index: Expr;
  optional: boolean;
  readonly pos: Position;
  readonly opPos: Position;
}
export interface BlockExpr {
  readonly kind: 'block';
  stmt: Stmt;
  readonly pos: Position;
}
export interface ClosureExpr {
  readonly kind: 'closure';
  readonly fn: FnDef;
  readonly externals: readonly VariableExpr[];
  readonly pos: Position;
}

export interface FnDef {
  readonly name: string;
  readonly isPrivate: boolean;
  readonly thisType: string | null;
  readonly params: readonly Declaration[];
  /** How many leading parameters are captured variables; the body knows them by name only. */
  readonly captured: number;
  readonly usesEval: boolean;
  body: Stmt;
  readonly pos: Position;
  /** Filled by the compiler; closures and calls refer to it. */
  proto: FnProto | null;
}

export type Stmt =
  | NoopStmt
  | ExprStmt
  | BlockStmt
  | IfStmt
  | SwitchStmt
  | WhileStmt
  | DoStmt
  | ForStmt
  | LetStmt
  | AssignStmt
  | BreakStmt
  | ReturnStmt
  | TryStmt
  | ImportStmt
  | ExportStmt;

export interface NoopStmt {
  readonly kind: 'noop';
  readonly pos: Position;
}
export interface ExprStmt {
  readonly kind: 'expr';
  expr: Expr;
  readonly pos: Position;
}
export interface BlockStmt {
  readonly kind: 'blockStmt';
  body: Stmt[];
  readonly pos: Position;
  readonly end: Position;
}
export interface IfStmt {
  readonly kind: 'if';
  cond: Expr;
  body: Stmt;
  otherwise: Stmt;
  readonly pos: Position;
}
export interface SwitchCase {
  /** Values and ranges of this arm; empty for the default. */
  readonly values: readonly Value[];
  guard: Expr | null;
  body: Stmt;
}
export interface SwitchStmt {
  readonly kind: 'switch';
  subject: Expr;
  cases: SwitchCase[];
  readonly hasDefault: boolean;
  readonly pos: Position;
}
export interface WhileStmt {
  readonly kind: 'while';
  /** Null: `loop`. */
  cond: Expr | null;
  body: Stmt;
  readonly pos: Position;
}
export interface DoStmt {
  readonly kind: 'do';
  body: Stmt;
  cond: Expr;
  readonly until: boolean;
  readonly pos: Position;
}
export interface ForStmt {
  readonly kind: 'for';
  readonly item: Declaration;
  readonly counter: Declaration | null;
  iterable: Expr;
  body: Stmt;
  readonly pos: Position;
}
export interface LetStmt {
  readonly kind: 'let';
  readonly decl: Declaration;
  readonly constant: boolean;
  value: Expr | null;
  readonly exported: boolean;
  /** Variables visible just before it, for the limit. */
  readonly depth: number;
  readonly namePos: Position;
  readonly pos: Position;
  readonly atGlobal: boolean;
}
export interface AssignStmt {
  readonly kind: 'assign';
  /** '' for plain assignment, else the operator without `=`. */
  readonly op: string;
  target: Expr;
  value: Expr;
  readonly pos: Position;
}
export interface BreakStmt {
  readonly kind: 'break' | 'continue';
  value: Expr | null;
  readonly pos: Position;
}
export interface ReturnStmt {
  readonly kind: 'return' | 'throw';
  value: Expr | null;
  readonly pos: Position;
}
export interface TryStmt {
  readonly kind: 'try';
  body: Stmt;
  readonly error: Declaration | null;
  handler: Stmt;
  readonly pos: Position;
}
export interface ImportStmt {
  readonly kind: 'import';
  path: Expr;
  readonly alias: string;
  readonly pos: Position;
}
export interface ExportStmt {
  readonly kind: 'export';
  readonly name: Name;
  readonly decl: Declaration | null;
  readonly alias: string;
  readonly pos: Position;
}

/** An `import` whose path is written out; what a path computes to is known only when it runs. */
export interface ImportSite {
  readonly path: string;
  readonly pos: Position;
}

/** What the parser hands on. */
export interface Script {
  readonly source: string;
  body: Stmt[];
  readonly functions: FnDef[];
  readonly usesEval: boolean;
  readonly importSites: readonly ImportSite[];
}
