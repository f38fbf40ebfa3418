/** The node's machine: every event in every state, by a table; restored from JSON in each. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { transition } from 'xstate';
import { nodeMachine, type NodeContext, type NodeEvent } from '../../actors/roster/node.machine.ts';
import { DEAD_MS, SUSPECT_MS } from '../../schemas/node.ts';

const STATES = ['live', 'suspect', 'dead', 'drained', 'drainedStopped'] as const;
type State = (typeof STATES)[number];

const beat = (state: string, ordered: string | null = null) =>
  ({ type: 'BEAT', state, ordered }) as NodeEvent;
const silence = (silentMs: number, trusted = true): NodeEvent => ({
  type: 'SILENCE',
  silentMs,
  trusted,
});
const EVENTS: Record<string, NodeEvent> = {
  starting: beat('starting'),
  ready: beat('ready'),
  saturated: beat('saturated'),
  draining: beat('draining'),
  stopped: beat('stopped'),
  ordered: beat('ready', 'by order of somebody'),
  quiet: silence(SUSPECT_MS - 1),
  silent: silence(SUSPECT_MS),
  gone: silence(DEAD_MS),
  frozenSilent: silence(SUSPECT_MS, false),
  frozenGone: silence(DEAD_MS * 100, false),
  unknown: { type: 'NONSENSE' } as unknown as NodeEvent,
};

const alive = { starting: 'live', ready: 'live', saturated: 'live' };
const leaving = { draining: 'drained', stopped: 'drained', ordered: 'drained' };
/** state -> event -> next state, announced; what is not listed changes nothing. */
const TABLE: Record<State, Record<string, string>> = {
  live: { ...leaving, silent: 'suspect', gone: 'dead' },
  suspect: { ...alive, ...leaving, gone: 'dead' },
  dead: { ...alive, ...leaving },
  drained: { ...alive, gone: 'dead' },
  drainedStopped: { ...alive },
};

function snapshotOf(state: State) {
  const context: NodeContext = {
    reason: state === 'live' ? null : 'a reason',
    stopped: state === 'drainedStopped',
  };
  return nodeMachine.resolveState({
    value: state === 'drainedStopped' ? 'drained' : state,
    context,
  });
}

for (const state of STATES) {
  for (const [name, event] of Object.entries(EVENTS)) {
    test(`roster node: ${name} in ${state}`, () => {
      const fresh = snapshotOf(state);
      const restored = nodeMachine.resolveState(
        JSON.parse(JSON.stringify({ value: fresh.value, context: fresh.context })),
      );
      for (const before of [fresh, restored]) {
        const [after, effects] = transition(nodeMachine, before, event);
        const expected = TABLE[state][name];
        assert.equal(after.value, expected ?? before.value);
        assert.deepEqual(
          effects.map(({ type }) => type),
          expected === undefined ? [] : ['announceLiveness'],
        );
        assert.equal(after.context.reason === null, after.value === 'live', 'a reason, or none');
      }
    });
  }
}

test('roster node: a drain that ends in order is remembered as such', () => {
  const [draining] = transition(nodeMachine, snapshotOf('live'), beat('draining'));
  assert.equal(draining.context.stopped, false);
  const [stopped] = transition(nodeMachine, draining, beat('stopped'));
  assert.deepEqual(stopped.context, { reason: 'it has stopped in order', stopped: true });
  const [back] = transition(nodeMachine, stopped, beat('ready'));
  assert.deepEqual(back.context, { reason: null, stopped: false });
});

test('roster node: an order drains a node whatever it says, and its end brings it back', () => {
  const order = beat('ready', 'by order of somebody: new disks');
  const [drained] = transition(nodeMachine, snapshotOf('live'), order);
  assert.deepEqual(drained.context, { reason: 'by order of somebody: new disks', stopped: false });
  const [still] = transition(nodeMachine, drained, order);
  assert.equal(still.value, 'drained');
  const [stopped] = transition(nodeMachine, still, beat('stopped', 'by order of somebody'));
  assert.equal(stopped.context.reason, 'it has stopped in order');
  const [back] = transition(nodeMachine, stopped, order);
  assert.deepEqual(back.context, { reason: 'by order of somebody: new disks', stopped: false });
  assert.equal(transition(nodeMachine, back, beat('ready'))[0].value, 'live');
});
