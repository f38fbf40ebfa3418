/**
 * The coord of one open flow: follows its log and does the next thing the log asks for.
 *
 *   received ──► placing ◄──► unplaced        LOG always leads to the state the log says:
 *                  │                            no term: placing · a term without a decision: assigned
 *                  ▼                            a decided term: running · a cancel: cancelling
 *               assigned ──► running            an end: completed, failed, cancelled, refused
 *                  │            │
 *                  └► relocating ◄┘  the assignee is lost
 *
 * It decides nothing twice: assigning is fenced by the log, waking an assignee again does no harm.
 */
import { assign, setup } from 'xstate';

export type CoordTrack = {
  term: { seq: number; node: string; decided: boolean } | null;
  cancelled: boolean;
  end: { status: 'completed' | 'failed' | 'cancelled' | 'refused' } | null;
};

export type CoordEvent =
  /** The log as folded now. */
  | { type: 'LOG'; track: CoordTrack }
  /** No node fits; the reason for people. */
  | { type: 'UNPLACED'; reason: string }
  /** The assignee is dead or drained. */
  | { type: 'NODE_LOST'; node: string; reason: string }
  /** The assignee has a new incarnation, or lives again. */
  | { type: 'NODE_BACK'; node: string }
  /** A node joined or changed: what was unplaced may fit now. */
  | { type: 'ROSTER_CHANGED' }
  /** The deadline of the present state has passed. */
  | { type: 'DUE' };

const effect = (name: string) => (): never => {
  throw new Error(`effect ${name} is not provided`);
};

/** How long an assignee may take to its term's first decision before it is woken again (DESIGN 4). */
export const WAKE_AGAIN_MS = 10_000;
export const PLACE_AGAIN_MS = 5_000;

export const coordMachine = setup({
  types: {
    input: {} as { context: string; flow: string },
    context: {} as {
      context: string;
      flow: string;
      track: CoordTrack;
      reason: string | null;
    },
    events: {} as CoordEvent,
  },
  actions: {
    placeFlow: effect('placeFlow'),
    wakeAssignee: effect('wakeAssignee'),
    explainUnplaced: effect('explainUnplaced'),
    armDeadline: (_self: unknown, _params: { afterMs: number }) => effect('armDeadline')(),
    disarmDeadline: effect('disarmDeadline'),
    closeFlow: effect('closeFlow'),
    takeLog: assign({
      track: ({ context, event }) => (event.type === 'LOG' ? event.track : context.track),
    }),
    takeReason: assign({
      reason: ({ event }) => ('reason' in event ? event.reason : null),
    }),
  },
  guards: {
    completed: ({ context }) => context.track.end?.status === 'completed',
    failed: ({ context }) => context.track.end?.status === 'failed',
    cancelled: ({ context }) => context.track.end?.status === 'cancelled',
    refused: ({ context }) => context.track.end?.status === 'refused',
    unassigned: ({ context }) => context.track.term === null,
    cancelling: ({ context }) => context.track.cancelled,
    undecided: ({ context }) => context.track.term?.decided === false,
    isAssignee: ({ context, event }) => 'node' in event && event.node === context.track.term?.node,
  },
}).createMachine({
  id: 'coord',
  context: ({ input }) => ({
    ...input,
    track: { term: null, cancelled: false, end: null },
    reason: null,
  }),
  initial: 'received',
  on: {
    LOG: { target: '.following', actions: 'takeLog' },
    NODE_LOST: { guard: 'isAssignee', target: '.relocating', actions: 'takeReason' },
  },
  states: {
    received: {},
    following: {
      always: [
        { guard: 'completed', target: 'completed' },
        { guard: 'failed', target: 'failed' },
        { guard: 'cancelled', target: 'cancelled' },
        { guard: 'refused', target: 'refused' },
        { guard: 'unassigned', target: 'placing' },
        { guard: 'undecided', target: 'assigned' },
        { guard: 'cancelling', target: 'cancelling' },
        { target: 'running' },
      ],
    },
    placing: {
      entry: ['placeFlow', { type: 'armDeadline', params: { afterMs: PLACE_AGAIN_MS } }],
      exit: 'disarmDeadline',
      on: {
        UNPLACED: { target: 'unplaced', actions: 'takeReason' },
        DUE: { target: 'placing', reenter: true },
      },
    },
    unplaced: {
      entry: ['explainUnplaced', { type: 'armDeadline', params: { afterMs: PLACE_AGAIN_MS } }],
      exit: 'disarmDeadline',
      on: {
        ROSTER_CHANGED: { target: 'placing' },
        NODE_BACK: { guard: 'isAssignee', target: 'assigned' },
        DUE: { target: 'placing' },
      },
    },
    assigned: {
      entry: ['wakeAssignee', { type: 'armDeadline', params: { afterMs: WAKE_AGAIN_MS } }],
      exit: 'disarmDeadline',
      on: {
        NODE_BACK: { guard: 'isAssignee', target: 'assigned', reenter: true },
        DUE: { target: 'assigned', reenter: true },
      },
    },
    running: {
      on: {
        NODE_BACK: {
          guard: 'isAssignee',
          target: 'running',
          reenter: true,
          actions: 'wakeAssignee',
        },
      },
    },
    cancelling: {
      on: {
        NODE_BACK: {
          guard: 'isAssignee',
          target: 'cancelling',
          reenter: true,
          actions: 'wakeAssignee',
        },
      },
    },
    relocating: {
      entry: ['placeFlow', { type: 'armDeadline', params: { afterMs: PLACE_AGAIN_MS } }],
      exit: 'disarmDeadline',
      on: {
        UNPLACED: { target: 'unplaced', actions: 'takeReason' },
        NODE_BACK: { guard: 'isAssignee', target: 'assigned' },
        DUE: { target: 'relocating', reenter: true },
      },
    },
    completed: { type: 'final', entry: 'closeFlow' },
    failed: { type: 'final', entry: 'closeFlow' },
    cancelled: { type: 'final', entry: 'closeFlow' },
    refused: { type: 'final', entry: 'closeFlow' },
  },
});
