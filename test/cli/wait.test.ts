/**
 * What ends a wait (wait.ts W1, W2), on a bus that is played: a refusal counts before a flow of the same
 * payload, a refusal that was missed is asked for, and nothing the user does to the wait touches the flow.
 */
import assert from 'node:assert/strict';
import { describe, it, type TestContext } from 'node:test';
import type { Entry, Incoming, Link } from '../../bus/bus.ts';
import { subjects } from '../../bus/subjects.ts';
import type { NatsBus } from '../../bus/nats.ts';
import { failure } from '../../schemas/errors.ts';
import type { Session } from '../../tools/cli/session.ts';
import { Waiting } from '../../tools/cli/wait.ts';

const REF = { context: 'default', flow: 'a'.repeat(26) };
const DIGEST = 'b'.repeat(26);
const COORD = 'c'.repeat(32);
const REFUSAL = {
  v: 1,
  context: REF.context,
  envelope: DIGEST,
  flow: REF.flow,
  error: failure('bad_signature', 'no'),
  signers: [],
};

class Played {
  readonly asked: string[] = [];
  refusals: object[] = [];
  unplaced: string | null = null;
  #seq = 0;
  #onEntry: (entry: Entry) => void = () => undefined;
  readonly #listeners = new Map<string, (message: Incoming) => void>();

  session(): Session {
    const link: Link = {
      state: () => ({ up: true, sinceMs: 0 }),
      onChange: () => ({ stop: () => undefined }),
    };
    const bus = {
      link,
      subscribe: (subject: string, listener: (message: Incoming) => void) => {
        this.#listeners.set(subject, listener);
        return { stop: () => void this.#listeners.delete(subject) };
      },
      log: {
        follow: (_ref: object, _from: number, onEntry: (entry: Entry) => void) => {
          this.#onEntry = onEntry;
          return { caughtUp: Promise.resolve(0), poke: () => undefined, stop: () => undefined };
        },
      },
    };
    const flow = { ...REF, status: 'placing', submitted_by: [], supervisor: null };
    return {
      bus: bus as unknown as NatsBus,
      isCoord: (address: string) => address === COORD,
      ask: async (verb: string) => {
        this.asked.push(verb);
        if (verb === 'refusals') return { refusals: this.refusals };
        const times = { created_at: null, ended_at: null, error: null };
        return { flows: [{ ...flow, ...times, seq: 1, unplaced: this.unplaced }], next: null };
      },
    } as unknown as Session;
  }

  refuse(): void {
    const data = Buffer.from(JSON.stringify(REFUSAL));
    const subject = subjects.refused(REF.context, DIGEST);
    this.#listeners.get(subject)?.({ subject, data, caller: undefined });
  }

  deployed(envelope: string): void {
    const body = {
      v: 1,
      inc: 'inc00000',
      envelope,
      engine: 'x',
      ledger_revision: 1,
      submitted_by: [],
    };
    this.#decide('deploy', body);
  }

  /** Cancelled before it had a node: the command itself is the end. */
  ended(): void {
    const body = { verb: 'cancel', job: null, reason: null, by: [], envelope: 'other' };
    this.#decide('cancel', { v: 1, inc: 'inc00000', ...body });
  }

  get listening(): number {
    return this.#listeners.size;
  }

  #decide(kind: string, body: object): void {
    this.#seq += 1;
    const place = { ...REF, lane: 'main', kind, writer: COORD, seq: this.#seq, at: 1 } as const;
    this.#onEntry({ ...place, body, proof: { fence: this.#seq - 1 } });
  }
}

function wait(t: TestContext, played: Played, placeWithinMs = 60_000): Waiting {
  const waiting = new Waiting({
    session: played.session(),
    context: REF.context,
    ref: REF,
    published: { digest: DIGEST, text: 'ours' },
    placeWithinMs,
    onChange: () => undefined,
    onNotes: () => undefined,
    done: ({ end }) => end !== null,
  });
  t.after(() => waiting.stop());
  return waiting;
}

describe('cli - waiting for a flow', () => {
  it('ends with a flow whose log holds our very bytes', async (t) => {
    const played = new Played();
    const waiting = wait(t, played);
    waiting.sent();
    played.deployed('ours');
    played.ended();
    assert.deepEqual(await waiting.outcome(), { type: 'ended' });
    assert.equal(played.listening, 0);
  });

  it('W1: takes a refusal for ours, though the same payload has long become a flow', async (t) => {
    const played = new Played();
    const waiting = wait(t, played);
    played.deployed('somebody else’s signature');
    played.ended();
    waiting.sent();
    setTimeout(() => played.refuse(), 100);
    const outcome = await waiting.outcome();
    assert.equal(outcome.type === 'refused' && outcome.error.code, 'bad_signature');
  });

  it('W1: takes that flow for ours when no refusal comes', async (t) => {
    const played = new Played();
    const waiting = wait(t, played);
    played.deployed('somebody else’s signature');
    played.ended();
    waiting.sent();
    assert.deepEqual(await waiting.outcome(), { type: 'ended' });
  });

  it('W2: asks the ledger for a refusal it may have missed', async (t) => {
    const played = new Played();
    const waiting = wait(t, played);
    played.refusals = [{ ...REFUSAL, at: 1 }];
    waiting.sent();
    const outcome = await waiting.outcome();
    assert.equal(outcome.type === 'refused' && outcome.error.code, 'bad_signature');
    assert.deepEqual(played.asked, ['refusals']);
  });

  it('gives up where no node fits, with the reason the ledger knows', async (t) => {
    const played = new Played();
    const waiting = wait(t, played, 2_500);
    played.unplaced = 'vm: is drained';
    waiting.sent();
    played.deployed('ours');
    assert.deepEqual(await waiting.outcome(), { type: 'unplaceable', reason: 'vm: is drained' });
  });

  it('detaches at SIGINT, and hears no more of it afterwards', async (t) => {
    const played = new Played();
    const before = process.listenerCount('SIGINT');
    const waiting = wait(t, played);
    waiting.sent();
    played.deployed('ours');
    process.emit('SIGINT');
    assert.deepEqual(await waiting.outcome(), { type: 'detached' });
    assert.equal(process.listenerCount('SIGINT'), before);
  });
});
