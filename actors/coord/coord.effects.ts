/** What the coord machine's decisions do: place, assign, wake, explain, close. */
import { type Bus, FenceLost } from '../../bus/bus.ts';
import { subjects } from '../../bus/subjects.ts';
import { ensureError } from '../../schemas/errors.ts';
import type { FlowRef } from '../../schemas/ids.ts';
import type { RosterNode } from '../../schemas/node.ts';
import type { Deadlines } from '../deadlines.ts';
import { explain, type Load, place } from '../flow/place.ts';
import { type CoordEvent, coordMachine } from './coord.machine.ts';
import type { OpenFlows } from './open-flows.ts';
import type { Track } from './track.ts';

export type CoordDeps = {
  bus: Bus;
  deadlines: Deadlines;
  openFlows: OpenFlows;
  nodes: () => readonly RosterNode[];
  load: Load;
  trackOf: (ref: FlowRef) => Track;
  selectorOf: (ref: FlowRef) => string | null;
  /** Reads the flow's decisions again: somebody else decided first. */
  refresh: (ref: FlowRef) => void;
  closed: (ref: FlowRef) => void;
  /** The incarnation of the assignee that was woken last. */
  woken: (ref: FlowRef, inc: string) => void;
  alarm: (message: string) => void;
};

type Self = { send: (event: CoordEvent) => void };

export function provideCoord(deps: CoordDeps): typeof coordMachine {
  const name = ({ context, flow }: FlowRef): string => `coord ${context}.${flow}`;
  /** An effect that fails is tried again by the state's deadline; its cause is told, never swallowed. */
  const run = (ref: FlowRef, what: string, work: () => Promise<void>): void => {
    work().catch((error: unknown) => {
      if (error instanceof FenceLost) return deps.refresh(ref);
      deps.alarm(`${what} of flow ${ref.flow}: ${ensureError(error).message}`);
    });
  };
  return coordMachine.provide({
    actions: {
      placeFlow: ({ context: ref, self }) => run(ref, 'placing', () => placeFlow(deps, ref, self)),
      wakeAssignee: ({ context: ref, self }) => run(ref, 'waking', () => wake(deps, ref, self)),
      explainUnplaced: ({ context }) =>
        run(context, 'explaining', () =>
          deps.openFlows.explain(context, context.reason ?? 'no node fits'),
        ),
      armDeadline: ({ context: ref, self }, { afterMs }) =>
        deps.deadlines.arm(name(ref), deps.bus.now() + afterMs, () => self.send({ type: 'DUE' })),
      disarmDeadline: ({ context: ref }) => deps.deadlines.disarm(name(ref)),
      closeFlow: ({ context: ref }) => {
        deps.closed(ref);
        run(ref, 'closing', () => deps.openFlows.remove(ref));
      },
    },
  });
}

async function placeFlow(deps: CoordDeps, ref: FlowRef, self: Self): Promise<void> {
  const track = deps.trackOf(ref);
  const nodes = deps.nodes();
  const assignee = nodes.find((node) => node.address === track.term?.node);
  if (track.term !== null && assignee?.liveness === 'live') {
    self.send({ type: 'NODE_BACK', node: track.term.node });
    return;
  }
  const need = { on: deps.selectorOf(ref), capabilities: [], class: null, context: ref.context };
  const found = place(need, nodes, deps.load);
  if ('reasons' in found) {
    self.send({ type: 'UNPLACED', reason: explain(found.reasons) });
    return;
  }
  const reason =
    assignee?.reason ??
    (track.term === null ? 'placed' : `${track.term.node} is not in the roster`);
  const body = { v: 1, inc: deps.bus.incarnation, node: found.node.address, reason };
  await deps.bus.log.decide(ref, 'assign', body, track.mainSeq);
}

async function wake(deps: CoordDeps, { context, flow }: FlowRef, self: Self): Promise<void> {
  const { term, terms } = deps.trackOf({ context, flow });
  if (term === null) return;
  const node = deps.nodes().find((each) => each.address === term.node);
  if (node === undefined || node.liveness === 'dead' || node.liveness === 'drained') {
    // It died while it was being assigned: nobody would ever answer.
    const reason = node === undefined ? 'is not in the roster' : `is ${node.liveness}`;
    self.send({ type: 'NODE_LOST', node: term.node, reason });
    return;
  }
  deps.woken({ context, flow }, node.inc);
  await deps.bus.queues.publish(subjects.assign(term.node), {
    v: 1,
    context,
    flow,
    term: term.seq,
    ...(terms === 1 && !term.decided ? { fresh: true } : {}),
  });
}
