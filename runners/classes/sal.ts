/** The class `sal`: each job is one operation of a family of the registry, run in this process. */
import type { Registry } from '../../sal/driver.ts';
import type { Capability } from '../../schemas/deployment.ts';
import { VALUE_BYTES_MAX } from '../../schemas/blob.ts';
import { HeroError } from '../../schemas/errors.ts';
import { jobId } from '../../schemas/ids.ts';
import { type PackedJob, SalPayload } from '../../schemas/job.ts';
import { parseStrict, stringifyTyped } from '../../schemas/json.ts';
import type { RunnerClass } from './class.ts';
import { payloadOf } from './payload.ts';

export function salClass(registry: Registry): RunnerClass {
  return {
    class: 'sal',
    valueBytesMax: VALUE_BYTES_MAX,
    offers: () => registry.offers(),
    run: async ({ ref, job, caller, signal, deadlineMs, output }) => {
      const { op, args } = payloadOf(SalPayload, job);
      const operation = registry.operation(op);
      checkNeeds(operation.needs, op, job);
      const value = await operation.bind(parseStrict(args, 'bad_job')).run({
        jobId: jobId(ref.flow, job.n),
        attempt: job.attempt,
        caller,
        deadlineMs,
        signal,
        log: (line) => void output('log', [line]),
      });
      // An operation that ended all the same after its abort did not end by itself.
      signal.throwIfAborted();
      return stringifyTyped(value);
    },
    killAll: () => undefined,
    close: () => undefined,
  };
}

/** What a job was granted stands in its spec; an operation it was not granted for is refused here too. */
function checkNeeds(needs: Capability, op: string, { spec }: PackedJob): void {
  const family = needs.split(':')[0];
  if (spec.needs.includes(needs) || spec.needs.includes(`${family}:*`)) return;
  throw new HeroError(
    'capability_not_granted',
    `${op} needs ${needs}, which this job was not granted`,
  );
}
