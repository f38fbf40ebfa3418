/** The worker process of the BullMQ peer: does jobs that do nothing, and tells when as many are completed as were expected. */
import { peerPackage } from './packages.ts';

type Worker = {
  on(event: 'completed', listener: () => void): void;
  waitUntilReady(): Promise<unknown>;
};
type BullMq = {
  Worker: new (name: string, job: () => Promise<null>, options: object) => Worker;
};

const [port, concurrency] = process.argv.slice(2).map(Number);
const { Worker } = await peerPackage<BullMq>('bullmq');
let left = 0;
process.on('message', ({ expect }: { expect: number }) => {
  left += expect;
});
process.on('disconnect', () => process.exit(0));
process.on('SIGTERM', () => process.exit(0));
const worker = new Worker('bench', () => Promise.resolve(null), {
  connection: { host: '127.0.0.1', port },
  concurrency,
});
worker.on('completed', () => {
  left -= 1;
  if (left === 0) process.send?.({ done: true });
});
await worker.waitUntilReady();
process.send?.({ ready: true });
