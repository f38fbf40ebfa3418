/**
 * The watch over the work queues: a consumer that gives nothing, although it has messages and somebody is
 * asking for them, is made again.
 *
 * Servers have had consumers that stood still for good, after a restart or when a limit was reached, and
 * nothing their clients do moves them. Making one again delivers what nobody has acknowledged; whoever takes
 * such a message asks the log whether it is still wanted, so nothing is done twice.
 *
 *   W1 only a consumer that is asked (a pull waits in the server) can be stuck;
 *   W2 it is stuck when it neither delivered nor was acknowledged anything for `stuckMs`, though messages
 *      wait, or for longer than any acknowledgement takes where all of them are delivered already;
 *   W3 each time it is said.
 */
import type { NatsConnection } from '@nats-io/transport-node';
import { ensureError } from '../schemas/errors.ts';
import type { Link } from './bus.ts';
import { ackWaitMs, makeQueueConsumer } from './consumers.ts';
import { callApi } from './jetstream.ts';
import { subjects } from './subjects.ts';

export type QueueWatchOptions = {
  nats: NatsConnection;
  link: Link;
  alarm: (message: string) => void;
  lookEveryMs?: number;
  stuckMs?: number;
};

type Info = {
  name: string;
  config: { filter_subject?: string };
  delivered: { consumer_seq: number };
  ack_floor: { stream_seq: number };
  num_ack_pending: number;
  num_pending: number;
  num_waiting: number;
};

const LOOK_EVERY_MS = 5_000;
const STUCK_MS = 10_000;
/** Where only acknowledgements are missing: their messages should have come again several times by then. */
const ACK_WAITS = 4;
const API_TIMEOUT_MS = 5_000;

export function watchQueues(options: QueueWatchOptions): { stop: () => void } {
  const watch = new QueueWatch(options);
  watch.lookLater();
  return { stop: () => watch.stop() };
}

class QueueWatch {
  readonly #options: QueueWatchOptions;
  /** By stream and consumer: how it stood, and since when. */
  #stood = new Map<string, { how: string; sinceMs: number }>();
  #timer: NodeJS.Timeout | undefined;
  #stopped = false;

  constructor(options: QueueWatchOptions) {
    this.#options = options;
  }

  lookLater(): void {
    if (this.#stopped) return;
    const { lookEveryMs = LOOK_EVERY_MS } = this.#options;
    this.#timer = setTimeout(
      () => {
        void this.#look()
          // The server is away, or about to be: the next round looks again.
          .catch(() => this.#stood.clear())
          .finally(() => this.lookLater());
      },
      lookEveryMs * (0.75 + Math.random() / 2),
    );
    this.#timer.unref();
  }

  stop(): void {
    this.#stopped = true;
    clearTimeout(this.#timer);
  }

  async #look(): Promise<void> {
    if (!this.#options.link.state().up) return this.#stood.clear();
    const before = this.#stood;
    this.#stood = new Map();
    for (const stream of await this.#queuesWithMessages()) {
      for (const info of await this.#consumersOf(stream)) await this.#judge(stream, info, before);
    }
  }

  /** Empty queues cost one request, however many there are. */
  async #queuesWithMessages(): Promise<string[]> {
    const found: string[] = [];
    for (const subject of [subjects.deployAll, subjects.assign('*'), 'hb.jobs.>']) {
      for (let offset = 0; ; ) {
        const answer = await this.#ask('STREAM.LIST', { subject, offset });
        const list = (answer['streams'] ?? []) as {
          config: { name: string; retention?: string };
          state: { messages: number };
        }[];
        for (const { config, state } of list) {
          if (state.messages > 0 && config.retention === 'workqueue') found.push(config.name);
        }
        offset += list.length;
        if (list.length === 0 || offset >= Number(answer['total'])) break;
      }
    }
    return found;
  }

  async #consumersOf(stream: string): Promise<Info[]> {
    const infos: Info[] = [];
    for (;;) {
      const answer = await this.#ask(`CONSUMER.LIST.${stream}`, { offset: infos.length });
      const list = (answer['consumers'] ?? []) as Info[];
      infos.push(...list);
      if (list.length === 0 || infos.length >= Number(answer['total'])) return infos;
    }
  }

  async #judge(
    stream: string,
    info: Info,
    before: ReadonlyMap<string, { how: string; sinceMs: number }>,
  ): Promise<void> {
    const { name, delivered, ack_floor, num_ack_pending, num_pending, num_waiting } = info;
    if (num_waiting === 0 || num_pending + num_ack_pending === 0) return;
    const key = `${stream}.${name}`;
    const how = [delivered.consumer_seq, ack_floor.stream_seq, num_ack_pending].join();
    const known = before.get(key);
    const sinceMs = known?.how === how ? known.sinceMs : performance.now();
    this.#stood.set(key, { how, sinceMs });
    const { stuckMs = STUCK_MS, nats, alarm } = this.#options;
    const limitMs = num_pending > 0 ? stuckMs : Math.max(stuckMs, ACK_WAITS * ackWaitMs(stream));
    const stoodMs = performance.now() - sinceMs;
    const filter = info.config.filter_subject;
    if (stoodMs < limitMs || filter === undefined) return;
    this.#stood.delete(key);
    try {
      await this.#ask(`CONSUMER.DELETE.${stream}.${name}`, {});
      await makeQueueConsumer(nats, { stream, consumer: name, filter });
      const waiting = `${num_pending} messages waiting and ${num_ack_pending} unacknowledged`;
      const seconds = Math.round(stoodMs / 1000);
      alarm(
        `queue ${filter} stood still for ${seconds} s with ${waiting}; its consumer was made again`,
      );
    } catch (error) {
      alarm(`the consumer of queue ${filter} is stuck: ${ensureError(error).message}`);
    }
  }

  #ask(verb: string, body: object): Promise<Record<string, unknown>> {
    return callApi(this.#options.nats, verb, body, API_TIMEOUT_MS);
  }
}
