/**
 * The runner as a statechart: what it is at, and what ends it.
 *
 *   starting --LEASE_RENEWED--> idle <-> claiming <-> executing <-> reporting
 *       \                         \_________ DRAIN ________/
 *        \                                     v
 *         \--LEASE_LOST, STOP--> stopped <-- draining (until nothing is in hand)
 *
 * It counts packs and jobs, it does not know them: `runner.effects.ts` acts, `execution.ts` has the packs.
 * Of several things in hand the state is the one nearest to the work: executing, then claiming, then
 * reporting. Events carry counts, so that many jobs of one turn are one event.
 */
import { assign, setup } from 'xstate';

export type RunnerContext = {
  contexts: string[];
  claiming: number;
  executing: number;
  reporting: number;
  draining: boolean;
  reason: string | null;
};

export type RunnerEvent =
  | { type: 'LEASE_RENEWED'; contexts: string[]; drain: boolean }
  | { type: 'LEASE_LOST' }
  | { type: 'PACK_TAKEN' }
  | { type: 'PACK_CLAIMED' }
  | { type: 'PACK_DROPPED' }
  | { type: 'JOBS_BEGUN'; count: number }
  /** Of the ended jobs, `reporting` have a result to report. */
  | { type: 'JOBS_ENDED'; count: number; reporting: number }
  | { type: 'REPORTED'; count: number }
  | { type: 'DRAIN' }
  | { type: 'STOP' };

const notProvided = (name: string) => (): never => {
  throw new Error(`effect ${name} is not provided: use runner.effects.ts`);
};

export const runnerMachine = setup({
  types: {
    context: {} as RunnerContext,
    events: {} as RunnerEvent,
    output: {} as { reason: string },
  },
  actions: {
    /** Pulls packs of these contexts, and of no others. */
    serveContexts: notProvided('serveContexts') as (
      _: unknown,
      params: { contexts: string[] },
    ) => void,
    /** Takes no new packs and begins no further jobs. */
    refuseWork: notProvided('refuseWork'),
    /** Ends every job at once, without a report of its end; earlier results are flushed or dropped. */
    killJobs: notProvided('killJobs') as (_: unknown, params: { flush: boolean }) => void,
    /** Settles the runner's end. */
    finish: notProvided('finish') as (_: unknown, params: { reason: string }) => void,
    rememberContexts: assign(({ event }) =>
      event.type === 'LEASE_RENEWED' ? { contexts: event.contexts } : {},
    ),
    count: assign(({ context, event }) => counted(context, event)),
    rememberDrain: assign({ draining: true, reason: ({ context }) => context.reason ?? 'drained' }),
    rememberLoss: assign({ reason: 'lease_lost' }),
    rememberStop: assign({ reason: 'stopped' }),
  },
  guards: {
    asksToDrain: ({ event }) => event.type === 'LEASE_RENEWED' && event.drain,
    isDrained: ({ context }) => context.draining && inHand(context) === 0,
    isDraining: ({ context }) => context.draining,
    isExecuting: ({ context }) => context.executing > 0,
    isClaiming: ({ context }) => context.claiming > 0,
    isReporting: ({ context }) => context.reporting > 0,
  },
}).createMachine({
  id: 'runner',
  initial: 'starting',
  context: {
    contexts: [],
    claiming: 0,
    executing: 0,
    reporting: 0,
    draining: false,
    reason: null,
  },
  output: ({ context }) => ({ reason: context.reason ?? 'stopped' }),
  on: {
    LEASE_RENEWED: [
      { guard: 'isDraining' },
      { guard: 'asksToDrain', target: '.sorting', actions: ['refuseWork', 'rememberDrain'] },
      {
        target: '.sorting',
        actions: [
          'rememberContexts',
          { type: 'serveContexts', params: ({ context }) => ({ contexts: context.contexts }) },
        ],
      },
    ],
    PACK_TAKEN: { target: '.sorting', actions: 'count' },
    PACK_CLAIMED: { target: '.sorting', actions: 'count' },
    PACK_DROPPED: { target: '.sorting', actions: 'count' },
    JOBS_BEGUN: { target: '.sorting', actions: 'count' },
    JOBS_ENDED: { target: '.sorting', actions: 'count' },
    REPORTED: { target: '.sorting', actions: 'count' },
    DRAIN: { target: '.sorting', actions: ['refuseWork', 'rememberDrain'] },
    STOP: {
      target: '.stopped',
      actions: ['refuseWork', { type: 'killJobs', params: { flush: true } }, 'rememberStop'],
    },
    LEASE_LOST: {
      target: '.stopped',
      actions: ['refuseWork', { type: 'killJobs', params: { flush: false } }, 'rememberLoss'],
    },
  },
  states: {
    starting: {},
    sorting: {
      always: [
        { guard: 'isDrained', target: 'stopped' },
        { guard: 'isDraining', target: 'draining' },
        { guard: 'isExecuting', target: 'executing' },
        { guard: 'isClaiming', target: 'claiming' },
        { guard: 'isReporting', target: 'reporting' },
        { target: 'idle' },
      ],
    },
    idle: {},
    claiming: {},
    executing: {},
    reporting: {},
    draining: {},
    stopped: {
      type: 'final',
      entry: {
        type: 'finish',
        params: ({ context }) => ({ reason: context.reason ?? 'stopped' }),
      },
    },
  },
});

const inHand = ({ claiming, executing, reporting }: RunnerContext): number =>
  claiming + executing + reporting;

function counted(context: RunnerContext, event: RunnerEvent): Partial<RunnerContext> {
  const { claiming, executing, reporting } = context;
  switch (event.type) {
    case 'PACK_TAKEN':
      return { claiming: claiming + 1 };
    case 'PACK_CLAIMED':
    case 'PACK_DROPPED':
      return { claiming: claiming - 1 };
    case 'JOBS_BEGUN':
      return { executing: executing + event.count };
    case 'JOBS_ENDED':
      return { executing: executing - event.count, reporting: reporting + event.reporting };
    case 'REPORTED':
      return { reporting: reporting - event.count };
    default:
      return {};
  }
}
