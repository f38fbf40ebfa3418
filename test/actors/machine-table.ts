/**
 * Drives a pure machine through every transition it declares.
 *
 * A table row is `[state, event, expected state]`; states not named in a row for an event must not change.
 * Effects are replaced by a recorder, so a row may also say which effects ran.
 */
import assert from 'node:assert/strict';
import { type AnyStateMachine, createActor, initialTransition, transition } from 'xstate';

export type Row = [from: string, event: { type: string } & Record<string, unknown>, to: string];

/** Provides every effect a machine names with one that only notes its name. */
export function recorded<M extends AnyStateMachine>(
  machine: M,
  keep: string[] = [],
): { machine: M; ran: string[] } {
  const ran: string[] = [];
  const names = Object.keys(machine.implementations.actions).filter((name) => !keep.includes(name));
  const assigns = names.filter((name) => {
    const action: unknown = machine.implementations.actions[name];
    return typeof action === 'function' && (action as { type?: unknown }).type === 'xstate.assign';
  });
  const actions = Object.fromEntries(
    names
      .filter((name) => !assigns.includes(name))
      .map((name) => [name, () => void ran.push(name)]),
  );
  return { machine: machine.provide({ actions } as never) as M, ran };
}

/** All states of a machine by name, each as a snapshot to start from. */
export function snapshotIn(
  machine: AnyStateMachine,
  value: string,
  input: unknown,
  context: object = {},
) {
  const [initial] = initialTransition(machine, input as never);
  return machine.resolveState({
    value,
    context: { ...(initial as { context: object }).context, ...context },
  });
}

export function checkTable(
  machine: AnyStateMachine,
  input: unknown,
  rows: Row[],
  context: (state: string, event: Row[1]) => object = () => ({}),
): void {
  for (const [from, event, to] of rows) {
    const [next] = transition(
      machine,
      snapshotIn(machine, from, input, context(from, event)),
      event as never,
    );
    assert.equal(
      next.value,
      to,
      `${from} on ${event.type}: ${String(next.value)} instead of ${to}`,
    );
  }
}

/** Every (state, event) pair that no row names must leave the state as it is. */
export function checkOthersStay(
  machine: AnyStateMachine,
  input: unknown,
  rows: Row[],
  events: Row[1][],
  context: (state: string, event: Row[1]) => object = () => ({}),
): number {
  const named = new Set(rows.map(([from, event]) => `${from} ${event.type}`));
  let checked = 0;
  for (const state of Object.keys(machine.root.states)) {
    for (const event of events) {
      if (named.has(`${state} ${event.type}`)) continue;
      const before = snapshotIn(machine, state, input, context(state, event));
      if (before.status === 'done') continue;
      const [next] = transition(machine, before, event as never);
      assert.equal(next.value, state, `${state} must not move on ${event.type}`);
      checked += 1;
    }
  }
  return checked;
}

/** A snapshot written as JSON and read again must be the same machine, in every state. */
export function checkRestores(machine: AnyStateMachine, input: unknown): void {
  for (const state of Object.keys(machine.root.states)) {
    const snapshot = snapshotIn(machine, state, input);
    const restored = createActor(machine, {
      snapshot: JSON.parse(JSON.stringify(machine.getPersistedSnapshot(snapshot))),
      input,
    } as never);
    assert.equal(restored.getSnapshot().value, state);
    assert.deepEqual(restored.getSnapshot().context, snapshot.context);
  }
}
