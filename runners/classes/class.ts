/** What a runner executes: one class of jobs. How a job of the class runs is all a class knows. */
import type { Reading } from '../../sal/usage.ts';
import type { Capability } from '../../schemas/deployment.ts';
import type { FlowRef } from '../../schemas/ids.ts';
import type { JobKind, LogLines, PackedJob } from '../../schemas/job.ts';

export type JobRun = {
  ref: FlowRef;
  job: PackedJob;
  /** The signer the flow acts for. */
  caller: string;
  /** Ends the job; the reason is the HeroError it fails with. */
  signal: AbortSignal;
  /** On the monotonic clock; null for none. */
  deadlineMs: number | null;
  /** Output for the user; a promise means: no more until it resolves. */
  output: (stream: LogLines['lines'][number]['stream'], lines: string[]) => void | Promise<void>;
  /** Told before the job starts, by a class that can tell what the job uses. */
  metered?: (read: () => Reading | undefined) => void;
};

export interface RunnerClass {
  readonly class: JobKind;
  /** Longer values fail as `too_large`. */
  readonly valueBytesMax: number;
  /** The capabilities a node gets by having this runner. */
  offers(): Promise<Capability[]>;
  /** Runs one job to its end: typed JSON text, or a HeroError. */
  run(run: JobRun): Promise<string>;
  /** Ends every job of the class at once, without waiting. */
  killAll(): void;
  close(): void;
}
