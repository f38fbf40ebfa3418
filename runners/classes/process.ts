/** The class `process`: each job is a command line on the node, run by the process SAL. */
import { Guardian } from '../../sal/guardian.ts';
import { PROCESS_VALUE_BYTES_MAX, runProcess } from '../../sal/process.ts';
import { ProcessPayload } from '../../schemas/job.ts';
import type { RunnerClass } from './class.ts';
import { payloadOf } from './payload.ts';

/** `directory` is where jobs without a `cwd` work. */
export function processClass({ directory }: { directory: string }): RunnerClass {
  const guardian = new Guardian();
  return {
    class: 'process',
    valueBytesMax: PROCESS_VALUE_BYTES_MAX,
    offers: () => Promise.resolve(['process']),
    run: ({ ref, job, signal, output }) =>
      runProcess(
        payloadOf(ProcessPayload, job),
        { ...ref, n: job.n, attempt: job.attempt },
        // The runner keeps the deadline: its abort carries the reason with the figure.
        { signal, deadlineMs: null, guardian, cwd: directory, onLines: output },
      ),
    killAll: () => guardian.killAll(),
    close: () => guardian.close(),
  };
}
