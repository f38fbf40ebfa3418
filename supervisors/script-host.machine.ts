/**
 * The script host of one flow on its supervisor.
 *
 *   admitting ──ADMITTED──► running ◄──FACTS/DUE── waiting
 *                             │ ▲                     ▲
 *                             │ └──────FACTS──────────┤
 *                             ├──WAITS────────────────┘
 *                             ├──TROUBLE──► troubled ──DUE/LINK_UP──► running (or admitting again)
 *                             ├──PAUSES──► paused ──FACTS──► running
 *                             └──ENDED / MOVED ──► done / failed / moved
 *
 * Driving the flow is one effect: it does whatever the log asks for until it has to wait, and says which.
 */
import { assign, setup } from 'xstate';

export type ScriptHostEvent =
  | { type: 'ADMITTED' }
  /** The fold has changed. */
  | { type: 'FACTS' }
  /** Nothing is to be done until a fact comes, or until a moment of bus time (epoch ms). */
  | { type: 'WAITS'; dueMs: number | null }
  | { type: 'PAUSES' }
  /** The last round failed of something outside (the bus); it is tried again. */
  | { type: 'TROUBLE'; reason: string }
  | { type: 'DUE' }
  /** The link to the bus is back: what failed for want of it need not wait any longer. */
  | { type: 'LINK_UP' }
  | { type: 'ENDED'; status: 'completed' | 'failed' | 'cancelled' | 'refused' }
  /** Another node has the flow now. */
  | { type: 'MOVED' };

const effect = (name: string) => (): never => {
  throw new Error(`effect ${name} is not provided`);
};

export const scriptHostMachine = setup({
  types: {
    input: {} as { context: string; flow: string },
    context: {} as {
      context: string;
      flow: string;
      dueMs: number | null;
      reason: string | null;
      troubles: number;
    },
    events: {} as ScriptHostEvent,
  },
  actions: {
    admit: effect('admit'),
    drive: effect('drive'),
    armDeadline: effect('armDeadline'),
    armRetry: effect('armRetry'),
    disarmDeadline: effect('disarmDeadline'),
    release: effect('release'),
    noteDue: assign({ dueMs: ({ event }) => (event.type === 'WAITS' ? event.dueMs : null) }),
    noteTrouble: assign({
      reason: ({ event }) => (event.type === 'TROUBLE' ? event.reason : null),
      troubles: ({ context }) => context.troubles + 1,
    }),
    forgetTrouble: assign({ reason: null, troubles: 0 }),
  },
  guards: {
    wentWell: ({ event }) => event.type === 'ENDED' && event.status === 'completed',
  },
}).createMachine({
  id: 'script-host',
  context: ({ input }) => ({ ...input, dueMs: null, reason: null, troubles: 0 }),
  initial: 'admitting',
  on: {
    ENDED: [{ guard: 'wentWell', target: '.done' }, { target: '.failed' }],
    MOVED: { target: '.moved' },
    TROUBLE: { target: '.troubled', actions: 'noteTrouble' },
  },
  states: {
    admitting: {
      entry: 'admit',
      on: { ADMITTED: { target: 'running' } },
    },
    running: {
      entry: 'drive',
      on: {
        FACTS: { actions: 'drive' },
        WAITS: { target: 'waiting', actions: ['noteDue', 'forgetTrouble'] },
        PAUSES: { target: 'paused' },
      },
    },
    waiting: {
      entry: 'armDeadline',
      exit: 'disarmDeadline',
      on: { FACTS: { target: 'running' }, DUE: { target: 'running' } },
    },
    paused: {
      on: { FACTS: { target: 'running' } },
    },
    troubled: {
      entry: 'armRetry',
      exit: 'disarmDeadline',
      on: { DUE: { target: 'admitting' }, LINK_UP: { target: 'admitting' } },
    },
    done: { type: 'final', entry: 'release' },
    failed: { type: 'final', entry: 'release' },
    moved: { type: 'final', entry: 'release' },
  },
});
