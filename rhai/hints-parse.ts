/** Advice for scripts that do not compile: see hints.ts. */
import type { RhaiError } from './errors.ts';
import { anyOf, nearNames } from './near.ts';

/** What the parser knew where it stopped. */
export interface ParsePlace {
  readonly source: string;
  /** The variables in sight, those of the host included. */
  readonly names: readonly string[];
  readonly hostNames: ReadonlySet<string>;
  readonly inFunction: boolean;
  readonly modules: readonly string[];
  readonly maxDepth: number;
  readonly maxFunctionDepth: number;
}

/** For a name that a function uses and that is declared outside of it. */
export function outsideHint(source: string, name: string, byHost: boolean): string | undefined {
  const declared = new RegExp(`\\b(let|const)\\s+${name}\\b`).exec(source);
  if (declared === null && !byHost) return undefined;
  const constant = declared?.[1] === 'const';
  const how = constant
    ? `write \`global::${name}\``
    : `pass it as an argument, or make it a constant of the script and write \`global::NAME\``;
  return `functions do not see outer variables such as \`${name}\`: ${how}`;
}

const RESERVED: ReadonlyMap<string, string> = new Map([
  ['var', 'variables are declared with `let`'],
  ['null', 'the value for nothing is `()`'],
  ['await', 'nothing to wait for: a call gives its result when it is there'],
  ['async', 'every function can call what takes time: write `fn`'],
  ['go', 'what runs beside the script is started by functions of the host'],
  ['spawn', 'what runs beside the script is started by functions of the host'],
  ['thread', 'what runs beside the script is started by functions of the host'],
  ['match', 'write `switch`'],
  ['case', 'the cases of a `switch` are written `value => result,`'],
  ['default', 'the last case of a `switch` is written `_ => result`'],
  ['new', 'there are no classes: a map holds the data, `#{ name: … }`'],
  ['use', 'modules are taken with `import "path" as name;`'],
  ['static', 'write `const`'],
  ['public', 'functions are public unless they are `private`'],
]);

const OPERATORS: ReadonlyMap<string, string> = new Map([
  ['++', 'write `x += 1`'],
  ['--', 'write `x -= 1`'],
  ['?', 'write `if c { a } else { b }`, which has a value'],
  [':=', 'write `let x = …`'],
]);

function undefinedHint(name: string, place: ParsePlace): string | undefined {
  if (/^(?:nil|none|undefined)$/i.test(name)) return 'the value for nothing is `()`';
  if (place.inFunction) {
    const outside = outsideHint(place.source, name, place.hostNames.has(name));
    if (outside !== undefined) return outside;
  }
  const near = nearNames(name, place.names);
  if (near.length > 0) return `did you mean ${anyOf(near)}?`;
  return undeclaredHint(place.source, name);
}

/** For a name that is not in sight. */
export function undeclaredHint(source: string, name: string): string {
  return new RegExp(`\\b(?:let|const)\\s+${name}\\b`).test(source)
    ? `\`${name}\` is declared elsewhere: a variable is there from its \`let\` to the end of its block, for closures too`
    : `declare it first: \`let ${name} = …\``;
}

function moduleHint(name: string, { modules, inFunction }: ParsePlace): string {
  const near = nearNames(name, modules);
  if (near.length > 0) return `did you mean ${anyOf(near)}?`;
  const where = inFunction ? ' above the function, or in it' : ' before it';
  return `write \`import "…" as ${name};\`${where}`;
}

const afterColon = (text: string): string => text.slice(text.indexOf(': ') + 2);
const inQuotes = (text: string): string => /'([^']*)'/.exec(text)?.[1] ?? '';

function lexHint(lex: string | undefined, text: string): string | undefined {
  if (lex === 'MalformedChar' && inQuotes(text).length > 1) {
    return `single quotes hold one character; a text is written "${inQuotes(text)}"`;
  }
  if (lex === 'UnterminatedString') {
    return 'a text in double quotes ends on its line; one in back-ticks may go on';
  }
  if (lex === 'MalformedEscapeSequence') {
    return 'what there is: \\\\ \\" \\n \\r \\t \\xHH \\uHHHH \\UHHHHHHHH; back-ticks take text as it is';
  }
  if (text === "Unexpected 'fn'") {
    return 'a function without a name is a closure: `|x| …`';
  }
  return text.includes("'eval'") ? 'eval is switched off here' : undefined;
}

function depthHint({ maxDepth, maxFunctionDepth }: ParsePlace): string {
  const inFunctions = maxFunctionDepth === maxDepth ? '' : `, ${maxFunctionDepth} in functions`;
  const most = maxDepth === 0 ? '' : ` (at most ${maxDepth} levels${inFunctions})`;
  return `expressions and blocks nest too deep${most}: give parts of it a name with \`let\`, or their own function`;
}

/** The advice for an error of the parser. */
export function parseHint(error: RhaiError, place: ParsePlace): string | undefined {
  const { name: text = '', parse, lex } = error.details;
  switch (parse) {
    case 'VariableUndefined':
      return undefinedHint(afterColon(text), place);
    case 'ModuleUndefined':
      return moduleHint(afterColon(text), place);
    case 'Reserved':
      return RESERVED.get(inQuotes(text)) ?? OPERATORS.get(inQuotes(text));
    case 'UnknownOperator':
      return OPERATORS.get(inQuotes(text));
    case 'BadInput':
      return lexHint(lex, text);
    case 'ExprTooDeep':
      return depthHint(place);
    case 'AssignmentToConstant':
      return 'a constant does not change: declare it with `let`, or copy it first';
    case 'WrongFnDefinition':
      return 'write it at the top level, or as a closure: `let f = |x| …;`';
    case 'MismatchedType':
      if (text.includes('boolean')) {
        return 'a condition is a bool, nothing else counts as one: compare, `x != 0`';
      }
      return text.includes('iterable') ? 'to count, write a range: `0..n`' : undefined;
    case 'MissingToken':
      return text.startsWith("Expecting ',' to separate the parameters")
        ? 'parameters have no default values: write a second function with fewer parameters'
        : undefined;
    default:
      return undefined;
  }
}
