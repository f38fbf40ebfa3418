/**
 * What a node's machine decides, done: its liveness made known.
 *
 * Nodes are many and mostly say the same again, so a node is a snapshot beside its entry (watch.ts), not a
 * running actor: `step` asks the machine and runs what it named.
 */
import { transition, type SnapshotFrom } from 'xstate';
import type { Liveness, RosterNode } from '../../schemas/node.ts';
import { nodeMachine, type NodeEvent } from './node.machine.ts';

export type NodeSnapshot = SnapshotFrom<typeof nodeMachine>;

export type NodeEffects = {
  announceLiveness: (liveness: Liveness, reason: string | null) => void;
};

export const freshNode = (): NodeSnapshot =>
  nodeMachine.resolveState({ value: 'live', context: { reason: null, stopped: false } });

/** The machine as it stood when the record was written. */
export function restoredNode({ liveness, reason, state }: RosterNode): NodeSnapshot {
  return nodeMachine.resolveState({
    value: liveness,
    context: { reason, stopped: liveness === 'drained' && state === 'stopped' },
  });
}

export function step(snapshot: NodeSnapshot, event: NodeEvent, effects: NodeEffects): NodeSnapshot {
  const [next, actions] = transition(nodeMachine, snapshot, event);
  for (const { type } of actions) {
    if (type === 'announceLiveness') effects.announceLiveness(next.value, next.context.reason);
  }
  return next;
}
