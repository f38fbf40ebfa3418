/** Modules by name: what `a::b::name` means at this point of the run. */
import type { Library } from './bytecode.ts';
import { NO_POSITION, type Position, RhaiError } from './errors.ts';
import type { Import, MachineState, Module } from './state.ts';
import type { Value } from './values.ts';

function lookUp(imports: readonly Import[], name: string): Module | undefined {
  for (let i = imports.length - 1; i >= 0; i--) {
    const entry = imports[i] as Import;
    if (entry.alias === name) return entry.module;
  }
  return undefined;
}

/** The module of a path, or the script's own library for `global`. */
export function findModule(
  m: MachineState,
  path: readonly string[],
  at: Position = NO_POSITION,
): Module | Library | null {
  const [root = '', ...rest] = path;
  let module = lookUp(m.imports, root);
  if (!module && root === 'global' && rest.length === 0) {
    for (let i = m.depth; i >= 0; i--) {
      const proto = m.frames[i]?.proto;
      if (proto) return proto.library;
    }
  }
  for (const name of rest) module = module && lookUp(module.imports, name);
  if (!module) throw new RhaiError('ErrorModuleNotFound', { name: path.join('::') }, at);
  return module;
}

export function moduleVariable(m: MachineState, path: readonly string[]): Value {
  const name = path.at(-1) ?? '';
  const target = findModule(m, path.slice(0, -1));
  const value = target && 'variables' in target ? target.variables.get(name) : undefined;
  if (value === undefined) throw new RhaiError('ErrorVariableNotFound', { name: path.join('::') });
  return value;
}
