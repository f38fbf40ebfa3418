/**
 * Sealed bytes onto the bus and, unless detached, their flow followed to its end: what `deploy`, `publish`,
 * `watch` and `cancel` share. Says on stderr what happens, and returns the exit code.
 */
import { subjects } from '../../bus/subjects.ts';
import { emptyFlow, type FlowState } from '../../actors/flow/fold.ts';
import type { ErrorRecord } from '../../schemas/errors.ts';
import type { Flow } from '../../schemas/flow.ts';
import type { FlowRef } from '../../schemas/ids.ts';
import { asError, errorLines, EXIT, exitCodeOf, exitCodeOfFlow, refusalAdvice } from './failure.ts';
import { flowObject } from './flow-view.ts';
import { Narrator, NodeNames, summary, told } from './narrate.ts';
import { print, printJson, say, valueText } from './output.ts';
import type { Session } from './session.ts';
import { withValues } from './values.ts';
import { type Outcome, type Published, Waiting } from './wait.ts';

export type Message = {
  context: string;
  bytes: Uint8Array;
  digest: string;
  /** The flow the bytes are, or are about; undefined when nobody can say. */
  ref: FlowRef | undefined;
  signers: readonly string[];
  /** What is published, in words. */
  what?: string;
};

export type FollowOptions = {
  json: boolean;
  detach: boolean;
  placeWithinMs: number;
  /** What is waited for; by default the flow's end. */
  goal?: Goal;
};

export type Goal = {
  done: (state: FlowState) => boolean;
  exitCode: (state: FlowState) => number;
};

const FLOW_END: Goal = {
  done: ({ end }) => end !== null,
  exitCode: ({ end }) => (end === null ? EXIT.failed : exitCodeOfFlow(end.status)),
};

/** Publishes; the PubAck is the receipt: from then on nothing is lost when this process is. */
export async function submit(
  session: Session,
  message: Message,
  options: FollowOptions,
): Promise<number> {
  const { context, bytes, digest, ref } = message;
  const text = new TextDecoder().decode(bytes);
  if (options.detach) {
    await publish(session, message);
    const named = ref ?? { context, flow: digest };
    if (options.json) printJson('flow', received(named, message.signers));
    else print(named.flow);
    return EXIT.done;
  }
  const begun = await startFollow(session, { context, ref, published: { digest, text } }, options);
  try {
    // A command's flow is there already: its past is read first, so that only what follows is told.
    if (options.goal !== undefined) await begun.waiting.caughtUp;
    await publish(session, message);
  } catch (error) {
    begun.waiting.stop();
    throw error;
  }
  begun.narrator.release(options.goal !== undefined);
  begun.waiting.sent();
  return conclude(session, message, begun, options);
}

/** Follows a flow that is there already. */
export async function follow(
  session: Session,
  ref: FlowRef,
  options: FollowOptions,
): Promise<number> {
  const begun = await startFollow(
    session,
    { context: ref.context, ref, published: undefined },
    options,
  );
  return conclude(session, { context: ref.context, ref, signers: [], digest: '' }, begun, options);
}

async function publish(session: Session, message: Message): Promise<void> {
  const { context, bytes, ref } = message;
  await session.bus.queues.publishBytes(subjects.deploy(context), bytes);
  const what = message.what ?? (ref === undefined ? 'bytes that name no flow' : `flow ${ref.flow}`);
  say(told('published', `${what}, context ${context}`));
}

type Begun = { waiting: Waiting; narrator: Narrator };

async function startFollow(
  session: Session,
  what: { context: string; ref: FlowRef | undefined; published: Published | undefined },
  options: FollowOptions,
): Promise<Begun> {
  const narrator = new Narrator(await NodeNames.of(session));
  if (what.published !== undefined) narrator.hold();
  const waiting = new Waiting({
    session,
    ...what,
    placeWithinMs: options.placeWithinMs,
    onChange: (state, changes, entry) => narrator.changed(state, changes, entry),
    onNotes: (notes) => narrator.noted(notes),
    done: (options.goal ?? FLOW_END).done,
  });
  return { waiting, narrator };
}

async function conclude(
  session: Session,
  message: Pick<Message, 'context' | 'ref' | 'digest' | 'signers'>,
  { waiting, narrator }: Begun,
  options: FollowOptions,
): Promise<number> {
  const outcome = await waiting.outcome();
  narrator.end();
  // A refused command says nothing about the flow it was for.
  if (outcome.type === 'refused' && options.goal !== undefined) throw asError(outcome.error);
  const ref = message.ref ?? { context: message.context, flow: message.digest };
  const state = waiting.state;
  const object: Flow =
    state === undefined || state.deploy === null
      ? received(ref, message.signers)
      : await withValues(session, flowObject(ref, state), options.json ? 'all' : 'flow');
  const goalCode = state === undefined ? EXIT.failed : (options.goal ?? FLOW_END).exitCode(state);
  return tell(session, outcome, object, { json: options.json, goalCode });
}

function tell(
  session: Session,
  outcome: Outcome,
  object: Flow,
  { json, goalCode }: { json: boolean; goalCode: number },
): number {
  switch (outcome.type) {
    case 'ended':
      for (const line of summary(object)) say(line);
      if (object.value_error) say(told('value', errorLines(object.value_error).join('\n')));
      if (json) printJson('flow', object);
      else if (object.value_error) return EXIT.failed;
      else if (object.status === 'completed') print(valueText(object.value));
      return goalCode;
    case 'refused':
      return tellRefused(object, outcome.error, json);
    case 'unplaceable': {
      say(told('unplaced', outcome.reason));
      say(`  The flow waits and begins as soon as a node fits. ${reattach(session, object)}`);
      const placed = object.supervisor !== null;
      if (json)
        printJson('flow', {
          ...object,
          status: placed ? object.status : 'unplaced',
          unplaced: outcome.reason,
        });
      return EXIT.refused;
    }
    case 'unreachable':
      say(told('unreachable', 'the bus has been away for two minutes; the flow is safe in it'));
      say(`  ${reattach(session, object)}`);
      if (json) printJson('flow', object);
      return EXIT.unreachable;
    case 'detached':
      say(
        told('detached', `nothing was cancelled: the flow goes on. ${reattach(session, object)}`),
      );
      if (json) printJson('flow', object);
      return EXIT.interrupted;
  }
}

function tellRefused(object: Flow, error: ErrorRecord, json: boolean): number {
  const refused: Flow = { ...object, status: 'refused', error, value: null, jobs: [] };
  say(told('refused', [...errorLines(error), ...refusalAdvice(error)].join('\n  ')));
  if (json) printJson('flow', refused);
  const code = exitCodeOf(error.code);
  return code === EXIT.failed ? EXIT.refused : code;
}

/** What a flow object says before the log does. */
function received(ref: FlowRef, signers: readonly string[]): Flow {
  return { ...flowObject(ref, emptyFlow()), submitted_by: [...signers] };
}

function reattach({ home, again }: Session, { flow, context }: Flow): string {
  const own = home.config.context ?? 'default';
  const named = context === own ? '' : ` -c ${context}`;
  return `Follow it again: herobus watch ${flow}${named}${again}`;
}
