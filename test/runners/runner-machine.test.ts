/** The runner's statechart, pure: every transition, and what each orders. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { initialTransition, type SnapshotFrom, transition } from 'xstate';
import { getShortestPaths } from 'xstate/graph';
import { provideRunner } from '../../runners/runner.effects.ts';
import { runnerMachine, type RunnerEvent } from '../../runners/runner.machine.ts';

type Step = {
  state: string;
  orders: string[];
  context: SnapshotFrom<typeof runnerMachine>['context'];
};

/** Drives the machine without running anything; orders are the named effects of the last event. */
function drive(...events: RunnerEvent[]): Step {
  let [snapshot] = initialTransition(runnerMachine);
  let orders: string[] = [];
  for (const event of events) {
    // A host sends nothing to a machine that has ended; the pure function does not know.
    if (snapshot.status !== 'active')
      return { state: String(snapshot.value), orders: [], context: snapshot.context };
    const [after, actions] = transition(runnerMachine, snapshot, event);
    snapshot = after;
    orders = actions
      .filter(({ type }) => !type.startsWith('xstate.'))
      .map(({ type, params }) =>
        params === undefined ? type : `${type} ${JSON.stringify(params)}`,
      );
  }
  return { state: String(snapshot.value), orders, context: snapshot.context };
}

const leased: RunnerEvent = { type: 'LEASE_RENEWED', contexts: ['acme'], drain: false };
const drainAsked: RunnerEvent = { type: 'LEASE_RENEWED', contexts: ['acme'], drain: true };
const lost: RunnerEvent = { type: 'LEASE_LOST' };
const taken: RunnerEvent = { type: 'PACK_TAKEN' };
const claimed: RunnerEvent = { type: 'PACK_CLAIMED' };
const dropped: RunnerEvent = { type: 'PACK_DROPPED' };
const begun = (count: number): RunnerEvent => ({ type: 'JOBS_BEGUN', count });
const ended = (count: number, reporting = count): RunnerEvent => ({
  type: 'JOBS_ENDED',
  count,
  reporting,
});
const reported = (count: number): RunnerEvent => ({ type: 'REPORTED', count });
const drain: RunnerEvent = { type: 'DRAIN' };
const stop: RunnerEvent = { type: 'STOP' };

const SERVE = 'serveContexts {"contexts":["acme"]}';
const KILL = 'killJobs {"flush":true}';
const KILL_SILENTLY = 'killJobs {"flush":false}';
const FINISH = (reason: string): string => `finish {"reason":"${reason}"}`;

/** What happened, the state after it, what the last event ordered. */
const TABLE: [string, RunnerEvent[], string, string[]][] = [
  ['nothing yet', [], 'starting', []],
  ['the first lease', [leased], 'idle', [SERVE]],
  ['a pack', [leased, taken], 'claiming', []],
  ['its claim lost', [leased, taken, dropped], 'idle', []],
  ['its jobs about to begin', [leased, taken, begun(2)], 'executing', []],
  ['its claim won', [leased, taken, begun(2), claimed], 'executing', []],
  ['a job ended, one runs', [leased, taken, begun(2), claimed, ended(1)], 'executing', []],
  ['all ended', [leased, taken, begun(2), claimed, ended(2)], 'reporting', []],
  ['all reported', [leased, taken, begun(2), claimed, ended(2), reported(2)], 'idle', []],
  ['ended in silence', [leased, taken, begun(1), ended(1, 0), dropped], 'idle', []],
  ['claims before reports', [leased, taken, begun(1), claimed, ended(1), taken], 'claiming', []],
  ['a renewal changes no work', [leased, taken, begun(1), claimed, leased], 'executing', [SERVE]],
  ['drain with nothing in hand', [leased, drain], 'stopped', ['refuseWork', FINISH('drained')]],
  ['drain before a lease', [drain], 'stopped', ['refuseWork', FINISH('drained')]],
  ['drain while executing', [leased, taken, begun(1), claimed, drain], 'draining', ['refuseWork']],
  ['drain while claiming', [leased, taken, drain], 'draining', ['refuseWork']],
  ['the supervisor says drain', [leased, taken, drainAsked], 'draining', ['refuseWork']],
  ['renewals while draining serve nothing', [leased, taken, drain, leased], 'draining', []],
  [
    'draining waits for the report',
    [leased, taken, begun(1), claimed, drain, ended(1)],
    'draining',
    [],
  ],
  [
    'drained',
    [leased, taken, begun(1), claimed, drain, ended(1), reported(1)],
    'stopped',
    [FINISH('drained')],
  ],
  [
    'stop',
    [leased, taken, begun(1), claimed, stop],
    'stopped',
    ['refuseWork', KILL, FINISH('stopped')],
  ],
  ['stop before a lease', [stop], 'stopped', ['refuseWork', KILL, FINISH('stopped')]],
  ['lease lost', [leased, lost], 'stopped', ['refuseWork', KILL_SILENTLY, FINISH('lease_lost')]],
  [
    'lease lost while draining',
    [leased, taken, begun(1), claimed, drain, lost],
    'stopped',
    ['refuseWork', KILL_SILENTLY, FINISH('lease_lost')],
  ],
  ['nothing moves it any more', [leased, stop, leased], 'stopped', []],
];

for (const [what, events, state, orders] of TABLE) {
  test(`runner machine - ${what}`, () => {
    const step = drive(...events);
    assert.equal(step.state, state);
    assert.deepEqual(step.orders, orders);
  });
}

test('runner machine - contexts are those of the last lease', () => {
  const other: RunnerEvent = { type: 'LEASE_RENEWED', contexts: ['beta'], drain: false };
  const step = drive(leased, other);
  assert.deepEqual(step.context.contexts, ['beta']);
  assert.deepEqual(step.orders, ['serveContexts {"contexts":["beta"]}']);
});

test('runner machine - every state can be reached, and from every one the end', () => {
  const machine = provideRunner({
    serveContexts: () => undefined,
    refuseWork: () => undefined,
    killJobs: () => undefined,
    finish: () => undefined,
  });
  const paths = getShortestPaths(machine, {
    events: [leased, lost, taken, claimed, dropped, begun(1), ended(1), reported(1), drain, stop],
    limit: 20_000,
    stopWhen: ({ context, status }) =>
      status !== 'active' ||
      Math.max(context.claiming, context.executing, context.reporting) > 1 ||
      Math.min(context.claiming, context.executing, context.reporting) < 0,
  });
  const reached = new Set(paths.map(({ state }) => String(state.value)));
  assert.deepEqual([...reached].sort(), [
    'claiming',
    'draining',
    'executing',
    'idle',
    'reporting',
    'starting',
    'stopped',
  ]);
  for (const { state } of paths) {
    if (state.status !== 'active') continue;
    const [after]: [SnapshotFrom<typeof runnerMachine>, unknown] = transition(machine, state, lost);
    assert.equal(after.status, 'done');
    assert.deepEqual(after.output, { reason: 'lease_lost' });
  }
});

test('runner machine - an effect that is not provided says its name', () => {
  const [snapshot] = initialTransition(runnerMachine);
  const [, actions] = transition(runnerMachine, snapshot, leased);
  const serve = actions.find(({ type }) => type === 'serveContexts');
  assert.ok(serve !== undefined && 'exec' in serve && typeof serve.exec === 'function');
  assert.throws(() => (serve.exec as () => void)(), /serveContexts/);
});
