/**
 * The identity of a node, pure: from a bare start to a connection of its own, and back to it for ever.
 *
 *   booting -> networking -> loadingKey -> joining -> joined <-> renewing
 *                                          |   ^        \-- LINK_DOWN --> offline
 *                            awaitingApproval -/                          offline -> joined | joining
 *
 * Every state that waits says why in `reason`, and has a timer that ends the wait: there is no state to be
 * stuck in. Effects (identity.effects.ts): `awaitNetwork`, `loadKey`, `join`, `renew` do the work of their
 * state and answer with one event; `arm` starts the one timer, `disarm` stops it; `noteLink` says at once how
 * the link is now.
 */
import { assign, setup } from 'xstate';

export type IdentityContext = {
  /** What is waited for, and the last thing that went wrong with it. */
  reason: string;
  /** Failures in a row: how long the next wait is. */
  failures: number;
  /** How long the credentials last from when they came; null: they do not end. */
  lifetimeMs: number | null;
  /** The next credentials are to be connected with at once: what they allow has changed. */
  reconnect: boolean;
};

export type IdentityEvent =
  | { type: 'BEGIN' }
  | { type: 'NETWORK_UP' }
  | { type: 'KEY_LOADED' }
  | { type: 'JOINED'; lifetimeMs: number | null }
  /** Registered, but nobody has let it in yet; `reason` says who can. */
  | { type: 'PENDING'; reason: string }
  | { type: 'RENEWED'; lifetimeMs: number | null }
  | { type: 'RIGHTS_CHANGED' }
  /** The ledger does not want this key; asking again at once would not change that. */
  | { type: 'REFUSED'; reason: string }
  | { type: 'FAILED'; reason: string }
  | { type: 'LINK_UP' }
  | { type: 'LINK_DOWN' }
  | { type: 'TIMER' };

export type WaitKind = 'retry' | 'poll' | 'renew' | 'rejoin';

const notProvided = (name: string) => (): never => {
  throw new Error(`effect ${name} is not provided: see identity.effects.ts`);
};

const notProvidedWait =
  (name: string) =>
  (_args: unknown, _params: { wait: WaitKind }): never => {
    throw new Error(`effect ${name} is not provided: see identity.effects.ts`);
  };

const arm = (wait: WaitKind) => ({ type: 'arm', params: { wait } }) as const;
const say = (reason: string) => ({ type: 'say', params: { reason } }) as const;

export const identityMachine = setup({
  types: {
    context: {} as IdentityContext,
    events: {} as IdentityEvent,
  },
  guards: {
    wantsReconnect: ({ context }) => context.reconnect,
  },
  actions: {
    say: assign((_, { reason }: { reason: string }) => ({ reason })),
    sayWhy: assign(({ event }) => ('reason' in event ? { reason: event.reason } : {})),
    /** A renewal that failed stays visible until one succeeds. */
    sayJoined: assign(({ context }) => (context.failures > 0 ? {} : { reason: 'joined' })),
    countFailure: assign(({ context }) => ({ failures: context.failures + 1 })),
    forgetFailures: assign({ failures: 0 }),
    keepLifetime: assign(({ event }) =>
      event.type === 'JOINED' || event.type === 'RENEWED' ? { lifetimeMs: event.lifetimeMs } : {},
    ),
    wantReconnect: assign({ reconnect: true }),
    forgetReconnect: assign({ reconnect: false }),
    awaitNetwork: notProvided('awaitNetwork'),
    loadKey: notProvided('loadKey'),
    join: notProvided('join'),
    renew: notProvided('renew'),
    reconnect: notProvided('reconnect'),
    noteLink: notProvided('noteLink'),
    arm: notProvidedWait('arm'),
    disarm: notProvided('disarm'),
  },
}).createMachine({
  id: 'identity',
  context: { reason: 'starting', failures: 0, lifetimeMs: null, reconnect: false },
  initial: 'booting',
  states: {
    booting: {
      on: { BEGIN: 'networking' },
    },
    networking: {
      entry: [say('waiting for the network'), 'awaitNetwork'],
      exit: 'disarm',
      on: {
        NETWORK_UP: { target: 'loadingKey', actions: 'forgetFailures' },
        FAILED: { actions: ['sayWhy', 'countFailure', arm('retry')] },
        REFUSED: { actions: ['sayWhy', 'countFailure', arm('retry')] },
        TIMER: { target: 'networking', reenter: true },
      },
    },
    loadingKey: {
      entry: [say('reading the key'), 'loadKey'],
      exit: 'disarm',
      on: {
        KEY_LOADED: { target: 'joining', actions: 'forgetFailures' },
        FAILED: { actions: ['sayWhy', 'countFailure', arm('retry')] },
        REFUSED: { actions: ['sayWhy', 'countFailure', arm('retry')] },
        TIMER: { target: 'loadingKey', reenter: true },
      },
    },
    joining: {
      entry: [say('registering with the ledger'), 'join'],
      on: {
        JOINED: { target: 'joined', actions: ['forgetFailures', 'keepLifetime'] },
        PENDING: { target: 'awaitingApproval', actions: 'sayWhy' },
        REFUSED: { target: 'awaitingApproval', actions: ['sayWhy', 'countFailure'] },
        FAILED: { target: 'offline', actions: ['sayWhy', 'countFailure'] },
      },
    },
    awaitingApproval: {
      entry: arm('poll'),
      exit: 'disarm',
      on: { TIMER: 'joining' },
    },
    joined: {
      entry: ['sayJoined', arm('renew'), 'noteLink'],
      exit: 'disarm',
      on: {
        TIMER: 'renewing',
        RIGHTS_CHANGED: { target: 'renewing', actions: 'wantReconnect' },
        LINK_DOWN: { target: 'offline', actions: say('the link to the bus is down') },
      },
    },
    renewing: {
      entry: [say('renewing the credentials'), 'renew'],
      on: {
        RENEWED: [
          {
            guard: 'wantsReconnect',
            target: 'joined',
            actions: ['forgetFailures', 'keepLifetime', 'forgetReconnect', 'reconnect'],
          },
          { target: 'joined', actions: ['forgetFailures', 'keepLifetime'] },
        ],
        RIGHTS_CHANGED: { actions: 'wantReconnect' },
        REFUSED: { target: 'joining', actions: ['sayWhy', 'countFailure'] },
        FAILED: { target: 'joined', actions: ['sayWhy', 'countFailure'] },
        LINK_DOWN: { target: 'offline', actions: say('the link to the bus is down') },
      },
    },
    offline: {
      entry: [arm('rejoin'), 'noteLink'],
      exit: 'disarm',
      on: {
        LINK_UP: { target: 'joined', actions: 'forgetFailures' },
        TIMER: 'joining',
      },
    },
  },
});
