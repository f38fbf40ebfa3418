/** The runner's effects: what its statechart orders, bound to what can do it. */
import { runnerMachine } from './runner.machine.ts';

export type RunnerEffects = {
  serveContexts(contexts: string[]): void;
  refuseWork(): void;
  killJobs(flush: boolean): void;
  finish(reason: string): void;
};

export function provideRunner(effects: RunnerEffects): typeof runnerMachine {
  return runnerMachine.provide({
    actions: {
      serveContexts: (_, { contexts }) => effects.serveContexts(contexts),
      refuseWork: () => effects.refuseWork(),
      killJobs: (_, { flush }) => effects.killJobs(flush),
      finish: (_, { reason }) => effects.finish(reason),
    },
  });
}
