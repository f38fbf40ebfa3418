/**
 * BullMQ on redis: no-op jobs added in bulk by this process, done by a worker in a process of its own.
 *
 * The worker counts its own completions, so that no event stream is read beside it; completed jobs are
 * removed, which is less work for redis than keeping them.
 */
import { fileURLToPath } from 'node:url';
import { type Sample, timed } from '../measure.ts';
import { type Child, type Workspace } from '../workspace.ts';
import { installPackages, peerPackage } from './packages.ts';
import { type AppendFsync, startRedis } from './redis.ts';

/** Jobs the worker has at a time: of 25, 50, 100, 200 and 400 the one that gave BullMQ the most. */
export const CONCURRENCY = 100;
const WORKER = fileURLToPath(new URL('./bullmq-worker.ts', import.meta.url));
const READY_WITHIN_MS = 30_000;
const DONE_WITHIN_MS = 300_000;

type Queue = {
  addBulk(jobs: { name: string; data: object; opts: object }[]): Promise<unknown>;
  on(event: 'error', listener: () => void): void;
  close(): Promise<void>;
};
type BullMq = { Queue: new (name: string, options: object) => Queue };

export class Bull {
  readonly #queue: Queue;
  readonly #worker: Child;
  readonly pids: readonly number[];

  private constructor(queue: Queue, worker: Child, redis: Child) {
    this.#queue = queue;
    this.#worker = worker;
    this.pids = [worker.pid, redis.pid];
  }

  static async start(workspace: Workspace, fsync: AppendFsync): Promise<Bull> {
    await installPackages();
    const redis = await startRedis(workspace, fsync);
    const { Queue } = await peerPackage<BullMq>('bullmq');
    const queue = new Queue('bench', {
      connection: { host: '127.0.0.1', port: redis.port },
      defaultJobOptions: { removeOnComplete: true },
    });
    // A redis that has gone shows as jobs that do not end; the client tries again by itself.
    queue.on('error', () => undefined);
    workspace.atEnd(() => queue.close());
    const worker = workspace.spawn(
      `bullmq-${fsync}`,
      process.execPath,
      [WORKER, String(redis.port), String(CONCURRENCY)],
      { ipc: true },
    );
    await worker.message('ready', READY_WITHIN_MS);
    return new Bull(queue, worker, redis.child);
  }

  /** From the first add to the last completed job. */
  async jobs(count: number): Promise<Sample> {
    const jobs = Array.from({ length: count }, () => ({ name: 'noop', data: {}, opts: {} }));
    const done = this.#worker.message('done', DONE_WITHIN_MS);
    this.#worker.process.send({ expect: count });
    const { seconds, cpuSeconds } = await timed(this.pids, async () => {
      await this.#queue.addBulk(jobs);
      await done;
    });
    return { 'jobs/s': count / seconds, 'cpu s/1000': (cpuSeconds * 1000) / count };
  }
}
