/**
 * The class `process`: each job is a command line on the node, run by the process SAL.
 *
 * A job with files works in a folder of its own, which is gone when its attempt has ended.
 */
import { resolve } from 'node:path';
import type { Blobs } from '../../bus/bus.ts';
import { Guardian } from '../../sal/guardian.ts';
import { makeJobFolder, placeFiles, removeJobFolder } from '../../sal/job-folder.ts';
import { PROCESS_VALUE_BYTES_MAX, runProcess } from '../../sal/process.ts';
import { Meter, Sampler } from '../../sal/usage.ts';
import { ProcessPayload } from '../../schemas/job.ts';
import { SentFiles } from '../files.ts';
import type { JobRun, RunnerClass } from './class.ts';
import { payloadOf } from './payload.ts';

export type ProcessClassOptions = {
  /** Where jobs without a `cwd` and without files work. */
  directory: string;
  /** This runner's alone: the folders of jobs with files. */
  folders: string;
  blobs: Blobs;
};

export function processClass({ directory, folders, blobs }: ProcessClassOptions): RunnerClass {
  const guardian = new Guardian();
  const sampler = new Sampler();
  const sent = new SentFiles(blobs);
  // What attempts of an earlier process left: they have ended with it.
  const swept = removeJobFolder(folders);
  const runIn = (run: JobRun, payload: ProcessPayload, cwd: string) => {
    const { ref, job, signal, output, metered } = run;
    const meter = new Meter(sampler);
    metered?.(() => meter.reading());
    return runProcess(
      payload,
      { ...ref, n: job.n, attempt: job.attempt },
      // The runner keeps the deadline: its abort carries the reason with the figure.
      { signal, deadlineMs: null, guardian, meter, cwd, onLines: output },
    );
  };
  return {
    class: 'process',
    valueBytesMax: PROCESS_VALUE_BYTES_MAX,
    offers: () => Promise.resolve(['process']),
    run: async (run) => {
      const payload = payloadOf(ProcessPayload, run.job);
      const { files = [], cwd, env } = payload;
      if (files.length === 0) return runIn(run, payload, directory);
      const { ref, job, signal } = run;
      const placed = await sent.get(ref.context, files, signal);
      await swept;
      const folder = await makeJobFolder(folders, `${ref.flow}.${job.n}.${job.attempt}`);
      try {
        await placeFiles(folder, placed);
        signal.throwIfAborted();
        const inFolder = {
          ...payload,
          cwd: cwd === null ? null : resolve(folder, cwd),
          env: { ...env, HEROBUS_FOLDER: folder },
        };
        return await runIn(run, inFolder, folder);
      } finally {
        await removeJobFolder(folder);
      }
    },
    killAll: () => guardian.killAll(),
    close: () => {
      sampler.close();
      guardian.close();
    },
  };
}
