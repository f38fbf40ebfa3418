/**
 * Registrations as the ledger serves them: a request becomes an event of the registration's machine.
 *
 * Here is the admission policy (who gets in without an admin); proofs are proofs.ts, what follows from an
 * event is registration.machine.ts, writing is records.ts. Nothing here can touch the registration of
 * another key or kind than the one the event is about.
 */
import { addressOf } from '../../bus/identity.ts';
import { HeroError } from '../../schemas/errors.ts';
import type { Principal } from '../../schemas/ids.ts';
import type {
  ContextRecord,
  LedgerChange,
  PrincipalKind,
  PrincipalRecord,
  PrincipalRole,
  RegisterPayload,
} from '../../schemas/ledger.ts';
import { judgeMark, marked, type AskedChange } from './changes.ts';
import { mayRead } from './contexts.ts';
import type { Directory } from './directory.ts';
import type { Records } from './records.ts';
import { decide, perform, writtenBy, type Decision } from './registration.effects.ts';
import type { Registration, RegistrationEvent } from './registration.machine.ts';

/** Signs a principal's bus credentials; `contexts` are those it has a part in. */
export type Issue = (
  record: PrincipalRecord,
  contexts: ContextRecord[],
) => string | Promise<string>;

export type Admission = {
  /** Whoever proves a key is registered at once. */
  readonly open: boolean;
  /** Is the token good for one more registration? Absent: no token is. */
  redeem?: (token: string, payload: RegisterPayload) => boolean | Promise<boolean>;
};

export type RegistrationsDeps = {
  directory: Directory;
  records: Records;
  admission: Admission;
  issue: Issue;
  /** Ends the credentials of a revoked principal on the bus. */
  cut: (record: PrincipalRecord) => void | Promise<void>;
  now: () => number;
};

/** Who waits for approval costs a record; nobody may cost more than this many. */
const PENDING_MAX = 10_000;

export type PrincipalChange = Extract<LedgerChange, { kind: PrincipalKind }>;

export class Registrations {
  readonly #deps: RegistrationsDeps;

  constructor(deps: RegistrationsDeps) {
    this.#deps = deps;
  }

