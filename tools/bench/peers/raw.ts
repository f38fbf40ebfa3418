/**
 * Raw JetStream, as the limit of what the bus itself gives: publish, consume, confirmed acknowledgement.
 *
 * A server of the same binary and durability with one work-queue stream and no credentials; this process
 * publishes, `raw-consumer.ts` consumes.
 */
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { type Connection, connect } from '../../../bus/connect.ts';
import { callApi } from '../../../bus/jetstream.ts';
import { findServerBinary } from '../../../bus/server-binary.ts';
import { inWindow, openLoop, type Sample, timed } from '../measure.ts';
import { type Child, freePort, type Workspace } from '../workspace.ts';
import { RAW } from './raw-subjects.ts';

/** Publishes without their acknowledgement, and the same again of messages the consumer holds. */
export const IN_FLIGHT = 256;
const CONSUMER = fileURLToPath(new URL('./raw-consumer.ts', import.meta.url));
const READY_WITHIN_MS = 15_000;
const DONE_WITHIN_MS = 300_000;
const API_TIMEOUT_MS = 10_000;
const PUBLISH_TIMEOUT_MS = 60_000;

export class Raw {
  readonly #connection: Connection;
  readonly #consumer: Child;
  readonly pids: readonly number[];

  private constructor(connection: Connection, consumer: Child, server: Child) {
    this.#connection = connection;
    this.#consumer = consumer;
    this.pids = [server.pid, consumer.pid];
  }

  static async start(workspace: Workspace): Promise<Raw> {
    const folder = await workspace.subfolder('raw');
    const port = await freePort();
    const config = join(folder, 'server.conf');
    const store = JSON.stringify(join(folder, 'store'));
    await writeFile(
      config,
      `host: 127.0.0.1\nport: ${port}\njetstream { store_dir: ${store}, sync_interval: always }\n`,
    );
    const server = workspace.spawn('raw-server', (await findServerBinary()).file, ['-c', config]);
    const url = `nats://127.0.0.1:${port}`;
    const connection = await server.until(
      connect({ server: url, inboxPrefix: '_INBOX', persist: true }),
      READY_WITHIN_MS,
    );
    workspace.atEnd(() => connection.close());
    await makeStreams(connection);
    const args = [CONSUMER, url, String(IN_FLIGHT)];
    const consumer = workspace.spawn('raw-consumer', process.execPath, args, { ipc: true });
    await consumer.message('ready', READY_WITHIN_MS);
    return new Raw(connection, consumer, server);
  }

  /** From the first publish to the last confirmed acknowledgement; messages as large as they are given. */
  async messages(all: readonly Uint8Array[]): Promise<Sample> {
    const done = this.#expect(all.length, 'confirm');
    const { seconds, cpuSeconds } = await timed(this.pids, async () => {
      await inWindow(all, IN_FLIGHT, (bytes) => this.#publish(bytes));
      await done;
    });
    const count = all.length;
    return { 'per s': count / seconds, 'cpu s/1000': (cpuSeconds * 1000) / count };
  }

  /** For each message: ms from the call that publishes it to the acknowledgement of a fenced publish that answers it. */
  async dispatch(count: number, perSecond: number): Promise<number[]> {
    const done = this.#expect(count, 'fence');
    await openLoop(count, perSecond, () => {
      const stamp = Buffer.alloc(8);
      stamp.writeBigUInt64LE(process.hrtime.bigint());
      void this.#publish(stamp);
    });
    return done;
  }

  async #expect(count: number, mode: 'confirm' | 'fence'): Promise<number[]> {
    this.#consumer.process.send({ expect: count, mode });
    return this.#consumer.message<number[]>('done', DONE_WITHIN_MS);
  }

  async #publish(data: Uint8Array): Promise<void> {
    const { nats } = this.#connection;
    await nats.request(RAW.job, data, { timeout: PUBLISH_TIMEOUT_MS });
  }
}

async function makeStreams({ nats }: Connection): Promise<void> {
  const make = (name: string, config: object) =>
    callApi(nats, `STREAM.CREATE.${name}`, { name, storage: 'file', ...config }, API_TIMEOUT_MS);
  await make(RAW.queue, { subjects: [RAW.job], retention: 'workqueue' });
  await make(RAW.log, { subjects: [`${RAW.claim}.*`] });
  const config = { durable_name: RAW.consumer, ack_policy: 'explicit', max_ack_pending: 65_536 };
  const body = { stream_name: RAW.queue, config };
  await callApi(nats, `CONSUMER.CREATE.${RAW.queue}.${RAW.consumer}`, body, API_TIMEOUT_MS);
}
