/** `herobus cancel`: a signed command that ends a flow, or one job of it; waits until it has. */
import type { Command } from 'commander';
import { envelopeDigest } from '../../bus/envelope.ts';
import { type FlowState, isJobEnded, type JobState } from '../../actors/flow/fold.ts';
import type { CommandVerb } from '../../schemas/command.ts';
import { HeroError } from '../../schemas/errors.ts';
import { EXIT, usage } from './failure.ts';
import { locateFlow, parseFlowName } from './flow-view.ts';
import { globals, withExample } from './output.ts';
import { sealCommand } from './seal.ts';
import { withSession } from './session.ts';
import { type Goal, submit } from './submit.ts';

type CancelOptions = { context?: string; reason?: string; detach?: boolean };

/** A cancelled flow needs no node; there is no placing to wait for. */
const NEVER_MS = Number.POSITIVE_INFINITY;

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
    .action(async (text: string, options: CancelOptions, self: Command) => {
      const { id, job } = parseFlowName(text);
      const reason = options.reason ?? null;
      if (reason !== null && reason.length > 1024) throw usage('--reason takes 1024 characters');
      process.exitCode = await withSession(self, async (session) => {
        const located = await locateFlow(session, id, options.context);
        if (located.found === 'refused') {
          throw new HeroError('not_found', `${id} never became a flow: it was refused`);
        }
        const { ref } = located;
        const { identity } = session.home;
        const bytes = sealCommand(
          ref,
          { job, verb: 'cancel', reason },
          identity,
          session.bus.now(),
        );
        return submit(
          session,
          {
            context: ref.context,
            bytes,
            digest: envelopeDigest(bytes),
            ref,
            signers: [identity.principal],
            what: `cancel of ${text}`,
          },
          {
            json: globals(self).json ?? false,
            detach: options.detach ?? false,
            placeWithinMs: NEVER_MS,
            goal: goalOf('cancel', job),
          },
        );
      });
    });
  withExample(command, 'herobus cancel hxj3wq5mzk7y2b4c6d8e9f0a1b --reason "wrong version"');
}

/** What a command is for: a cancel wants an end, the others are done once they stand in the log. */
export function goalOf(verb: CommandVerb, n: number | null): Goal {
  if (verb !== 'cancel') return { done: () => true, exitCode: () => EXIT.done };
  const statusOf = (state: FlowState) =>
    n === null || state.end !== null ? state.end?.status : endStatus(state.jobs[n]);
  return {
    done: (state) => statusOf(state) !== undefined,
    exitCode: (state) => (statusOf(state) === 'cancelled' ? EXIT.done : EXIT.failed),
  };
}

const endStatus = (job: JobState | undefined): string | undefined =>
  job !== undefined && isJobEnded(job) ? job.status : undefined;
