/**
 * Answers to what a script asks and the log cannot compute: the caller's bucket, the roster, a job's state.
 *
 * The answer becomes a `call` decision before the script sees it. A write is decided first, with the
 * revision it replaces, and done after (`settleWrite`): done twice it writes once, and where somebody else
 * wrote in between, ours counts as just before theirs.
 */
import { type Bus, type Kv, RevisionLost } from '../bus/bus.ts';
import { addressOf } from '../bus/identity.ts';
import { userBucket } from '../bus/streams.ts';
import type { FlowState, RecordedAnswer } from '../actors/flow/fold.ts';
import { type ErrorRecord, errorRecord, HeroError } from '../schemas/errors.ts';
import { type Address, addressText, type Principal } from '../schemas/ids.ts';
import { exactJson, type JsonValue, parseStrict, stringifyTyped } from '../schemas/json.ts';
import type { RosterNode } from '../schemas/node.ts';

export type CallDeps = {
  bus: Bus;
  caller: Principal;
  state: FlowState;
  nodes: () => readonly RosterNode[];
};

/** An answer as the log will hold it. */
export type Answer = { answer: string | null; error: ErrorRecord | null; revision: number | null };

/** An answer stands in an entry of the log, beside its question. */
const ANSWER_LENGTH_MAX = 128 * 1024;

const answered = (value: JsonValue, revision: number | null = null): Answer => ({
  answer: stringifyTyped(value),
  error: null,
  revision,
});

export async function answerCall(deps: CallDeps, name: string, args: string): Promise<Answer> {
  try {
    const given = (await ANSWERS[name]?.(deps, parseStrict(args))) ?? unknownCall(name);
    if ((given.answer?.length ?? 0) <= ANSWER_LENGTH_MAX) return given;
    throw new HeroError(
      'too_large',
      `the answer to ${name} has ${given.answer?.length} characters; a script is given ${ANSWER_LENGTH_MAX} at most`,
    );
  } catch (error) {
    // Only what the script itself got wrong is an answer; an unreachable bus is tried again.
    if (error instanceof HeroError && error.code !== 'unreachable') {
      return { answer: null, error: errorRecord(error, { actor: 'supervisor' }), revision: null };
    }
    throw error;
  }
}

function unknownCall(name: string): never {
  throw new HeroError('script_failed', `${name} cannot be answered by this version`);
}

type Answering = (deps: CallDeps, args: JsonValue) => Promise<Answer>;

const ANSWERS: Record<string, Answering> = {
  kv_get: async (deps, args) => {
    const value = (await bucket(deps).get(keyIn(args)))?.value ?? null;
    // Values of a bucket print as they were written: that is their typed JSON.
    return { answer: JSON.stringify(value), error: null, revision: null };
  },
  kv_list: async (deps, args) => answered(await bucket(deps).list(keyIn(args))),
  kv_set: async (deps, args) => answered(null, await bucket(deps).revision(keyIn(args))),
  kv_del: async (deps, args) => answered(null, await bucket(deps).revision(keyIn(args))),
  nodes: async (deps, args) => answered(matching(deps.nodes(), args)),
  status: async ({ state }, n) => answered(state.jobs[Number(n)]?.status ?? 'waiting'),
  node: async ({ state }, n) => answered(shown(state.jobs[Number(n)]?.node)),
  cancel: async () => answered(null),
};

/** Does a decided write; safe to call again after a crash, whoever wrote in the meantime. */
export async function settleWrite(deps: CallDeps, call: RecordedAnswer): Promise<void> {
  if (call.type !== 'call' || call.error !== null || call.revision === null) return;
  const args = parseStrict(call.args);
  const key = keyIn(args);
  try {
    if (call.name === 'kv_del') await bucket(deps).delete(key, call.revision);
    else await bucket(deps).update(key, valueIn(args), call.revision);
  } catch (error) {
    if (!(error instanceof RevisionLost)) throw error;
  }
}

function bucket({ bus, caller }: CallDeps): Kv {
  const address = addressOf(caller);
  if (address === undefined) throw new HeroError('internal', `${caller} has no address`);
  return bus.kv(userBucket(address));
}

function keyIn(args: JsonValue): string {
  const key = Array.isArray(args) ? args[0] : undefined;
  if (typeof key !== 'string') throw new HeroError('script_failed', 'the key must be a string');
  return key;
}

/** As addresses are shown everywhere. */
const shown = (address: Address | null | undefined): string | null =>
  address === null || address === undefined ? null : addressText(address);

/** The value to write, as data that prints as the script's own typed JSON. */
const valueIn = (args: JsonValue): unknown =>
  exactJson(stringifyTyped(Array.isArray(args) ? (args[1] ?? null) : null));

/** The roster as the script sees it: maps with the fields it may select by. */
function matching(nodes: readonly RosterNode[], filter: JsonValue): JsonValue {
  const wanted = (filter ?? {}) as { group?: unknown; caps?: unknown };
  const caps = Array.isArray(wanted.caps) ? wanted.caps : [];
  return nodes
    .filter(
      ({ groups }) => wanted.group === undefined || groups.some((group) => group === wanted.group),
    )
    .filter(({ offers }) => caps.every((cap) => offers.some((offer) => offer === cap)))
    .map(({ address, name, groups, offers, liveness }) => ({
      address: addressText(address),
      caps: offers,
      groups,
      liveness,
      name,
    }));
}
