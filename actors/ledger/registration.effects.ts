/**
 * What a registration's decisions do: the record first, the answer after it.
 *
 * Registrations are many (one for each key and kind) and each lives only while a request is answered: its
 * state is its record. So there is no actor to keep: `decide` restores the machine from the record and asks
 * it, the record it leaves is written under compare-and-set (records.ts), and only then `perform` runs the
 * effects named after `writeRecord`, in order, each awaited. An effect that fails ends the request with its
 * error; the next request starts from the record that really stands.
 */
import { transition } from 'xstate';
import { HeroError } from '../../schemas/errors.ts';
import { addressText } from '../../schemas/ids.ts';
import type { PrincipalRecord } from '../../schemas/ledger.ts';
import {
  registrationMachine,
  type Registration,
  type RegistrationEffect,
  type RegistrationEvent,
} from './registration.machine.ts';

type State = 'requested' | 'challenged' | 'pendingApproval' | 'registered' | 'revoked';

export type Decision = {
  state: State;
  registration: Registration;
  effects: RegistrationEffect[];
};

const STATE_OF = {
  pending: 'pendingApproval',
  registered: 'registered',
  revoked: 'revoked',
} as const;

/**
 * Asks the machine. `known` is the record, or, where there is none, what is known of the key; that it was
 * challenged is proven by the nonce it signed (proofs.ts), so nothing is kept of keys that only ask.
 */
export function decide(
  known: { record: PrincipalRecord } | { fresh: Registration; challenged: boolean },
  event: RegistrationEvent,
): Decision {
  const before = registrationMachine.resolveState(
    'record' in known
      ? { value: STATE_OF[known.record.status], context: registrationOf(known.record) }
      : { value: known.challenged ? 'challenged' : 'requested', context: known.fresh },
  );
  const [after, actions] = transition(registrationMachine, before, event);
  return {
    state: after.value,
    registration: after.context,
    effects: actions.map((action) => action.type as RegistrationEffect),
  };
}

function registrationOf(record: PrincipalRecord): Registration {
  return {
    principal: record.principal,
    kind: record.kind,
    address: record.address,
    name: record.name,
    roles: record.roles,
    createdMs: record.created_ms,
    by: record.by,
  };
}

/** The record a decision wants written, in place of `current`; undefined when it wants none. */
export function writtenBy(
  decision: Decision,
  current: PrincipalRecord | undefined,
): PrincipalRecord | undefined {
  const { state, registration, effects } = decision;
  if (!effects.includes('writeRecord')) return undefined;
  if (state === 'requested' || state === 'challenged') return undefined;
  return {
    ...current,
    v: 1,
    principal: registration.principal,
    kind: registration.kind,
    name: registration.name,
    address: registration.address,
    status: state === 'pendingApproval' ? 'pending' : state,
    roles: registration.roles,
    created_ms: registration.createdMs,
    by: registration.by,
  };
}

export type RegistrationDeps = {
  issue: (registration: Registration) => Promise<string>;
  cut: (registration: Registration) => Promise<void>;
};

/** Runs the effects after the record is written; the answer is the last one that was given. */
export async function perform(decision: Decision, deps: RegistrationDeps): Promise<object> {
  const { registration } = decision;
  let answer: object = {};
  for (const effect of decision.effects) {
    switch (effect) {
      case 'writeRecord':
        break;
      case 'issueCredentials':
        answer = {
          status: 'registered',
          jwt: await deps.issue(registration),
          address: registration.address,
        };
        break;
      case 'answerPending':
        answer = { status: 'pending' };
        break;
      case 'cutCredentials':
        await deps.cut(registration);
        break;
      case 'answerRevoked':
        throw new HeroError('not_allowed', `${registration.principal} was revoked`, {
          fix: `An admin can let it in again: \`${approving(registration)}\`.`,
        });
      case 'answerUnregistered':
        throw new HeroError('unknown_signer', `${registration.principal} is not registered`, {
          fix: 'Register first: hb.ledger.challenge, then hb.ledger.register.',
        });
    }
  }
  return answer;
}

const approving = ({ kind, principal, address }: Registration): string =>
  kind === 'node'
    ? `herobus node approve ${addressText(address)}`
    : `herobus principal approve ${principal}`;
