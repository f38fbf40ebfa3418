/** `herobus retry`: opens a flow that ended failed again and follows it to its next end. */
import type { Command } from 'commander';
import type { FlowState } from '../../actors/flow/fold.ts';
import { HeroError } from '../../schemas/errors.ts';
import { parseDuration } from './arguments.ts';
import { type CommandOptions, sendCommand } from './command.ts';
import { EXIT, exitCodeOfFlow } from './failure.ts';
import { type Located, parseFlowName } from './flow-view.ts';
import { withExample } from './output.ts';
import type { Goal } from './submit.ts';

type RetryOptions = CommandOptions & { placeWithin: string };

export function registerRetry(program: Command): void {
  const command = program
    .command('retry')
    .summary('give what failed in a flow another attempt')
    .description(
      'Opens a flow that ended failed again: the jobs that failed, or with <flow>.<n> that job alone, have another attempt, and so have those that only the end took along. The script is replayed and goes on from there; one that went on after the failure in another way cannot, and says so (replay_mismatch). Follows the flow to its end.',
    )
    .argument('<id>', 'the flow id, or <flow>.<n>')
    .option('-c, --context <name>', 'the context; by default all that you may read')
    .option('--reason <text>', 'why, for those who look at it later')
    .option('--detach', 'only publish the command and do not wait')
    .option('--place-within <duration>', 'give up waiting when no node fits for this long', '30s')
    .action(async (text: string, options: RetryOptions, self: Command) => {
      const name = parseFlowName(text);
      process.exitCode = await sendCommand(self, {
        verb: 'retry',
        name,
        options,
        check: (located) => assertRetriable(located, name.job),
        goal: nextEnd,
        placeWithinMs: parseDuration(options.placeWithin, '--place-within'),
      });
    });
  withExample(
    command,
    'herobus retry hxj3wq5mzk7y2b4c6dresftaub',
    'herobus retry hxj3wq5mzk7y2b4c6dresftaub.3 --reason "the disk has room again"',
  );
}

/** The bus judges it too; here it is said before anything is published. */
function assertRetriable(
  { ref, state }: Extract<Located, { found: 'flow' }>,
  n: number | null,
): void {
  const no = (what: string, fix: string): HeroError => new HeroError('not_allowed', what, { fix });
  if (state.end?.status !== 'failed') {
    const now = state.end === null ? 'has not ended' : `ended ${state.end.status}`;
    throw no(
      `flow ${ref.flow} ${now}: only a flow that ended failed is retried`,
      `See it with \`herobus why ${ref.flow}\`; deploy its script anew to run it once more.`,
    );
  }
  if (n === null) return;
  const job = state.jobs[n];
  const see = `See its jobs with \`herobus flow ${ref.flow}\`.`;
  if (job === undefined) throw no(`flow ${ref.flow} has no job ${n}`, see);
  if (job.status === 'completed') throw no(`job ${n} has completed`, see);
}

const retries = ({ commands }: FlowState): number =>
  commands.filter(({ verb }) => verb === 'retry').length;

/** The end after this retry, not the one it takes back. */
function nextEnd(before: FlowState): Goal {
  const known = retries(before);
  return {
    done: (state) => state.end !== null && retries(state) > known,
    exitCode: ({ end }) => (end === null ? EXIT.failed : exitCodeOfFlow(end.status)),
  };
}
