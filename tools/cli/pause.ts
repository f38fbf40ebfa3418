/** `herobus pause` and `herobus resume`: a flow begins nothing more until it is resumed; what runs goes on. */
import type { Command } from 'commander';
import { type CommandOptions, goalOf, NEVER_MS, sendCommand } from './command.ts';
import { usage } from './failure.ts';
import { parseFlowName } from './flow-view.ts';
import { withExample } from './output.ts';

const WHAT = {
  pause: {
    summary: 'let a flow begin nothing more for now',
    description:
      'Pauses a flow: its script goes no further and no job is planned until it is resumed. Jobs that were planned already run to their end.',
  },
  resume: {
    summary: 'let a paused flow go on',
    description: 'Lets a paused flow go on where it was.',
  },
} as const;

export function registerPause(program: Command): void {
  register(program, 'pause');
}

export function registerResume(program: Command): void {
  register(program, 'resume');
}

function register(program: Command, verb: 'pause' | 'resume'): void {
  const command = program
    .command(verb)
    .summary(WHAT[verb].summary)
    .description(WHAT[verb].description)
    .argument('<id>', 'the flow id')
    .option('-c, --context <name>', 'the context; by default all that you may read')
    .option('--reason <text>', 'why, for those who look at it later')
    .option('--detach', 'only publish the command and do not wait')
    .action(async (text: string, options: CommandOptions, self: Command) => {
      const name = parseFlowName(text);
      if (name.job !== null) throw usage(`${verb} is of a whole flow: leave out the .<n>`);
      process.exitCode = await sendCommand(self, {
        verb,
        name,
        options,
        goal: () => goalOf(verb, null),
        placeWithinMs: NEVER_MS,
      });
    });
  withExample(command, `herobus ${verb} hxj3wq5mzk7y2b4c6dresftaub`);
}