  /** A proven key asks to be registered, or for credentials again. */
  async register(payload: RegisterPayload): Promise<object> {
    const { directory, now } = this.#deps;
    const by = await this.#admits(payload);
    const known = directory.principal(payload.principal, payload.kind);
    if (by === null && known === undefined && directory.pendingCount() >= PENDING_MAX) {
      throw new HeroError('quota', 'too many registrations wait for approval', {
        fix: 'An admin has to approve or revoke some: `herobus principal list`.',
      });
    }
    return this.#ask(payload.kind, payload.principal, {
      type: 'PROVEN',
      name: payload.name,
      by,
      atMs: now(),
    });
  }

  renew(principal: Principal, kind: PrincipalKind): Promise<object> {
    return this.#ask(kind, principal, { type: 'RENEW' });
  }

  /** A signed change of one registration: approve, revoke, and for a node drain and undrain. */
  async change(change: PrincipalChange, asked: AskedChange): Promise<PrincipalRecord> {
    const { directory, records } = this.#deps;
    if (!directory.hasRole(asked.by, 'admin')) {
      throw new HeroError('not_allowed', `${asked.by} is no admin of the ledger`, {
        fix: 'Ask an admin of the ledger: by default whoever started the control plane.',
      });
    }
    type Outcome = { record: PrincipalRecord; decision: Decision | undefined };
    const outcome = await records.changePrincipal<Outcome>(
      change.kind,
      change.principal,
      (current) => {
        if (current === undefined) throw unknownRegistration(change);
        if (judgeMark(current, asked) === 'seen') {
          return { answer: { record: current, decision: undefined } };
        }
        if (change.change === 'node_drain' || change.change === 'node_undrain') {
          const record = { ...drained(current, change, asked), ...marked(current, asked, change) };
          return { write: record, answer: { record, decision: undefined } };
        }
        const type = change.change === 'principal_approve' ? 'APPROVED' : 'REVOKED';
        const decision = decide({ record: current }, { type, by: asked.by });
        const written = writtenBy(decision, current) ?? current;
        const next = { ...written, ...marked(current, asked, change) };
        return { write: next, answer: { record: next, decision } };
      },
    );
    const { decision, record } = outcome;
    if (decision !== undefined) await this.#perform(decision, record);
    return record;
  }

  /** Registers without a proof: the home that starts the control plane holds its data anyway. */
  async bootstrap(
    principal: Principal,
    kind: PrincipalKind,
    name: string,
    roles: PrincipalRole[],
  ): Promise<PrincipalRecord> {
    const { records, now } = this.#deps;
    return records.changePrincipal(kind, principal, (current) => {
      if (current !== undefined) return { answer: current };
      const event = { type: 'PROVEN', name, by: 'bootstrap', atMs: now() } as const;
      const fresh = { ...newRegistration(principal, kind), roles };
      const record = writtenBy(decide({ fresh, challenged: true }, event), undefined);
      if (record === undefined) throw new HeroError('internal', 'bootstrap left no record');
      return { write: record, answer: record };
    });
  }

  async #ask(kind: PrincipalKind, principal: Principal, event: RegistrationEvent): Promise<object> {
    const outcome = await this.#deps.records.changePrincipal(kind, principal, (current) => {
      const decision = decide(
        current === undefined
          ? { fresh: newRegistration(principal, kind), challenged: event.type === 'PROVEN' }
          : { record: current },
        event,
      );
      const write = writtenBy(decision, current);
      return { write, answer: { decision, record: write ?? current } };
    });
    return this.#perform(outcome.decision, outcome.record);
  }

  async #perform(decision: Decision, record: PrincipalRecord | undefined): Promise<object> {
    return perform(decision, {
      issue: async () => {
        if (record === undefined) throw new HeroError('internal', 'credentials without a record');
        return this.#deps.issue(record, this.contextsOf(record));
      },
      cut: async () => {
        if (record !== undefined) await this.#deps.cut(record);
      },
    });
  }

  /** A node serves every context for now; a user sees those it has a role in. */
  contextsOf(record: { principal: Principal; kind: PrincipalKind }): ContextRecord[] {
    const all = this.#deps.directory.contexts();
    return record.kind === 'node' ? all : all.filter((each) => mayRead(each, record.principal));
  }

  async #admits(payload: RegisterPayload): Promise<string | null> {
    const { admission, directory } = this.#deps;
    const known = directory.principal(payload.principal, payload.kind);
    if (known !== undefined && known.status !== 'pending') return known.by;
    if (admission.open) return 'open';
    if (payload.token === null || admission.redeem === undefined) return null;
    return (await admission.redeem(payload.token, payload)) ? 'token' : null;
  }
}

function newRegistration(principal: Principal, kind: PrincipalKind): Registration {
  const address = addressOf(principal);
  if (address === undefined) {
    throw new HeroError('bad_request', `${principal} is no nkey: its check digits are wrong`);
  }
  return { principal, kind, address, name: '', roles: [], createdMs: 0, by: '' };
}

/** Draining is no state of the registration: the node stays registered, and finishes what it has begun. */
function drained(
  current: PrincipalRecord,
  { change, principal }: PrincipalChange,
  { by, atMs, reason }: AskedChange,
): PrincipalRecord {
  if (current.status !== 'registered') {
    throw new HeroError('not_allowed', `the node ${principal} is ${current.status}`, {
      fix: `Only a registered node takes work: \`herobus node approve ${current.address}\`.`,
    });
  }
  return { ...current, drain: change === 'node_drain' ? { by, at_ms: atMs, reason } : null };
}

function unknownRegistration({ principal, kind }: PrincipalChange): HeroError {
  return new HeroError('not_found', `no ${kind} ${principal} has asked to be registered`, {
    fix: 'See who has: `herobus principal list`.',
  });
}
