/**
 * Intake: what users publish on `hb.deploy.<ctx>`, judged before a flow exists.
 *
 * A message is acknowledged to the queue only when its outcome is committed: the `deploy` or command entry
 * in the log, or the refusal. A refused message neither creates nor ends a flow, so it burns no flow id.
 */
import { type Bus, FenceLost, type QueueMessage } from '../../bus/bus.ts';
import { envelopeDigest, open, type OpenedEnvelope, verifySignatures } from '../../bus/envelope.ts';
import { parseDeploySubject, subjects } from '../../bus/subjects.ts';
import { COMMAND_PAYLOAD_TYPE, type Command } from '../../schemas/command.ts';
import { DEPLOY_BYTES_MAX, DEPLOY_PAYLOAD_TYPE } from '../../schemas/deployment.ts';
import { type ErrorRecord, errorRecord, failure, HeroError } from '../../schemas/errors.ts';
import type { Refusal } from '../../schemas/flow.ts';
import type { FlowRef, Principal } from '../../schemas/ids.ts';
import { parseStrictBytes } from '../../schemas/json.ts';
import { authoriseCommand, authoriseDeployment, type Evidence } from '../flow/authorise.ts';
import { ENGINE_VERSION } from '../flow/derive.ts';
import { emptyFlow, fold } from '../flow/fold.ts';
import type { Directory } from '../ledger/directory.ts';
import type { QuotaDesk } from './quota.ts';
import type { OpenFlows } from './open-flows.ts';
import type { Track } from './track.ts';

export type IntakeDeps = {
  bus: Bus;
  directory: Directory;
  openFlows: OpenFlows;
  quotas: QuotaDesk;
  /** The flow's decisions as they stand in the log now. */
  readTrack(ref: FlowRef): Promise<Track>;
};

/** Entries of the same flow may overtake a command's fence; a lively flow settles well within this. */
const COMMAND_TRIES_MAX = 50;

export function intake(deps: IntakeDeps): (message: QueueMessage) => Promise<void> {
  return async (message) => {
    const context = parseDeploySubject(message.subject);
    if (context === undefined) return message.term('no deploy subject');
    const refused = await take(deps, context, message);
    if (refused !== undefined) await refuse(deps, context, message, refused);
    message.ack();
  };
}

/** Commits the message's outcome; returns why it is refused where it is. Other failures throw: try again. */
async function take(
  deps: IntakeDeps,
  context: string,
  message: QueueMessage,
): Promise<ErrorRecord | undefined> {
  let opened: OpenedEnvelope;
  let evidence: Evidence;
  try {
    if (message.data.length > DEPLOY_BYTES_MAX) {
      throw new HeroError(
        'too_large',
        `${message.data.length} bytes; at most ${DEPLOY_BYTES_MAX} are taken`,
      );
    }
    opened = open(message.data);
    evidence = {
      payload: parseStrictBytes(opened.payload, 'bad_envelope'),
      subjectContext: context,
      signers: verifySignatures(opened),
      atMs: message.at,
      context: deps.directory.context(context),
      isRegistered: (principal: Principal) => deps.directory.isRegistered(principal, 'user'),
    };
  } catch (error) {
    if (error instanceof HeroError) return errorRecord(error);
    throw error;
  }
  const text = new TextDecoder().decode(message.data);
  switch (opened.payloadType) {
    case DEPLOY_PAYLOAD_TYPE: {
      const verdict = authoriseDeployment(evidence);
      if ('refused' in verdict) return verdict.refused;
      const ref = { context, flow: opened.flow };
      const exceeded = await letIn(deps, ref, message);
      if (exceeded !== undefined) return exceeded;
      await deploy(deps, ref, text, evidence.signers);
      return undefined;
    }
    case COMMAND_PAYLOAD_TYPE: {
      const verdict = authoriseCommand(evidence);
      if ('refused' in verdict) return verdict.refused;
      return command(deps, verdict.ok, { text, digest: opened.digest }, evidence.signers);
    }
    default:
      return failure(
        'bad_envelope',
        `payloadType ${opened.payloadType} is neither a deployment nor a command`,
      );
  }
}

/** Within the quotas of its context; a flow that is there already is let in again: the same bytes are one. */
async function letIn(
  deps: IntakeDeps,
  ref: FlowRef,
  { at }: QueueMessage,
): Promise<ErrorRecord | undefined> {
  const { quotas, directory } = deps;
  const record = directory.context(ref.context);
  if (record === undefined || quotas.isOpen(ref)) return undefined;
  const exceeded = quotas.letIn(ref, record, at);
  if (exceeded === undefined || (await deps.readTrack(ref)).deploy !== null) return undefined;
  return exceeded;
}

