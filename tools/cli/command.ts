/** A signed command to a flow that is there: sealed with the home's key, published, and followed. */
import type { Command } from 'commander';
import { envelopeDigest } from '../../bus/envelope.ts';
import { type FlowState, isJobEnded, type JobState } from '../../actors/flow/fold.ts';
import type { CommandVerb } from '../../schemas/command.ts';
import { HeroError } from '../../schemas/errors.ts';
import { EXIT, usage } from './failure.ts';
import { type FlowName, type Located, locateFlow } from './flow-view.ts';
import { globals } from './output.ts';
import { sealCommand } from './seal.ts';
import { withSession } from './session.ts';
import { type Goal, submit } from './submit.ts';

export type CommandOptions = { context?: string; reason?: string; detach?: boolean };

type Asked = {
  verb: CommandVerb;
  name: FlowName;
  options: CommandOptions;
  /** Looks at the flow before anything is published: throws what the bus would refuse the command for. */
  check?: (flow: Extract<Located, { found: 'flow' }>) => void;
  /** What is waited for, by the flow as it stands before the command. */
  goal: (state: FlowState) => Goal;
  placeWithinMs: number;
};

/** A command to a flow that has its node already; there is no placing to wait for. */
export const NEVER_MS = Number.POSITIVE_INFINITY;

export async function sendCommand(self: Command, asked: Asked): Promise<number> {
  const { verb, name, options, check, goal, placeWithinMs } = asked;
  const { id, job } = name;
  const reason = options.reason ?? null;
  if (reason !== null && reason.length > 1024) throw usage('--reason takes 1024 characters');
  return withSession(self, async (session) => {
    const located = await locateFlow(session, id, options.context);
    if (located.found === 'refused') {
      throw new HeroError('not_found', `${id} never became a flow: it was refused`);
    }
    check?.(located);
    const { ref, state } = located;
    const { identity } = session.home;
    const bytes = sealCommand(ref, { job, verb, reason }, identity, session.bus.now());
    return submit(
      session,
      {
        context: ref.context,
        bytes,
        digest: envelopeDigest(bytes),
        ref,
        signers: [identity.principal],
        what: `${verb} of ${job === null ? id : `${id}.${job}`}`,
      },
      {
        json: globals(self).json ?? false,
        detach: options.detach ?? false,
        placeWithinMs,
        goal: goal(state),
      },
    );
  });
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
