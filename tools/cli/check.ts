/** A deployment script compiled without running it, under the limits that a deployment has. */
import { type Bundle, bundleFault, explain, isTooLarge } from '../../actors/flow/bundle.ts';
import { SCRIPT_LIMITS } from '../../actors/flow/derive.ts';
import { Engine, hintOf, originOf, RhaiError } from '../../rhai/engine.ts';
import { HeroError } from '../../schemas/errors.ts';

/** What a deployment finds in its scope; not constants here, or their values would be computed with. */
const SCOPE = ['args', 'flow', 'caller', 'context'].map((name) => ({ name, value: null }));
const LIMITS: ReadonlySet<string> = new Set(['ExprTooDeep', 'TooManyFunctions', 'LiteralTooLarge']);

/** The error a script or one of its modules has before it runs; undefined when all compile. */
export function compileError(bundle: Bundle): RhaiError | undefined {
  if (isTooLarge(bundle)) return new RhaiError('ErrorDataTooLarge', { name: 'Script' });
  const engine = new Engine({ ...SCRIPT_LIMITS, strictVariables: true, allowEval: false });
  try {
    engine.compile(bundle.script, { scope: SCOPE });
    return bundleFault(engine, bundle);
  } catch (error) {
    if (error instanceof RhaiError) return error;
    throw error;
  }
}

/** Throws what a node would refuse the script for, with the line and a caret under the place. */
export function assertCompiles(bundle: Bundle, path: string): void {
  const error = compileError(bundle);
  if (error === undefined) return;
  const { error: innermost } = originOf(error);
  const hint = hintOf(error);
  const advice = hint === undefined ? 'Mend the script' : `Mend the script: ${hint}`;
  const limit = innermost.kind !== 'ErrorParsing' || LIMITS.has(innermost.parse ?? '');
  throw new HeroError(
    limit ? 'script_limit' : 'script_syntax',
    `${path === '-' ? 'standard input' : path} does not compile\n${explain(error, bundle)}`,
    {
      fix: `${advice}; \`herobus script check ${path}\` tries it again. Nothing was published.`,
    },
  );
}
