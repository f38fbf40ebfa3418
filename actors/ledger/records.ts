/**
 * The ledger's writes: records under compare-and-set, and the history of signed changes.
 *
 * One ledger writes at a time, but two may meet for a moment when one takes over from another, so every
 * write names the revision it was decided on. Invariants:
 *   R1 a record is decided on the revision it replaces, or decided anew;
 *   R2 the writes of one record run one after the other in this process;
 *   R3 a signed change is in its record first; it is in `ledger_grants` before the record changes again,
 *      so no change is ever missing there for good.
 */
import { type Bus, type Kv, type KvEntry, RevisionLost } from '../../bus/bus.ts';
import { HeroError } from '../../schemas/errors.ts';
import type { ContextName, Principal } from '../../schemas/ids.ts';
import type {
  ChangeRecord,
  ContextRecord,
  PrincipalKind,
  PrincipalRecord,
} from '../../schemas/ledger.ts';
import { BUCKETS, principalKey, type Directory, type Stored } from './directory.ts';

const TRIES_MAX = 8;

/** What to store and what to answer; `write` undefined leaves the record as it is. */
export type Verdict<T, A> = { write?: T | undefined; answer: A };

type Bucket = 'principals' | 'contexts';
type RecordIn = { principals: PrincipalRecord; contexts: ContextRecord };

export class Records {
  readonly #kv: { [B in Bucket | 'changes']: Kv };
  readonly #directory: Directory;
  readonly #tails = new Map<string, Promise<unknown>>();

  constructor(bus: Pick<Bus, 'kv'>, directory: Directory) {
    this.#directory = directory;
    this.#kv = {
      principals: bus.kv(BUCKETS.principals),
      contexts: bus.kv(BUCKETS.contexts),
      changes: bus.kv(BUCKETS.changes),
    };
  }

  /** Decides on the record that stands, as often as another writer was first, and stores the outcome. */
  changePrincipal<A>(
    kind: PrincipalKind,
    principal: Principal,
    decide: (current: PrincipalRecord | undefined) => Verdict<PrincipalRecord, A>,
  ): Promise<A> {
    const known = () => this.#directory.storedPrincipal(kind, principal);
    return this.#change('principals', principalKey(kind, principal), known, decide);
  }

  changeContext<A>(
    name: ContextName,
    decide: (current: ContextRecord | undefined) => Verdict<ContextRecord, A>,
  ): Promise<A> {
    return this.#change('contexts', name, () => this.#directory.storedContext(name), decide);
  }

  /** Copies the last changes of all records to the history: what a crash may have left undone. */
  async settleHistory(): Promise<void> {
    for (const record of [...this.#directory.contexts(), ...this.#directory.principals()]) {
      await this.#remember(record.last);
    }
  }

  async #change<B extends Bucket, A>(
    bucket: B,
    key: string,
    known: () => Stored<RecordIn[B]> | undefined,
    decide: (current: RecordIn[B] | undefined) => Verdict<RecordIn[B], A>,
  ): Promise<A> {
    return this.#inTurn(`${bucket}.${key}`, async () => {
      for (let tries = 0; tries < TRIES_MAX; tries++) {
        const stored = known();
        const { write, answer } = decide(stored?.record);
        if (write === undefined) return answer;
        await this.#remember(stored?.record.last);
        if (await this.#store(bucket, key, write, stored?.revision)) {
          if (write.last !== stored?.record.last) await this.#remember(write.last);
          return answer;
        }
      }
      throw new HeroError('kv_conflict', `${key} is being changed by somebody else`, {
        fix: 'Try again; if it stays so, two ledgers are running.',
      });
    });
  }

  /** False when another writer was first; the directory then has what he wrote. */
  async #store(bucket: Bucket, key: string, value: object, revision?: number): Promise<boolean> {
    const kv = this.#kv[bucket];
    try {
      const written =
        revision === undefined
          ? await kv.create(key, value)
          : await kv.update(key, value, revision);
      this.#directory.take(bucket, { key, value, revision: written, at: 0 });
      return true;
    } catch (error) {
      if (!(error instanceof RevisionLost)) throw error;
      const standing: KvEntry | undefined = await kv.get(key);
      if (standing !== undefined && !this.#directory.take(bucket, standing)) {
        throw new HeroError('internal', `the record ${key} stands in the way and cannot be read`);
      }
      return false;
    }
  }

  /** Enters a change of another bucket into the history. */
  remember(change: ChangeRecord): Promise<void> {
    return this.#remember(change);
  }

  async #remember(change: ChangeRecord | undefined): Promise<void> {
    if (change === undefined) return;
    try {
      await this.#kv.changes.create(change.id, change);
    } catch (error) {
      if (!(error instanceof RevisionLost)) throw error;
    }
  }

  async #inTurn<A>(key: string, work: () => Promise<A>): Promise<A> {
    const turn = (this.#tails.get(key) ?? Promise.resolve()).then(work, work);
    const settled = turn.catch(() => undefined);
    this.#tails.set(key, settled);
    try {
      return await turn;
    } finally {
      if (this.#tails.get(key) === settled) this.#tails.delete(key);
    }
  }
}
