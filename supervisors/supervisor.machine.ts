/**
 * The supervisor of a node.
 *
 *   starting ──STARTED──► ready ◄──LOAD──► saturated
 *                           └──────DRAIN──────┴──► draining ──IDLE/DEADLINE──► stopped
 *
 * Saturated means: no more flows than these, for now. Draining takes nothing new; what runs may finish.
 */
import { assign, setup } from 'xstate';

export type SupervisorEvent =
  | { type: 'STARTED' }
  | { type: 'LOAD'; flows: number }
  | { type: 'DRAIN'; reason: string }
  /** Nothing runs any more. */
  | { type: 'IDLE' }
  | { type: 'DEADLINE' };

const effect = (name: string) => (): never => {
  throw new Error(`effect ${name} is not provided`);
};

export const supervisorMachine = setup({
  types: {
    input: {} as { flowsMax: number },
    context: {} as { flowsMax: number; flows: number; reason: string | null },
    events: {} as SupervisorEvent,
  },
  actions: {
    announce: effect('announce'),
    refuseFlows: effect('refuseFlows'),
    drainRunners: effect('drainRunners'),
    finish: effect('finish'),
    noteLoad: assign({
      flows: ({ context, event }) => (event.type === 'LOAD' ? event.flows : context.flows),
    }),
    noteReason: assign({ reason: ({ event }) => (event.type === 'DRAIN' ? event.reason : null) }),
  },
  guards: {
    full: ({ context, event }) => event.type === 'LOAD' && event.flows >= context.flowsMax,
  },
}).createMachine({
  id: 'supervisor',
  context: ({ input }) => ({ ...input, flows: 0, reason: null }),
  initial: 'starting',
  states: {
    starting: {
      on: {
        STARTED: { target: 'ready' },
        DRAIN: { target: 'draining', actions: 'noteReason' },
      },
    },
    ready: {
      entry: 'announce',
      on: {
        LOAD: [
          { guard: 'full', target: 'saturated', actions: 'noteLoad' },
          { actions: 'noteLoad' },
        ],
        DRAIN: { target: 'draining', actions: 'noteReason' },
      },
    },
    saturated: {
      entry: 'announce',
      on: {
        LOAD: [
          { guard: 'full', actions: 'noteLoad' },
          { target: 'ready', actions: 'noteLoad' },
        ],
        DRAIN: { target: 'draining', actions: 'noteReason' },
      },
    },
    draining: {
      entry: ['announce', 'refuseFlows', 'drainRunners'],
      on: { IDLE: { target: 'stopped' }, DEADLINE: { target: 'stopped' } },
    },
    stopped: { type: 'final', entry: ['announce', 'finish'] },
  },
});
