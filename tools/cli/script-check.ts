/** `herobus script check`: compiles a script as a deployment would be, and shows where it is wrong. */
import type { Command } from 'commander';
import { explain } from '../../actors/flow/bundle.ts';
import { hintOf, originOf, type RhaiError } from '../../rhai/engine.ts';
import type { Answer } from '../../schemas/answers.ts';
import { readBundle } from './bundle.ts';
import { compileError } from './check.ts';
import { EXIT } from './failure.ts';
import { globals, print, printJson, say, withExample } from './output.ts';

export function registerScriptCheck(script: Command): void {
  const command = script
    .command('check')
    .description(
      'Compiles a script and the files it imports as a deployment would be, without running it.',
    )
    .argument('<file>', 'the script; - reads it from standard input')
    .action(async (path: string, _options: object, self: Command) => {
      const bundle = await readBundle(path);
      const name = path === '-' ? 'standard input' : path;
      const error = compileError(bundle);
      process.exitCode = error === undefined ? EXIT.done : EXIT.failed;
      if (globals(self).json) printJson('script-answer', answerOf(name, error));
      else if (error === undefined) print(`${name}: no errors`);
      else say(refusal(name, explain(error, bundle), hintOf(error)));
    });
  withExample(command, 'herobus script check web.rhai');
}

const refusal = (name: string, text: string, hint: string | undefined): string =>
  `${name} does not compile\n${text}${hint === undefined ? '' : `\n  fix: ${hint}`}`;

/** As the answers of `script run --json-lines` are, with the hint besides. */
function answerOf(id: string, error: RhaiError | undefined): Answer<'script-answer'> {
  if (error === undefined) return { id, ok: { type: 'unit' } };
  const { error: innermost, path } = originOf(error);
  const { kind, message, position, parse, lex, hint } = innermost;
  return {
    id,
    ...(path === '' ? {} : { module: path }),
    error: kind,
    message,
    ...(position.line > 0 ? { pos: [position.line, position.column] } : {}),
    ...(parse === undefined ? {} : { parse }),
    ...(lex === undefined ? {} : { lex }),
    ...(hint === undefined ? {} : { hint }),
  };
}
