/**
 * Who gets in without an admin: whether the ledger is open, and the tokens that let newcomers into a closed one.
 *
 * A token is a secret its maker draws; the ledger is told its SHA-256 and keeps only that, so neither its
 * store nor its history can let anybody in. Invariants:
 *   K1 a use is taken by compare-and-set before the registration it is for: n uses admit at most n keys;
 *   K2 the same key again takes no further use, so a lost answer costs nothing;
 *   K3 a token ends by the clock of the bus, from the time its maker signed it.
 */
import { createHash } from 'node:crypto';
import { type Bus, type Kv, RevisionLost } from '../../bus/bus.ts';
import { HeroError } from '../../schemas/errors.ts';
import {
  AdmissionRecord,
  type LedgerChange,
  type RegisterPayload,
  TokenRecord,
} from '../../schemas/ledger.ts';
import { type AskedChange, judgeMark, marked } from './changes.ts';
import type { Admission } from './registrations.ts';

const ADMISSION_KEY = 'admission';
/** Registrations with one token that come at the same moment each lose to one other at most so often. */
const TRIES_MAX = 64;

export type TokenCreate = Extract<LedgerChange, { change: 'token_create' }>;

const hashOf = (token: string): string => createHash('sha256').update(token).digest('hex');

export class Tokens implements Admission {
  readonly #tokens: Kv;
  readonly #meta: Kv;
  readonly #now: () => number;
  #open = true;

  constructor(bus: Pick<Bus, 'kv'>, now: () => number) {
    this.#tokens = bus.kv('ledger_tokens');
    this.#meta = bus.kv('ledger_meta');
    this.#now = now;
  }

  get open(): boolean {
    return this.#open;
  }

  /** Reads whether the ledger is open, or, where it is said now, keeps it for all further starts. */
  async settle(open: boolean | undefined): Promise<void> {
    if (open !== undefined) await this.#meta.put(ADMISSION_KEY, { v: 1, open });
    const stored = await this.#meta.get(ADMISSION_KEY);
    if (stored === undefined) return;
    const parsed = AdmissionRecord.safeParse(stored.value);
    // Who closed the door must not find it open because a record cannot be read.
    this.#open = parsed.success && parsed.data.open;
  }

  /** Stores the token of a signed change; the same bytes again find it there. */
  async create(change: TokenCreate, asked: AskedChange): Promise<TokenRecord> {
    const stored = await this.#tokens.get(change.hash);
    const known = stored === undefined ? undefined : TokenRecord.parse(stored.value);
    if (known !== undefined && judgeMark(known, asked) === 'seen') return known;
    if (known !== undefined) {
      throw new HeroError('bad_request', 'there is such a token already', {
        fix: 'Draw a new one: `herobus token create`.',
      });
    }
    judgeMark(undefined, asked);
    const record: TokenRecord = {
      v: 1,
      hash: change.hash,
      by: asked.by,
      uses: change.uses,
      used: [],
      created_ms: asked.atMs,
      expires_ms: Date.parse(asked.issuedAt) + change.ttl_ms,
      ...marked(undefined, asked, change),
    };
    await this.#tokens.create(change.hash, record);
    return record;
  }

  /** Takes one use of the token for this key; false when it has none left, has ended, or is none. */
  async redeem(token: string, { principal, kind }: RegisterPayload): Promise<boolean> {
    const hash = hashOf(token);
    for (let tries = 0; tries < TRIES_MAX; tries++) {
      const stored = await this.#tokens.get(hash);
      const record = TokenRecord.safeParse(stored?.value).data;
      if (stored === undefined || record === undefined) return false;
      const now = this.#now();
      if (now >= record.expires_ms) return false;
      const has = record.used.some((use) => use.principal === principal && use.kind === kind);
      if (has) return true;
      if (record.used.length >= record.uses) return false;
      const used = [...record.used, { principal, kind, at_ms: now }];
      try {
        await this.#tokens.update(hash, { ...record, used }, stored.revision);
        return true;
      } catch (error) {
        if (!(error instanceof RevisionLost)) throw error;
      }
    }
    throw new HeroError('kv_conflict', 'too many keys register with this token at once', {
      fix: 'Try again in a moment.',
    });
  }
}
