/** A deployment script compiled without running it, under the limits that a deployment has. */
import { SCRIPT_BYTES_MAX, SCRIPT_LIMITS } from '../../actors/flow/derive.ts';
import { Engine, prettyError, RhaiError } from '../../rhai/engine.ts';
import { HeroError } from '../../schemas/errors.ts';

/** What a deployment finds in its scope; not constants here, or their values would be computed with. */
const SCOPE = ['args', 'flow', 'caller', 'context'].map((name) => ({ name, value: null }));
const LIMITS: ReadonlySet<string> = new Set(['ExprTooDeep', 'TooManyFunctions', 'LiteralTooLarge']);

/** The error a script has before it runs; undefined when it compiles. */
export function compileError(script: string): RhaiError | undefined {
  if (script.length > SCRIPT_BYTES_MAX) {
    return new RhaiError('ErrorDataTooLarge', { name: 'Script' });
  }
  const engine = new Engine({ ...SCRIPT_LIMITS, strictVariables: true, allowEval: false });
  try {
    engine.compile(script, { scope: SCOPE });
    return undefined;
  } catch (error) {
    if (error instanceof RhaiError) return error;
    throw error;
  }
}

/** Throws what a node would refuse the script for, with the line and a caret under the place. */
export function assertCompiles(script: string, name: string): void {
  const error = compileError(script);
  if (error === undefined) return;
  const limit = error.kind !== 'ErrorParsing' || LIMITS.has(error.parse ?? '');
  throw new HeroError(
    limit ? 'script_limit' : 'script_syntax',
    `${name} does not compile\n${prettyError(error, script)}`,
    {
      fix: `Mend the script; \`herobus script check ${name}\` tries it again. Nothing was published.`,
    },
  );
}
