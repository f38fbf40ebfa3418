/**
 * Forgetting: now and then the logs and the output of flows that ended long ago are taken away.
 *
 * Which ones is `actors/flow/retention.ts`. A flow is looked at again just before: what a retry has opened
 * meanwhile stays.
 */
import type { Bus } from '../../bus/bus.ts';
import { ensureError } from '../../schemas/errors.ts';
import type { ContextName } from '../../schemas/ids.ts';
import { forgettable, type Retention } from '../flow/retention.ts';
import type { Directory } from '../ledger/directory.ts';
import { endedFlows } from './overview.ts';

export type RetentionOptions = {
  bus: Bus;
  directory: Pick<Directory, 'coords' | 'contexts'>;
  retention: Retention;
  alarm: (message: string) => void;
};

const FIRST_SWEEP_MS = 60_000;
const SWEEP_MS = 3600_000;

export function startRetention(options: RetentionOptions): { stop: () => void } {
  let timer = setTimeout(round, FIRST_SWEEP_MS);
  function round(): void {
    sweep(options)
      .catch((error: unknown) => options.alarm(`forgetting flows: ${ensureError(error).message}`))
      .finally(() => {
        timer = setTimeout(round, SWEEP_MS).unref();
      });
  }
  timer.unref();
  return { stop: () => clearTimeout(timer) };
}

/** One round over all contexts; tells how many flows are gone. */
export async function sweep(options: RetentionOptions): Promise<number> {
  let gone = 0;
  for (const { context } of options.directory.contexts()) {
    gone += await sweepContext(options, context);
  }
  return gone;
}

async function sweepContext(
  { bus, directory, retention }: RetentionOptions,
  context: ContextName,
): Promise<number> {
  const ended = await endedFlows(bus, directory, context);
  let gone = 0;
  for (const { flow, endedSeq } of forgettable(ended, retention, bus.now())) {
    const last = await bus.log.lastDecision({ context, flow });
    if (last?.seq !== endedSeq) continue;
    if (await bus.log.forget({ context, flow }, endedSeq)) gone += 1;
  }
  return gone;
}
