/**
 * Contexts, pure: what a signed change makes of a context's record, and who may ask for it.
 *
 * Admins of the ledger create contexts and set their quotas; everything else only the context's own admins
 * change, so a tenant is nobody else's. Whether the bytes were seen before is changes.ts; writing is records.ts.
 */
import { HeroError } from '../../schemas/errors.ts';
import type { ContextName, Principal } from '../../schemas/ids.ts';
import {
  type ContextRecord,
  type ContextRole,
  type LedgerChange,
  NO_QUOTAS,
  type QuotaChange,
  type Quotas,
} from '../../schemas/ledger.ts';
import { judgeMark, marked, type AskedChange } from './changes.ts';

export type ContextChange = Extract<LedgerChange, { context: ContextName }>;

/** A context says who may, not what exists: every family is allowed until an admin narrows it. */
const ALLOWED_BY_DEFAULT: readonly string[] = [
  'process',
  'process:*',
  'container',
  'container:*',
  'vm',
  'vm:*',
  'wasm',
  'wasm:*',
  'script',
  'script:*',
  'net',
  'net:*',
  'kv:*',
  'file',
  'file:*',
  'noop',
  'btrfs',
  'btrfs:*',
  'mycelium',
  'mycelium:*',
  'zinit',
  'zinit:*',
  'postgres',
  'postgres:*',
];

const MEMBERS_MAX = 1000;
const LIST_OF = { admin: 'admins', executor: 'executors', reader: 'readers' } as const;

export function newContext(
  context: ContextName,
  admin: Principal,
  createdMs: number,
): ContextRecord {
  return {
    v: 1,
    context,
    admins: [admin],
    executors: [admin],
    readers: [],
    policy: { m: 1, required: [] },
    allowed: [...ALLOWED_BY_DEFAULT],
    quotas: NO_QUOTAS,
    created_ms: createdMs,
  };
}

/** The roles a principal has in a context; an admin or executor may always read. */
export function mayRead(record: ContextRecord, principal: Principal): boolean {
  return [record.admins, record.executors, record.readers].some((list) => list.includes(principal));
}

/**
 * The record after the change. `seen` means the very same bytes made it what it is already: nothing to
 * write. Throws not_allowed, not_found, bad_request, quota, expired, not_yet_valid.
 */
export function changeContext(
  current: ContextRecord | undefined,
  change: ContextChange,
  asked: AskedChange,
  ledgerAdmin: boolean,
): { record: ContextRecord; seen: boolean } {
  if (current !== undefined && judgeMark(current, asked) === 'seen') {
    return { record: current, seen: true };
  }
  const next =
    change.change === 'context_create'
      ? create(current, change.context, asked, ledgerAdmin)
      : change.change === 'context_quota'
        ? limit(existing(current, change.context), change.quotas, asked.by, ledgerAdmin)
        : alter(owned(current, change.context, asked.by), change);
  return { record: { ...next, ...marked(current, asked, change) }, seen: false };
}

function create(
  current: ContextRecord | undefined,
  context: ContextName,
  asked: AskedChange,
  ledgerAdmin: boolean,
): ContextRecord {
  if (!ledgerAdmin) {
    throw new HeroError('not_allowed', `${asked.by} may not create contexts`, {
      fix: 'Ask an admin of the ledger: by default whoever started the control plane.',
    });
  }
  judgeMark(undefined, asked);
  if (current !== undefined) {
    throw new HeroError('bad_request', `the context ${context} exists already`, {
      fix: `See it with \`herobus context show ${context}\`, or choose another name.`,
    });
  }
  return newContext(context, asked.by, asked.atMs);
}

function limit(
  current: ContextRecord,
  quotas: QuotaChange,
  by: Principal,
  ledgerAdmin: boolean,
): ContextRecord {
  if (!ledgerAdmin) {
    throw new HeroError('not_allowed', `${by} may not set quotas`, {
      fix: 'Ask an admin of the ledger: by default whoever started the control plane.',
    });
  }
  const next = { ...current.quotas };
  for (const [key, limit] of Object.entries(quotas)) {
    if (limit !== undefined) next[key as keyof Quotas] = limit;
  }
  return { ...current, quotas: next };
}

function existing(current: ContextRecord | undefined, context: ContextName): ContextRecord {
  if (current !== undefined) return current;
  throw new HeroError('not_found', `there is no context ${context}`, {
    fix: `Create it with \`herobus context create ${context}\`.`,
  });
}

function owned(
  record: ContextRecord | undefined,
  context: ContextName,
  by: Principal,
): ContextRecord {
  const current = existing(record, context);
  if (!current.admins.includes(by)) {
    throw new HeroError('not_allowed', `${by} is no admin of the context ${context}`, {
      fix: `Ask one of its admins: ${current.admins.join(', ')}.`,
    });
  }
  return current;
}

function alter(
  record: ContextRecord,
  change: Exclude<ContextChange, { change: 'context_create' | 'context_quota' }>,
): ContextRecord {
  switch (change.change) {
    case 'context_grant':
      return grant(record, change.principal, change.role);
    case 'context_revoke':
      return revoke(record, change.principal, change.role);
    case 'context_allow':
      return { ...record, allowed: change.allowed };
    case 'context_policy':
      return satisfiable({ ...record, policy: change.policy });
  }
}

function grant(record: ContextRecord, principal: Principal, role: ContextRole): ContextRecord {
  const list = record[LIST_OF[role]];
  if (list.includes(principal)) return record;
  if (list.length >= MEMBERS_MAX) {
    throw new HeroError('quota', `${record.context} has ${MEMBERS_MAX} of this role already`, {
      fix: 'Revoke those that are no longer used.',
    });
  }
  return { ...record, [LIST_OF[role]]: [...list, principal] };
}

function revoke(record: ContextRecord, principal: Principal, role: ContextRole): ContextRecord {
  const left = record[LIST_OF[role]].filter((member) => member !== principal);
  if (role === 'admin' && left.length === 0) {
    throw new HeroError('bad_request', `${record.context} would be left without an admin`, {
      fix: 'Grant admin to somebody else first.',
    });
  }
  return satisfiable({ ...record, [LIST_OF[role]]: left });
}

/** A policy nobody can meet would close the context for ever without saying so. */
function satisfiable(record: ContextRecord): ContextRecord {
  const { policy, executors, context } = record;
  const missing = policy.required.filter((principal) => !executors.includes(principal));
  if (missing.length > 0) {
    throw new HeroError('bad_request', `${missing.join(', ')} must sign but would be no executor`, {
      fix: `Grant executor first, or change the policy of ${context}.`,
    });
  }
  if (policy.m > Math.max(1, executors.length)) {
    throw new HeroError(
      'bad_request',
      `${policy.m} signatures are asked of ${executors.length} executors`,
      {
        fix: `Grant executor to more principals, or lower the number in the policy of ${context}.`,
      },
    );
  }
  return record;
}
