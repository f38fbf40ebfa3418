/**
 * One node as the control plane sees it, pure: does it live?
 *
 *   live --silent--> suspect --silent longer--> dead --beat--> live
 *   any --beat "draining" or "stopped", or by order--> drained --beat of another state--> live
 *   drained, still draining --silent longer--> dead
 *
 * Frozen is not a state of the node but of who watches it: a SILENCE that is not `trusted` changes nothing,
 * because it says something about the watcher only (watch.ts). Its one effect, `announceLiveness`
 * (roster.effects.ts), makes the new liveness known.
 */
import { assign, setup } from 'xstate';
import { DEAD_MS, SUSPECT_MS, type NodeBeat } from '../../schemas/node.ts';

export type NodeContext = {
  /** Why the node is not live, for people. */
  reason: string | null;
  /** It said goodbye: from now on its silence means nothing. */
  stopped: boolean;
};

export type NodeEvent =
  /** `ordered`: why an admin of the ledger keeps it drained, whatever it says of itself. */
  | { type: 'BEAT'; state: NodeBeat['state']; ordered?: string | null }
  | { type: 'SILENCE'; silentMs: number; trusted: boolean };

const notProvided = (name: string) => (): never => {
  throw new Error(`effect ${name} is not provided: see roster.effects.ts`);
};

const LEAVING: readonly string[] = ['draining', 'stopped'];
const seconds = (ms: number) => `${(ms / 1000).toFixed(1)} s`;

export const nodeMachine = setup({
  types: {
    context: {} as NodeContext,
    input: {} as NodeContext,
    events: {} as NodeEvent,
  },
  guards: {
    isLeaving: ({ event }) =>
      event.type === 'BEAT' && (LEAVING.includes(event.state) || (event.ordered ?? null) !== null),
    isSilent: ({ event }) =>
      event.type === 'SILENCE' && event.trusted && event.silentMs >= SUSPECT_MS,
    isGone: ({ event }) => event.type === 'SILENCE' && event.trusted && event.silentMs >= DEAD_MS,
    isGoneWhileDraining: ({ context, event }) =>
      !context.stopped && event.type === 'SILENCE' && event.trusted && event.silentMs >= DEAD_MS,
  },
  actions: {
    clearReason: assign({ reason: null, stopped: false }),
    rememberSilence: assign(({ event }) =>
      event.type === 'SILENCE' ? { reason: `no heartbeat for ${seconds(event.silentMs)}` } : {},
    ),
    rememberLeave: assign(({ event }) =>
      event.type === 'BEAT'
        ? {
            reason:
              event.state === 'stopped'
                ? 'it has stopped in order'
                : (event.ordered ?? 'it is draining'),
            stopped: event.state === 'stopped',
          }
        : {},
    ),
    announceLiveness: notProvided('announceLiveness'),
  },
}).createMachine({
  id: 'node',
  context: ({ input }) => input,
  initial: 'live',
  states: {
    live: {
      on: {
        BEAT: {
          guard: 'isLeaving',
          target: 'drained',
          actions: ['rememberLeave', 'announceLiveness'],
        },
        SILENCE: [
          { guard: 'isGone', target: 'dead', actions: ['rememberSilence', 'announceLiveness'] },
          {
            guard: 'isSilent',
            target: 'suspect',
            actions: ['rememberSilence', 'announceLiveness'],
          },
        ],
      },
    },
    suspect: {
      on: {
        BEAT: [
          {
            guard: 'isLeaving',
            target: 'drained',
            actions: ['rememberLeave', 'announceLiveness'],
          },
          { target: 'live', actions: ['clearReason', 'announceLiveness'] },
        ],
        SILENCE: {
          guard: 'isGone',
          target: 'dead',
          actions: ['rememberSilence', 'announceLiveness'],
        },
      },
    },
    dead: {
      on: {
        BEAT: [
          {
            guard: 'isLeaving',
            target: 'drained',
            actions: ['rememberLeave', 'announceLiveness'],
          },
          { target: 'live', actions: ['clearReason', 'announceLiveness'] },
        ],
      },
    },
    drained: {
      on: {
        BEAT: [
          { guard: 'isLeaving', actions: 'rememberLeave' },
          { target: 'live', actions: ['clearReason', 'announceLiveness'] },
        ],
        SILENCE: {
          guard: 'isGoneWhileDraining',
          target: 'dead',
          actions: ['rememberSilence', 'announceLiveness'],
        },
      },
    },
  },
});
