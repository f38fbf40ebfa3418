/**
 * Publishing without a fence to one stream: what is asked for while others are under way travels together.
 *
 * For messages that may be stored twice without harm: a batch carries no message ids (DESIGN 3), so one
 * whose acknowledgement is lost is sent again, message by message, whatever became of it.
 */
import type { NatsConnection } from '@nats-io/transport-node';
import type { Headers } from './jetstream.ts';
import { BATCH_ITEMS_MIN, makeGatherer, publishBatch } from './pack.ts';

export type Unfenced = { subject: string; data: Uint8Array; headers: Headers };

export type GatheredPublisher = {
  /** The sequence it was stored under. */
  publish(message: Unfenced): Promise<number>;
};

const IN_FLIGHT_MAX = 4;
const BATCH_TIMEOUT_MS = 10_000;

type Item = Unfenced & { resolve: (seq: number) => void; reject: (error: Error) => void };

export type GatheredOptions = {
  nats: NatsConnection;
  /** Messages of one subject are stored in the order they were asked for: never two in one batch. */
  ordered: boolean;
  /** Publishes one message until it is certain what became of it. */
  alone: (message: Unfenced) => Promise<number>;
};

export function gatheredPublisher({ nats, ordered, alone }: GatheredOptions): GatheredPublisher {
  const gatherer = makeGatherer<Item>({
    inFlightMax: IN_FLIGHT_MAX,
    bytes: ({ data }) => data.length,
    key: ({ subject }) => (ordered ? subject : undefined),
    send: async (items) => {
      if (items.length >= BATCH_ITEMS_MIN && (await sendTogether(nats, items))) return;
      await Promise.all(items.map((item) => alone(item).then(item.resolve, item.reject)));
    },
  });
  return {
    publish: (message) =>
      new Promise((resolve, reject) => gatherer.add({ ...message, resolve, reject })),
  };
}

/** False when nothing, or nobody knows what, was stored. */
async function sendTogether(nats: NatsConnection, items: readonly Item[]): Promise<boolean> {
  const ack = await publishBatch(nats, items, BATCH_TIMEOUT_MS).catch(() => undefined);
  if (ack === undefined) return false;
  const first = ack.seq - items.length + 1;
  for (const [index, item] of items.entries()) item.resolve(first + index);
  return true;
}
