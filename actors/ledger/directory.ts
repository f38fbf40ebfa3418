/**
 * The ledger as it is read: principals and contexts in memory, following the buckets.
 *
 * For the ledger itself and for coord and roster in the same process; nodes ask `hb.ledger.contexts`.
 * Invariants:
 *   D1 a record is replaced only by one of a higher revision of its bucket, whatever order they come in;
 *   D2 after `openDirectory` resolves, all records stored by then are here;
 *   D3 what the ledger writes is here before its answer leaves (records.ts calls `take`).
 * It writes nothing.
 */
import type { Bus, KvEntry, Subscription } from '../../bus/bus.ts';
import type { Address, ContextName, Principal } from '../../schemas/ids.ts';
import {
  ContextRecord,
  PrincipalRecord,
  type PrincipalKind,
  type PrincipalRole,
} from '../../schemas/ledger.ts';
import { followBucket } from './bucket.ts';

export const BUCKETS = {
  principals: 'ledger_principals',
  contexts: 'ledger_contexts',
  changes: 'ledger_grants',
} as const;

export type Stored<T> = { record: T; revision: number };
export type DirectoryChange =
  | { what: 'context'; context: ContextRecord }
  | { what: 'principal'; principal: PrincipalRecord };

export const principalKey = (kind: PrincipalKind, principal: Principal): string =>
  `${kind}_${principal}`;

export class Directory {
  readonly #principals = new Map<string, Stored<PrincipalRecord>>();
  readonly #contexts = new Map<ContextName, Stored<ContextRecord>>();
  readonly #nodes = new Map<Address, PrincipalRecord>();
  readonly #coords = new Map<Principal, Address>();
  readonly #pending = new Set<string>();
  readonly #listeners = new Set<(change: DirectoryChange) => void>();
  readonly #revisions = { principals: 0, contexts: 0 };

  /** Grows with every change of a principal or a context, in all processes alike. */
  revision(): number {
    return this.#revisions.principals + this.#revisions.contexts;
  }

  context(name: ContextName): ContextRecord | undefined {
    return this.#contexts.get(name)?.record;
  }

  contexts(): ContextRecord[] {
    return [...this.#contexts.values()].map(({ record }) => record);
  }

  /** The registration of one kind, or of either, the user first; whatever its status. */
  principal(principal: Principal, kind?: PrincipalKind): PrincipalRecord | undefined {
    if (kind !== undefined) return this.#principals.get(principalKey(kind, principal))?.record;
    return this.principal(principal, 'user') ?? this.principal(principal, 'node');
  }

  principals(): PrincipalRecord[] {
    return [...this.#principals.values()].map(({ record }) => record);
  }

  isRegistered(principal: Principal, kind?: PrincipalKind): boolean {
    const kinds: PrincipalKind[] = kind === undefined ? ['user', 'node'] : [kind];
    return kinds.some((each) => this.principal(principal, each)?.status === 'registered');
  }

  hasRole(principal: Principal, role: PrincipalRole): boolean {
    return (['user', 'node'] as const).some((kind) => {
      const record = this.principal(principal, kind);
      return record?.status === 'registered' && record.roles.includes(role);
    });
  }

  /** The registered node of an address. */
  nodeAt(address: Address): PrincipalRecord | undefined {
    const record = this.#nodes.get(address);
    return record?.status === 'registered' ? record : undefined;
  }

  /** Addresses of the keys that decide for the control plane. */
  coords(): Address[] {
    return [...new Set(this.#coords.values())].sort();
  }

  pendingCount(): number {
    return this.#pending.size;
  }

  storedPrincipal(kind: PrincipalKind, principal: Principal): Stored<PrincipalRecord> | undefined {
    return this.#principals.get(principalKey(kind, principal));
  }

  storedContext(name: ContextName): Stored<ContextRecord> | undefined {
    return this.#contexts.get(name);
  }

  onChange(listener: (change: DirectoryChange) => void): Subscription {
    this.#listeners.add(listener);
    return { stop: () => this.#listeners.delete(listener) };
  }

  /** Takes a stored record in; false when it cannot be read, so that the caller can say so. */
  take(bucket: 'principals' | 'contexts', entry: KvEntry): boolean {
    if (bucket === 'principals') {
      const parsed = PrincipalRecord.safeParse(entry.value);
      if (parsed.success) this.#takePrincipal(parsed.data, entry.revision);
      return parsed.success;
    }
    const parsed = ContextRecord.safeParse(entry.value);
    if (parsed.success) this.#takeContext(parsed.data, entry.revision);
    return parsed.success;
  }

  #takePrincipal(record: PrincipalRecord, revision: number): void {
    this.#revisions.principals = Math.max(this.#revisions.principals, revision);
    const key = principalKey(record.kind, record.principal);
    if ((this.#principals.get(key)?.revision ?? 0) >= revision) return;
    this.#principals.set(key, { record, revision });
    if (record.status === 'pending') this.#pending.add(key);
    else this.#pending.delete(key);
    if (record.kind === 'node') this.#nodes.set(record.address, record);
    if (this.hasRole(record.principal, 'coord')) {
      this.#coords.set(record.principal, record.address);
    } else this.#coords.delete(record.principal);
    this.#tell({ what: 'principal', principal: record });
  }

  #takeContext(record: ContextRecord, revision: number): void {
    this.#revisions.contexts = Math.max(this.#revisions.contexts, revision);
    if ((this.#contexts.get(record.context)?.revision ?? 0) >= revision) return;
    this.#contexts.set(record.context, { record, revision });
    this.#tell({ what: 'context', context: record });
  }

  #tell(change: DirectoryChange): void {
    for (const listener of this.#listeners) listener(change);
  }
}

export type OpenDirectory = { directory: Directory; stop: () => void };

/** Loads both buckets and follows them. `onFault` is told of records that cannot be read. */
export async function openDirectory(
  bus: Pick<Bus, 'kv'>,
  onFault: (message: string) => void,
): Promise<OpenDirectory> {
  const directory = new Directory();
  const follows: Subscription[] = [];
  for (const bucket of ['principals', 'contexts'] as const) {
    const take = (key: string, entry: KvEntry | undefined) => {
      if (entry === undefined || directory.take(bucket, entry)) return;
      onFault(`the record ${key} of ${BUCKETS[bucket]} cannot be read; it counts as absent`);
    };
    follows.push(await followBucket(bus.kv(BUCKETS[bucket]), take));
  }
  return { directory, stop: () => follows.forEach((follow) => follow.stop()) };
}
