/**
 * Advice for whoever wrote a script that failed: what a name may have meant, which arguments a function
 * takes, where a `()` came from. The message of an error stays the original's; this is said beside it
 * (`RhaiError.hint`). Made once a script has failed, of what faults.ts noted when it happened. Errors
 * found before a script runs are hints-parse.ts.
 */
import { functionHint } from './hints-functions.ts';
import type { RhaiError } from './errors.ts';
import { type Fault, faultOf } from './faults.ts';
import { anyOf, nearNames } from './near.ts';
import type { MachineState } from './state.ts';
import { outsideHint, undeclaredHint } from './hints-parse.ts';

/** What () is for, once it is known where it came from. */
function unitHint({ missing }: Fault): string | undefined {
  if (missing === null) return undefined;
  const { read, sure } = missing;
  return `${sure ? 'the value is () because' : 'a value is (), perhaps because'} ${read.tell()}`;
}

function variableHint(m: MachineState, fault: Fault, name: string): string | undefined {
  if (name.includes('::')) return moduleVariableHint(m, name);
  if (/^(?:null|nil|none|undefined)$/i.test(name)) return 'the value for nothing is `()`';
  const { proto, pc } = fault;
  const seen = proto.variables.filter((v) => v.start <= pc && pc < v.end).map((v) => v.name);
  const outer = m.scope.variables.map((v) => v.name);
  if (proto.name !== '') {
    const outside = outsideHint(proto.library.source, name, outer.includes(name));
    if (outside !== undefined) return outside;
  }
  const near = nearNames(name, proto.name === '' ? [...seen, ...outer] : seen);
  if (near.length > 0) return `did you mean ${anyOf(near)}?`;
  return m.natives.has(name)
    ? `\`${name}\` is a function: call it, \`${name}(…)\``
    : undeclaredHint(proto.library.source, name);
}

function moduleVariableHint(m: MachineState, name: string): string | undefined {
  const path = name.split('::');
  const wanted = path.pop() ?? '';
  if (path[0] === 'global') {
    return `only constants of the script are there: \`const ${wanted} = …\` at its top level`;
  }
  const names = [...m.modules.values()].flatMap((module) => [...module.variables.keys()]);
  const near = nearNames(wanted, names);
  if (near.length > 0) return `did you mean ${anyOf(near)}?`;
  return names.includes(wanted)
    ? undefined
    : `the module exports no \`${wanted}\`: write \`export const ${wanted} = …\` there`;
}

function typeHint(fault: Fault, error: RhaiError): string | undefined {
  const { name = '', second = '' } = error.details;
  if (name === 'bool' && second !== 'bool') {
    const how: Record<string, string> = {
      i64: '`x != 0`',
      f64: '`x != 0.0`',
      string: '`x != ""`',
      array: '`!x.is_empty()`',
      map: '`!x.is_empty()`',
    };
    return `a condition is a bool, nothing else counts as one: ${how[second] ?? '`x != ()`'}`;
  }
  if (error.kind === 'ErrorMismatchOutputType' && name === 'map') {
    return 'parse_json reads objects only: wrap the text, as in `{"items": […]}`';
  }
  return name === 'string' && fault.types[0] === 'map'
    ? 'the keys of a map are strings: `m[i.to_string()]`'
    : undefined;
}

function forHint(fault: Fault): string {
  switch (fault.types[0]) {
    case 'i64':
      return 'to count, write a range: `for i in 0..n`';
    case 'map':
      return 'a map is gone through by its keys: `for key in m.keys()`, or `m.values()`';
    default:
      return 'what can be gone through: arrays, ranges, strings, blobs, `m.keys()`';
  }
}

const FOREIGN_PROPERTIES: ReadonlyMap<string, string> = new Map([
  ['length', 'len'],
  ['size', 'len'],
  ['count', 'len'],
]);