async function deploy(
  deps: IntakeDeps,
  ref: FlowRef,
  envelope: string,
  signers: Principal[],
): Promise<void> {
  const { bus, directory, openFlows } = deps;
  await openFlows.add(ref);
  try {
    await bus.log.decide(
      ref,
      'deploy',
      {
        v: 1,
        inc: bus.incarnation,
        envelope,
        engine: ENGINE_VERSION,
        ledger_revision: directory.revision(),
        submitted_by: signers,
      },
      0,
    );
  } catch (error) {
    if (!(error instanceof FenceLost)) throw error;
    // The same bytes again: one flow. If it has ended, nobody else will close what was just opened.
    if ((await deps.readTrack(ref)).end === null) return;
    deps.quotas.closed(ref);
    await openFlows.remove(ref);
  }
}

async function command(
  deps: IntakeDeps,
  asked: Command,
  { text, digest }: { text: string; digest: string },
  by: Principal[],
): Promise<ErrorRecord | undefined> {
  const { context, flow, verb, job, reason } = asked;
  const ref = { context, flow };
  for (let tries = 0; tries < COMMAND_TRIES_MAX; tries++) {
    const track = await deps.readTrack(ref);
    if (track.deploy === null)
      return failure('not_found', `there is no flow ${flow} in ${context}`);
    // The same command again, however it is wrapped: one command. What follows it may not have been done.
    if (track.commands.includes(digest)) return followUp(deps, ref, asked, track);
    const refused = await refusedCommand(deps, asked, track);
    if (refused !== undefined) return refused;
    try {
      const said = { verb, job, reason, by, envelope: text, digest };
      const body = { v: 1, inc: deps.bus.incarnation, ...said };
      await deps.bus.log.decide(ref, verb, body, track.mainSeq);
      return await followUp(deps, ref, asked, { end: null });
    } catch (error) {
      if (!(error instanceof FenceLost)) throw error;
    }
  }
  throw new HeroError('fence_lost', `flow ${flow} moves too fast for a ${verb} to be entered`);
}

/** A flow that a retry opened is open for whoever starts from `open_flows`, before the message is let go. */
async function followUp(
  deps: IntakeDeps,
  ref: FlowRef,
  { verb }: Command,
  { end }: Pick<Track, 'end'>,
): Promise<undefined> {
  if (verb !== 'retry' || end !== null) return;
  const opened = await deps.openFlows.add(ref);
  // It may have ended again meanwhile, and been closed before it was opened here.
  if ((await deps.readTrack(ref)).end !== null) await deps.openFlows.takeBack(ref, opened);
}

/** Why a command cannot be entered into the log of its flow as it stands now. */
async function refusedCommand(
  deps: IntakeDeps,
  { context, flow, verb, job }: Command,
  { end, jobs }: Track,
): Promise<ErrorRecord | undefined> {
  const no = (why: string): ErrorRecord => failure('not_allowed', `cannot ${verb}: ${why}`);
  if (verb === 'pause' || verb === 'resume') {
    if (job !== null) return no(`a job of its own is not ${verb}d, only its flow is`);
  }
  if (job !== null && job >= jobs) {
    return failure(
      'not_found',
      `cannot ${verb}: flow ${flow} has ${jobs} jobs so far, none of them is ${job}`,
    );
  }
  if (verb !== 'retry') {
    return end === null ? undefined : no(`flow ${flow} has ended ${end.status}`);
  }
  if (end === null) return no(`flow ${flow} has not ended; only one that ended failed is retried`);
  if (end.status !== 'failed') {
    return no(`flow ${flow} has ended ${end.status}; only one that ended failed is retried`);
  }
  if (job === null) return undefined;
  // Jobs are no part of the track: they are folded when somebody names one, which is seldom.
  const state = emptyFlow();
  const authority = { isCoord: (at: string) => deps.directory.coords().includes(at) };
  for await (const entry of deps.bus.log.read({ context, flow })) fold(state, entry, authority);
  const known = state.jobs[job];
  if (known === undefined) return no(`job ${job} does not count in the log`);
  if (known.status === 'completed') return no(`job ${job} has completed`);
  return known.endedBy === 'script' ? no(`job ${job} was cancelled by its script`) : undefined;
}

async function refuse(
  deps: IntakeDeps,
  context: string,
  message: QueueMessage,
  error: ErrorRecord,
): Promise<void> {
  const digest = envelopeDigest(message.data);
  const refusal: Refusal = {
    v: 1,
    context,
    envelope: digest,
    flow: flowOf(message.data),
    error,
    signers: signersOf(message.data),
  };
  await deps.bus.queues.publish(subjects.refused(context, digest), refusal);
}

/** Whose keys it names, valid or not: what a refused message says of itself. */
function signersOf(data: Uint8Array): string[] {
  try {
    return open(data).signatures.map(({ keyid }) => keyid);
  } catch {
    return [];
  }
}

function flowOf(data: Uint8Array): string | null {
  try {
    return open(data).flow;
  } catch {
    return null;
  }
}
