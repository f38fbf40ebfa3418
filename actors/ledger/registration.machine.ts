/**
 * One registration, pure: how a key becomes a registered user or node, and how it stops being one.
 *
 *   requested --CHALLENGED--> challenged --PROVEN--> registered <--APPROVED-- pendingApproval
 *                                        \-PROVEN (not admitted)----------------^
 *   registered, pendingApproval --REVOKED--> revoked --APPROVED--> registered
 *
 * Signatures, nonces and tokens are judged before an event is made (proofs.ts, ledger.ts); the machine
 * decides what follows. There is one such machine for each key and kind, and no two of them share
 * anything, so a newcomer has no way to touch another's registration. Its effects
 * (registration.effects.ts) run in the order they are named, and the record is written before the answer.
 */
import { setup, assign } from 'xstate';
import type { Address, Principal } from '../../schemas/ids.ts';
import type { PrincipalKind, PrincipalRole } from '../../schemas/ledger.ts';

export type Registration = {
  principal: Principal;
  kind: PrincipalKind;
  address: Address;
  name: string;
  roles: PrincipalRole[];
  createdMs: number;
  /** Who let it in: `open`, `token`, `bootstrap` or an admin's principal; empty while nobody has. */
  by: string;
};

export type RegistrationEvent =
  | { type: 'CHALLENGED' }
  | { type: 'CHALLENGE_EXPIRED' }
  /** The key signed the ledger's nonce. `by` says who admits it; null: an admin has to. */
  | { type: 'PROVEN'; name: string; by: string | null; atMs: number }
  | { type: 'RENEW' }
  | { type: 'APPROVED'; by: string }
  | { type: 'REVOKED'; by: string };

export type RegistrationEffect =
  | 'writeRecord'
  | 'issueCredentials'
  | 'answerPending'
  | 'answerRevoked'
  | 'answerUnregistered'
  | 'cutCredentials';

const notProvided = (name: RegistrationEffect) => (): never => {
  throw new Error(`effect ${name} is not provided: see registration.effects.ts`);
};

export const registrationMachine = setup({
  types: {
    context: {} as Registration,
    input: {} as Registration,
    events: {} as RegistrationEvent,
  },
  guards: {
    isAdmitted: ({ event }) => event.type === 'PROVEN' && event.by !== null,
    isRenamed: ({ context, event }) => event.type === 'PROVEN' && event.name !== context.name,
  },
  actions: {
    rememberProof: assign(({ context, event }) =>
      event.type === 'PROVEN'
        ? {
            name: event.name,
            by: event.by ?? context.by,
            createdMs: context.createdMs === 0 ? event.atMs : context.createdMs,
          }
        : {},
    ),
    rememberName: assign(({ event }) => (event.type === 'PROVEN' ? { name: event.name } : {})),
    rememberJudge: assign(({ event }) =>
      event.type === 'APPROVED' || event.type === 'REVOKED' ? { by: event.by } : {},
    ),
    dropRoles: assign({ roles: [] }),
    writeRecord: notProvided('writeRecord'),
    issueCredentials: notProvided('issueCredentials'),
    answerPending: notProvided('answerPending'),
    answerRevoked: notProvided('answerRevoked'),
    answerUnregistered: notProvided('answerUnregistered'),
    cutCredentials: notProvided('cutCredentials'),
  },
}).createMachine({
  id: 'registration',
  context: ({ input }) => input,
  initial: 'requested',
  states: {
    requested: {
      on: { CHALLENGED: 'challenged', RENEW: { actions: 'answerUnregistered' } },
    },
    challenged: {
      on: {
        CHALLENGE_EXPIRED: 'requested',
        PROVEN: [
          {
            guard: 'isAdmitted',
            target: 'registered',
            actions: ['rememberProof', 'writeRecord', 'issueCredentials'],
          },
          {
            target: 'pendingApproval',
            actions: ['rememberProof', 'writeRecord', 'answerPending'],
          },
        ],
        RENEW: { actions: 'answerUnregistered' },
      },
    },
    pendingApproval: {
      on: {
        PROVEN: [
          {
            guard: 'isAdmitted',
            target: 'registered',
            actions: ['rememberProof', 'writeRecord', 'issueCredentials'],
          },
          {
            guard: 'isRenamed',
            actions: ['rememberName', 'writeRecord', 'answerPending'],
          },
          { actions: 'answerPending' },
        ],
        APPROVED: { target: 'registered', actions: ['rememberJudge', 'writeRecord'] },
        REVOKED: { target: 'revoked', actions: ['rememberJudge', 'dropRoles', 'writeRecord'] },
        RENEW: { actions: 'answerPending' },
      },
    },
    registered: {
      on: {
        PROVEN: [
          {
            guard: 'isRenamed',
            actions: ['rememberName', 'writeRecord', 'issueCredentials'],
          },
          { actions: 'issueCredentials' },
        ],
        RENEW: { actions: 'issueCredentials' },
        REVOKED: {
          target: 'revoked',
          actions: ['rememberJudge', 'dropRoles', 'writeRecord', 'cutCredentials'],
        },
      },
    },
    revoked: {
      on: {
        PROVEN: { actions: 'answerRevoked' },
        RENEW: { actions: 'answerRevoked' },
        APPROVED: { target: 'registered', actions: ['rememberJudge', 'writeRecord'] },
      },
    },
  },
});