function propertyHint(m: MachineState, fault: Fault, text: string): string | undefined {
  const [, name = '', type = ''] = /^Unknown property '(.*)' - .* type '(.*)'$/.exec(text) ?? [];
  if (name === '') {
    return text.startsWith('No writable') && fault.types[0] !== '()'
      ? 'only maps have properties that can be set'
      : undefined;
  }
  const foreign = FOREIGN_PROPERTIES.get(name);
  if (foreign !== undefined) return `did you mean \`${foreign}\`?`;
  const near = nearNames(name, m.natives.gettersOf(type));
  if (near.length > 0) return `did you mean ${anyOf(near)}?`;
  return m.natives.has(name) ? `\`${name}\` is a function: \`x.${name}(…)\`` : undefined;
}

/** What the settings allow, for errors that say only that it was too much. */
function limitHint(m: MachineState, error: RhaiError): string | undefined {
  const { settings } = m;
  switch (error.kind) {
    case 'ErrorStackOverflow':
      return `calls may nest ${settings.maxCallLevels} deep, and values no deeper than can be followed: is there a recursion without an end?`;
    case 'ErrorTooManyOperations':
      return `a script may use ${settings.maxOperations} operations: is there a loop without an end?`;
    case 'ErrorDataTooLarge': {
      const { name } = error.details;
      if (name === 'Length of string') return limitOf(settings.maxStringSize, 'bytes of text');
      if (name === 'Size of object map') return limitOf(settings.maxMapSize, 'entries');
      return limitOf(settings.maxArraySize, 'elements, nested ones included');
    }
    default:
      return undefined;
  }
}

const limitOf = (max: number, what: string): string | undefined =>
  max > 0 ? `one value may hold ${max} ${what}` : undefined;

function arithmeticHint(text: string): string | undefined {
  if (text.startsWith('Integer raised to a negative power')) {
    return 'with a float it works: `2.0 ** -1`';
  }
  return / overflow: /.test(text)
    ? 'an integer goes to 2^63 - 1; a float goes further, less exactly: `x.to_float()`'
    : undefined;
}

function accessHint(m: MachineState, fault: Fault, error: RhaiError): string | undefined {
  const { name = '' } = error.details;
  switch (error.kind) {
    case 'ErrorAssignmentToConstant':
    case 'ErrorNonPureMethodCallOnConstant':
      return 'a constant does not change: copy it first, `let x = …`';
    case 'ErrorDataRace':
      return 'a closure uses a variable while a method of that variable runs: give the method a copy, or the closure another variable';
    case 'ErrorUnboundThis':
      return '`this` is what a method is called on: call the function as `x.f()`';
    case 'ErrorModuleNotFound':
      return faultIsCall(fault)
        ? `write \`import "…" as ${name.split('::')[0]};\` before it`
        : undefined;
    case 'ErrorIndexingType':
      return 'what has an index: arrays, maps, strings, blobs and the bits of integers';
    case 'ErrorDotExpr':
      return propertyHint(m, fault, name);
    default:
      return undefined;
  }
}

const faultIsCall = ({ proto, pc }: Fault): boolean =>
  proto.consts[proto.code[pc + 1] as number] instanceof Object;

/** The advice for an error that ended a script; `error` is the innermost one. */
export function hintFor(m: MachineState, error: RhaiError): string | undefined {
  const fault = faultOf(error);
  if (fault === undefined) return limitHint(m, error);
  const { name = '' } = error.details;
  const ofUnit = unitHint(fault);
  if (ofUnit !== undefined) return ofUnit;
  switch (error.kind) {
    case 'ErrorFunctionNotFound':
      return functionHint(m, fault, name);
    case 'ErrorVariableNotFound':
      return variableHint(m, fault, name);
    case 'ErrorMismatchDataType':
    case 'ErrorMismatchOutputType':
      return typeHint(fault, error);
    case 'ErrorFor':
      return forHint(fault);
    case 'ErrorArithmetic':
      return arithmeticHint(name);
    default:
      return limitHint(m, error) ?? accessHint(m, fault, error);
  }
}
