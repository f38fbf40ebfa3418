/** Advice for calls that found no function: who has that name, and what it takes instead. */
import type { FnProto, Library } from './bytecode.ts';
import type { Fault } from './faults.ts';
import { type NativeFn, typesOfMask } from './natives.ts';
import { anyOf, nearNames } from './near.ts';
import { OPERATORS } from './operators.ts';
import type { MachineState } from './state.ts';

/** More forms of a function than this are not listed. */
const FORMS_SHOWN = 5;

const FOREIGN: ReadonlyMap<string, string> = new Map([
  ['println', 'write `print(…)`'],
  ['length', 'write `len()`'],
  ['lenght', 'write `len()`'],
  ['size', 'write `len()`'],
  ['format', 'write the text in back-ticks, with `${…}` for the values'],
  ['slice', 'write `extract(start, count)` for arrays, `sub_string` for strings'],
  ['concat', 'write `a + b`'],
  ['has', 'write `"key" in m`'],
  ['join', 'arrays have none; write `a.reduce(|text, x| text + "," + x, "")`'],
  ['str', 'write `x.to_string()`'],
  ['int', 'write `parse_int(text)` or `x.to_int()`'],
  ['float', 'write `parse_float(text)` or `x.to_float()`'],
]);

function scriptFunctions(library: Library): FnProto[] {
  const found: FnProto[] = [];
  for (let l: Library | null = library; l; l = l.parent) found.push(...l.functions.values());
  return found.filter((fn) => !fn.name.startsWith('anon$'));
}

const written = (fn: FnProto): string =>
  `${fn.thisType === null ? '' : `${fn.thisType}.`}${fn.name}(${fn.params.join(', ')})`;

const given = (count: number): string =>
  count === 1 ? 'it was given 1 argument' : `it was given ${count} arguments`;

/** `sqrt(f64)`. */
function form(fn: NativeFn): string {
  return `${fn.name}(${fn.masks.map(typesOfMask).join(', ')})`;
}

/** Would it fit if integers were floats, or floats integers? */
function numberAdvice(forms: readonly NativeFn[], types: readonly string[]): string | undefined {
  const fits = (fn: NativeFn, from: string, to: string): boolean =>
    fn.masks.length === types.length &&
    types.includes(from) &&
    fn.masks.every((mask, i) => {
      const takes = typesOfMask(mask);
      const type = types[i] as string;
      return takes === 'any' || takes.split('|').includes(type === from ? to : type);
    });
  if (forms.some((fn) => fits(fn, 'i64', 'f64'))) {
    return 'an integer is not taken for a float: write `2.0`, or `x.to_float()`';
  }
  return forms.some((fn) => fits(fn, 'f64', 'i64'))
    ? 'a float is not taken for an integer: write `x.to_int()`'
    : undefined;
}

function nativeAdvice(forms: readonly NativeFn[], types: readonly string[]): string {
  const number = numberAdvice(forms, types);
  if (number !== undefined) return number;
  const texts = [...new Set(forms.map(form))];
  const fitting = texts.filter((text) => text.split(', ').length === types.length);
  const shown = (fitting.length > 0 ? fitting : texts).slice(0, FORMS_SHOWN);
  return `there is ${anyOf(shown)}${texts.length > shown.length ? ' and more' : ''}`;
}

function operatorHint(op: string, types: readonly string[]): string | undefined {
  const [a = '', b = ''] = types;
  if (op === '!') return 'only a bool can be negated: compare instead, `x == 0`';
  if (a === 'Fn' && b === 'Fn') return 'functions cannot be compared; their names can: `f.name`';
  if (a === 'array') return `an array is joined with arrays: \`a ${op} [x]\`, or \`a.push(x)\``;
  if (['&', '|', '^'].includes(op) && types.includes('bool')) {
    return `\`${op}\` does not bind as comparisons do: write parentheses around both sides`;
  }
  if (a === 'string' || b === 'string') {
    return 'a text is no number: `parse_int(text)` or `parse_float(text)`';
  }
  return `there is no \`${op}\` for ${a === '' ? 'that' : types.join(' and ')}`;
}

/** The types in a message's `name (types)`. */
function splitSignature(text: string): { name: string; types: string[] } {
  const at = text.indexOf(' (');
  if (at < 0) return { name: text, types: [] };
  const inside = text
    .slice(at + 2, -1)
    .replaceAll('&str | ImmutableString | String', 'string')
    .trim();
  return { name: text.slice(0, at), types: inside === '' ? [] : inside.split(', ') };
}

export function functionHint(m: MachineState, fault: Fault, text: string): string | undefined {
  const { name, types } = splitSignature(text);
  if (name === '!' || OPERATORS.some((op) => op === name)) return operatorHint(name, types);
  if (name.includes('::')) return moduleHint(m, name, types.length);
  if (name.startsWith('anon$')) return closureHint(fault, name, types.length);
  const { proto, pc } = fault;
  const own = scriptFunctions(proto.library);
  const same = own.filter((fn) => fn.name === name);
  if (same.length > 0) {
    return `there is ${anyOf(same.map(written))}; ${given(types.length)}`;
  }
  if (proto.variables.some((v) => v.name === name && v.start <= pc && pc < v.end)) {
    return `\`${name}\` is a variable; the function in it is called with \`${name}.call(…)\``;
  }
  const forms = m.natives.formsOf(name);
  if (forms.length > 0) return nativeAdvice(forms, types);
  const foreign = FOREIGN.get(name);
  if (foreign !== undefined) return foreign;
  const imported = [...m.modules.values()].find((module) =>
    [...module.library.functions.values()].some((fn) => fn.name === name),
  );
  if (imported !== undefined) {
    return `it is in the module "${imported.path}": write the name it was imported as before it, \`m::${name}(…)\``;
  }
  const near = nearNames(name, [...own.map((fn) => fn.name), ...m.natives.callable()]);
  return near.length === 0
    ? `no function has that name: write it, \`fn ${name}(…) { … }\``
    : `did you mean ${anyOf(near)}?`;
}

function closureHint({ proto }: Fault, name: string, count: number): string | undefined {
  for (let l: Library | null = proto.library; l; l = l.parent) {
    for (const fn of l.functions.values()) {
      if (fn.name !== name) continue;
      const takes = fn.params.length === 0 ? 'no arguments' : `(${fn.params.join(', ')})`;
      return `the closure on line ${fn.pos.line} takes ${takes}, captured variables first; ${given(count)}`;
    }
  }
  return undefined;
}

function moduleHint(m: MachineState, text: string, count: number): string | undefined {
  const name = text.split('::').at(-1) ?? '';
  const all = [...m.modules.values()].flatMap((module) => [...module.library.functions.values()]);
  const same = all.filter((fn) => fn.name === name);
  if (same.some((fn) => fn.isPrivate && fn.arity === count)) {
    return `\`${name}\` is private to its module: take \`private\` away there`;
  }
  if (same.length > 0) return `there is ${anyOf(same.map(written))}; ${given(count)}`;
  const near = nearNames(
    name,
    all.filter((fn) => !fn.isPrivate).map((fn) => fn.name),
  );
  return near.length === 0 ? undefined : `did you mean ${anyOf(near)}?`;
}
