/** `herobus init`: a key and a configuration in the home. Never overwrites: asked again, it says what is there. */
import type { Command } from 'commander';
import { addressText } from '../../schemas/ids.ts';
import { usage } from './failure.ts';
import { initHome } from './home.ts';
import { globals, print, printJson, say, withExample } from './output.ts';

export function registerInit(program: Command): void {
  const command = program
    .command('init')
    .summary('make a key and a configuration in the home')
    .description(
      'Makes a key and a configuration in the home, and says who you are. What is there already stays as it is.',
    )
    .option('--name <name>', 'what others see beside your key')
    .action(async (options: { name?: string }, self: Command) => {
      const { home: given, json } = globals(self);
      if (options.name !== undefined && !/^\S.{0,126}\S$|^\S$/u.test(options.name)) {
        throw usage('--name takes 1 to 128 characters, no blank at either end');
      }
      const { home, made } = await initHome(given, options.name);
      const { principal, address } = home.identity;
      say(made.key ? `made a key in ${home.dir}` : `there is a key in ${home.dir} already: kept`);
      if (!made.config && options.name !== undefined && home.config.name !== options.name) {
        say(
          `config.json was there already and is kept: its name is ${home.config.name ?? 'unset'}`,
        );
      }
      const shown = addressText(address);
      if (json) printJson('identity', { principal, address: shown });
      else print(`principal  ${principal}\naddress    ${shown}`);
    });
  withExample(command, 'herobus init --name ada');
}
