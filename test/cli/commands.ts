/** All commands of the CLI as commander knows them: what a test about every command walks. */
import type { Command } from 'commander';
import { buildProgram } from '../../tools/cli/main.ts';

/** Full name without `herobus` -> command; groups too, the hidden ones not. */
export async function allCommands(): Promise<Map<string, Command>> {
  const program = await buildProgram([]);
  return new Map([['', program], ...below(program, '')]);
}

function below(command: Command, prefix: string): [string, Command][] {
  const shown = command.createHelp().visibleCommands(command);
  return shown
    .filter((each) => each.name() !== 'help')
    .flatMap((each) => {
      const name = `${prefix}${each.name()}`;
      return [[name, each] as [string, Command], ...below(each, `${name} `)];
    });
}

/** Does it do something, or is it only a name for the commands below it? */
export const acts = (command: Command): boolean =>
  command.commands.length === 0 || command.registeredArguments.length > 0;
