/** `herobus script check`: compiles a script as a deployment would be, and shows where it is wrong. */
import type { Command } from 'commander';
import { prettyError, type RhaiError } from '../../rhai/engine.ts';
import { compileError } from './check.ts';
import { EXIT } from './failure.ts';
import { readScript } from './files.ts';
import { globals, print, printJson, say, withExample } from './output.ts';

export function registerScriptCheck(script: Command): void {
  const command = script
    .command('check')
    .description('Compiles a script as a deployment would be, without running it.')
    .argument('<file>', 'the script; - reads it from standard input')
    .action(async (path: string, _options: object, self: Command) => {
      const text = await readScript(path);
      const name = path === '-' ? 'standard input' : path;
      const error = compileError(text);
      process.exitCode = error === undefined ? EXIT.done : EXIT.failed;
      if (globals(self).json) printJson(answerOf(name, error));
      else if (error === undefined) print(`${name}: no errors`);
      else say(`${name} does not compile\n${prettyError(error, text)}`);
    });
  withExample(command, 'herobus script check web.rhai');
}

/** As the answers of `script run --json-lines` are. */
function answerOf(id: string, error: RhaiError | undefined): object {
  if (error === undefined) return { id, ok: { type: 'unit' } };
  const { kind, message, position, parse, lex } = error;
  return {
    id,
    error: kind,
    message,
    ...(position.line > 0 ? { pos: [position.line, position.column] } : {}),
    ...(parse === undefined ? {} : { parse }),
    ...(lex === undefined ? {} : { lex }),
  };
}
