/** `herobus watch`: follows a flow that is there already to its end, as `deploy` does with its own. */
import type { Command } from 'commander';
import { HeroError } from '../../schemas/errors.ts';
import { parseDuration } from './arguments.ts';
import { usage } from './failure.ts';
import { locateFlow, parseFlowName } from './flow-view.ts';
import { globals, withExample } from './output.ts';
import { withSession } from './session.ts';
import { follow } from './submit.ts';

type WatchOptions = { context?: string; placeWithin: string };

export function registerWatch(program: Command): void {
  const command = program
    .command('watch')
    .summary('follow a flow to its end')
    .description('Follows a flow to its end: what `deploy` does after publishing. Ctrl-C detaches.')
    .argument('<id>', 'the flow id')
    .option('-c, --context <name>', 'the context; by default all that you may read')
    .option('--place-within <duration>', 'give up waiting when no node fits for this long', '30s')
    .action(async (text: string, options: WatchOptions, self: Command) => {
      const { id, job } = parseFlowName(text);
      if (job !== null) throw usage('watch follows a flow, not a job: leave out the .<n>');
      const placeWithinMs = parseDuration(options.placeWithin, '--place-within');
      process.exitCode = await withSession(self, async (session) => {
        const located = await locateFlow(session, id, options.context);
        if (located.found === 'refused') {
          throw new HeroError('not_found', `${id} never became a flow: it was refused`, {
            fix: `See why with \`herobus flow ${id}\`.`,
          });
        }
        const { json = false } = globals(self);
        return follow(session, located.ref, { json, detach: false, placeWithinMs });
      });
    });
  withExample(command, 'herobus watch hxj3wq5mzk7y2b4c6dresftaub');
}
