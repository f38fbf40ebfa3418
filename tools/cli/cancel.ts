/** `herobus cancel`: a signed command that ends a flow, or one job of it; waits until it has. */
import type { Command } from 'commander';
import { type CommandOptions, goalOf, NEVER_MS, sendCommand } from './command.ts';
import { parseFlowName } from './flow-view.ts';
import { withExample } from './output.ts';

export function registerCancel(program: Command): void {
  const command = program
    .command('cancel')
    .summary('cancel a flow, or one job of it')
    .description(
      'Cancels a flow, or with <flow>.<n> one job of it, and waits until that has ended.',
    )
    .argument('<id>', 'the flow id, or <flow>.<n>')
    .option('-c, --context <name>', 'the context; by default all that you may read')
    .option('--reason <text>', 'why, for those who look at it later')
    .option('--detach', 'only publish the command and do not wait')
    .action(async (text: string, options: CommandOptions, self: Command) => {
      const name = parseFlowName(text);
      process.exitCode = await sendCommand(self, {
        verb: 'cancel',
        name,
        options,
        goal: () => goalOf('cancel', name.job),
        placeWithinMs: NEVER_MS,
      });
    });
  withExample(command, 'herobus cancel hxj3wq5mzk7y2b4c6dresftaub --reason "wrong version"');
}
