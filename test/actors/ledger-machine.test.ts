/** The registration's machine: every event in every state, by a table; restored from JSON in each. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { transition } from 'xstate';
import {
  registrationMachine,
  type Registration,
  type RegistrationEvent,
} from '../../actors/ledger/registration.machine.ts';

const registration: Registration = {
  principal: `U${'A'.repeat(55)}`,
  kind: 'node',
  address: '0'.repeat(32),
  name: 'one',
  roles: ['coord'],
  createdMs: 5,
  by: 'open',
};
const STATES = ['requested', 'challenged', 'pendingApproval', 'registered', 'revoked'] as const;
type State = (typeof STATES)[number];

const EVENTS: Record<string, RegistrationEvent> = {
  CHALLENGED: { type: 'CHALLENGED' },
  CHALLENGE_EXPIRED: { type: 'CHALLENGE_EXPIRED' },
  admitted: { type: 'PROVEN', name: 'one', by: 'token', atMs: 9 },
  admittedRenamed: { type: 'PROVEN', name: 'two', by: 'token', atMs: 9 },
  proven: { type: 'PROVEN', name: 'one', by: null, atMs: 9 },
  provenRenamed: { type: 'PROVEN', name: 'two', by: null, atMs: 9 },
  RENEW: { type: 'RENEW' },
  APPROVED: { type: 'APPROVED', by: 'admin' },
  REVOKED: { type: 'REVOKED', by: 'admin' },
  unknown: { type: 'NONSENSE' } as unknown as RegistrationEvent,
};

/** state -> event -> [next state, effects]; what is not listed changes nothing. */
const TABLE: Record<State, Partial<Record<string, [State, string[]]>>> = {
  requested: {
    CHALLENGED: ['challenged', []],
    RENEW: ['requested', ['answerUnregistered']],
  },
  challenged: {
    CHALLENGE_EXPIRED: ['requested', []],
    admitted: ['registered', ['writeRecord', 'issueCredentials']],
    admittedRenamed: ['registered', ['writeRecord', 'issueCredentials']],
    proven: ['pendingApproval', ['writeRecord', 'answerPending']],
    provenRenamed: ['pendingApproval', ['writeRecord', 'answerPending']],
    RENEW: ['challenged', ['answerUnregistered']],
  },
  pendingApproval: {
    admitted: ['registered', ['writeRecord', 'issueCredentials']],
    admittedRenamed: ['registered', ['writeRecord', 'issueCredentials']],
    proven: ['pendingApproval', ['answerPending']],
    provenRenamed: ['pendingApproval', ['writeRecord', 'answerPending']],
    APPROVED: ['registered', ['writeRecord']],
    REVOKED: ['revoked', ['writeRecord']],
    RENEW: ['pendingApproval', ['answerPending']],
  },
  registered: {
    admitted: ['registered', ['issueCredentials']],
    admittedRenamed: ['registered', ['writeRecord', 'issueCredentials']],
    proven: ['registered', ['issueCredentials']],
    provenRenamed: ['registered', ['writeRecord', 'issueCredentials']],
    RENEW: ['registered', ['issueCredentials']],
    REVOKED: ['revoked', ['writeRecord', 'cutCredentials']],
  },
  revoked: {
    admitted: ['revoked', ['answerRevoked']],
    admittedRenamed: ['revoked', ['answerRevoked']],
    proven: ['revoked', ['answerRevoked']],
    provenRenamed: ['revoked', ['answerRevoked']],
    RENEW: ['revoked', ['answerRevoked']],
    APPROVED: ['registered', ['writeRecord']],
  },
};

for (const state of STATES) {
  for (const [name, event] of Object.entries(EVENTS)) {
    test(`registration: ${name} in ${state}`, () => {
      const fresh = registrationMachine.resolveState({ value: state, context: registration });
      const restored = registrationMachine.resolveState(
        JSON.parse(JSON.stringify({ value: fresh.value, context: fresh.context })),
      );
      for (const before of [fresh, restored]) {
        const [after, effects] = transition(registrationMachine, before, event);
        const expected = TABLE[state][name];
        assert.equal(after.value, expected?.[0] ?? state);
        assert.deepEqual(
          effects.map(({ type }) => type),
          expected?.[1] ?? [],
        );
        if (expected === undefined) assert.deepEqual(after.context, registration);
      }
    });
  }
}

test('registration: an approval names who gave it, a revocation takes the roles', () => {
  const pending = registrationMachine.resolveState({
    value: 'pendingApproval',
    context: registration,
  });
  const [approved] = transition(registrationMachine, pending, { type: 'APPROVED', by: 'admin' });
  assert.equal(approved.context.by, 'admin');
  const [revoked] = transition(registrationMachine, approved, { type: 'REVOKED', by: 'other' });
  assert.deepEqual([revoked.context.by, revoked.context.roles], ['other', []]);
});

test('registration: effects that nobody provided throw their name', () => {
  const at = registrationMachine.resolveState({ value: 'registered', context: registration });
  const [, effects] = transition(registrationMachine, at, { type: 'RENEW' });
  assert.throws(() => effects[0]?.exec?.(effects[0].info, undefined), /issueCredentials/);
});
