/** The identity's machine: every event in every state, by a table; restored from JSON in each. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { initialTransition, transition } from 'xstate';
import {
  identityMachine,
  type IdentityContext,
  type IdentityEvent,
} from '../../actors/identity/identity.machine.ts';

const STATES = [
  'booting',
  'networking',
  'loadingKey',
  'joining',
  'awaitingApproval',
  'joined',
  'renewing',
  'offline',
] as const;
type State = (typeof STATES)[number];

const EVENTS: Record<string, IdentityEvent> = {
  BEGIN: { type: 'BEGIN' },
  NETWORK_UP: { type: 'NETWORK_UP' },
  KEY_LOADED: { type: 'KEY_LOADED' },
  JOINED: { type: 'JOINED', lifetimeMs: 60_000 },
  PENDING: { type: 'PENDING', reason: 'an admin can approve it' },
  RENEWED: { type: 'RENEWED', lifetimeMs: 70_000 },
  RIGHTS_CHANGED: { type: 'RIGHTS_CHANGED' },
  REFUSED: { type: 'REFUSED', reason: 'refused' },
  FAILED: { type: 'FAILED', reason: 'failed' },
  LINK_UP: { type: 'LINK_UP' },
  LINK_DOWN: { type: 'LINK_DOWN' },
  TIMER: { type: 'TIMER' },
  unknown: { type: 'NONSENSE' } as unknown as IdentityEvent,
};

const joined = ['arm renew', 'noteLink'];
const offline = ['arm rejoin', 'noteLink'];
/** state -> event -> [next state, effects]; what is not listed changes nothing. */
const TABLE: Record<State, Partial<Record<string, [State, string[]]>>> = {
  booting: { BEGIN: ['networking', ['awaitNetwork']] },
  networking: {
    NETWORK_UP: ['loadingKey', ['disarm', 'loadKey']],
    FAILED: ['networking', ['arm retry']],
    REFUSED: ['networking', ['arm retry']],
    TIMER: ['networking', ['disarm', 'awaitNetwork']],
  },
  loadingKey: {
    KEY_LOADED: ['joining', ['disarm', 'join']],
    FAILED: ['loadingKey', ['arm retry']],
    REFUSED: ['loadingKey', ['arm retry']],
    TIMER: ['loadingKey', ['disarm', 'loadKey']],
  },
  joining: {
    JOINED: ['joined', joined],
    PENDING: ['awaitingApproval', ['arm poll']],
    REFUSED: ['awaitingApproval', ['arm poll']],
    FAILED: ['offline', offline],
  },
  awaitingApproval: { TIMER: ['joining', ['disarm', 'join']] },
  joined: {
    TIMER: ['renewing', ['disarm', 'renew']],
    RIGHTS_CHANGED: ['renewing', ['disarm', 'renew']],
    LINK_DOWN: ['offline', ['disarm', ...offline]],
  },
  renewing: {
    RENEWED: ['joined', joined],
    RIGHTS_CHANGED: ['renewing', []],
    REFUSED: ['joining', ['join']],
    FAILED: ['joined', joined],
    LINK_DOWN: ['offline', offline],
  },
  offline: {
    LINK_UP: ['joined', ['disarm', ...joined]],
    TIMER: ['joining', ['disarm', 'join']],
  },
};

const context: IdentityContext = {
  reason: 'before',
  failures: 1,
  lifetimeMs: 50_000,
  reconnect: false,
};

const named = ({ type, params }: { type: string; params?: unknown }) =>
  type === 'arm' ? `arm ${(params as { wait: string }).wait}` : type;

for (const state of STATES) {
  for (const [name, event] of Object.entries(EVENTS)) {
    test(`identity: ${name} in ${state}`, () => {
      const fresh = identityMachine.resolveState({ value: state, context });
      const restored = identityMachine.resolveState(
        JSON.parse(JSON.stringify({ value: fresh.value, context: fresh.context })),
      );
      for (const before of [fresh, restored]) {
        const [after, effects] = transition(identityMachine, before, event);
        const expected = TABLE[state][name];
        assert.equal(after.value, expected?.[0] ?? state);
        assert.deepEqual(effects.map(named), expected?.[1] ?? []);
        assert.notEqual(after.context.reason, '', 'every state says why');
        if (expected === undefined) assert.deepEqual(after.context, context);
      }
    });
  }
}

test('identity: every state that waits has a timer or work under way that ends it', () => {
  for (const [state, events] of Object.entries(TABLE)) {
    if (state === 'booting') continue;
    const ends = ['TIMER', 'FAILED'].some((name) => events[name] !== undefined);
    assert.ok(ends, state);
  }
});

test('identity: what failed is said, and counted until something works', () => {
  let [snapshot] = initialTransition(identityMachine);
  const say = (event: IdentityEvent) => {
    [snapshot] = transition(identityMachine, snapshot, event);
    return [snapshot.value, snapshot.context.reason, snapshot.context.failures];
  };
  assert.deepEqual(say({ type: 'BEGIN' }), ['networking', 'waiting for the network', 0]);
  assert.deepEqual(say({ type: 'FAILED', reason: 'no route' }), ['networking', 'no route', 1]);
  say({ type: 'NETWORK_UP' });
  const tooOpen = { type: 'REFUSED', reason: 'key.nk can be read by others' } as const;
  assert.deepEqual(say(tooOpen), ['loadingKey', tooOpen.reason, 1]);
  say({ type: 'KEY_LOADED' });
  assert.deepEqual(say({ type: 'REFUSED', reason: 'revoked' }), ['awaitingApproval', 'revoked', 1]);
  say({ type: 'TIMER' });
  assert.deepEqual(say({ type: 'JOINED', lifetimeMs: 9 }), ['joined', 'joined', 0]);
  say({ type: 'TIMER' });
  assert.deepEqual(say({ type: 'FAILED', reason: 'no answer' }), ['joined', 'no answer', 1]);
  say({ type: 'RIGHTS_CHANGED' });
  assert.equal(snapshot.context.reconnect, true);
  assert.deepEqual(say({ type: 'RENEWED', lifetimeMs: 8 }), ['joined', 'joined', 0]);
  assert.deepEqual([snapshot.context.lifetimeMs, snapshot.context.reconnect], [8, false]);
});

test('identity: changed rights are connected with at once', () => {
  const renewing = identityMachine.resolveState({
    value: 'renewing',
    context: { ...context, reconnect: true },
  });
  const [, effects] = transition(identityMachine, renewing, { type: 'RENEWED', lifetimeMs: null });
  assert.deepEqual(effects.map(named), ['reconnect', ...joined]);
});
