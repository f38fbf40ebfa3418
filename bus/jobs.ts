/**
 * Work queues: publishing to them, and consuming them with pulls.
 *
 * A queue only wakes; the log decides. So messages may come twice, and whoever takes one acknowledges as
 * soon as the log holds what it was for.
 *
 * Q1 At most `inFlight` messages are unsettled at a time: a pull never asks for more than is free.
 * Q2 The loop ends only by `stop`: a handler that throws is a nak with back-off, a link that went down is a
 *    new pull when it is back, a consumer that is gone is made again.
 */
import { channel } from 'node:diagnostics_channel';
import { createInbox, type Msg, type NatsConnection } from '@nats-io/transport-node';
import { HeroError, ensureError } from '../schemas/errors.ts';
import { backoffMs } from './backoff.ts';
import type { Appended, Consumption, Link, QueueMessage } from './bus.ts';
import { ackWaitMs } from './consumers.ts';
import { deliveryOf, HEADER, inboxPrefixOf, publishAcked, ServerRefusal } from './jetstream.ts';

export type ConsumeOptions = {
  nats: NatsConnection;
  link: Link;
  /** Makes sure of the consumer; asked again whenever it seems to be gone. */
  ensure: () => Promise<{ stream: string; consumer: string }>;
  inFlight: number;
  handle: (message: QueueMessage) => Promise<void>;
};

/** How long one pull waits in the server for messages. */
const PULL_EXPIRES_MS = 20_000;
/** The server ends a pull by itself; one that is silent this much longer was lost. */
const PULL_GRACE_MS = 2_000;
const RETRY = { firstMs: 100, capMs: 5_000 };
/** Deliveries count deaths and broken links as well: many of them say little about the message. */
const NAK = { firstMs: 100, capMs: 5_000 };

export async function consumeQueue(options: ConsumeOptions): Promise<Consumption> {
  const { nats, link } = options;
  const state = {
    /** Messages handed over and not settled. */
    unsettled: new Set<string>(),
    /** Messages asked for that may still come. */
    requested: 0,
    stopped: false,
    failures: 0,
    target: await options.ensure(),
  };
  const handlers = new Set<Promise<void>>();
  const pulls = new Set<Pull>();

  const take = (message: Msg) => {
    const { stream } = state.target;
    const run = handleOne(options, stream, state.unsettled, message, refill).finally(() =>
      handlers.delete(run),
    );
    handlers.add(run);
  };
  function refill(): void {
    const free = options.inFlight - state.unsettled.size - state.requested;
    // Not for each one that is settled: a pull asks for many, and half of them are under way meanwhile.
    if (state.stopped || free < options.inFlight / 2 || !link.state().up) return;
    state.requested += free;
    const pull = startPull(nats, state.target, free, {
      message: (message) => {
        state.requested--;
        state.failures = 0;
        take(message);
      },
      late: (message) => options.nats.publish(message.reply ?? '', '-NAK'),
      end: (left, error) => {
        state.requested -= left;
        pulls.delete(pull);
        if (error === undefined) refill();
        else recover();
      },
    });
    pulls.add(pull);
  }
  function recover(): void {
    if (state.stopped) return;
    setTimeout(
      () => {
        if (state.stopped) return;
        options.ensure().then(
          (target) => {
            state.target = target;
            refill();
          },
          () => recover(),
        );
      },
      backoffMs(state.failures++, RETRY),
    );
  }
  const watch = link.onChange(({ up }) => {
    // What was asked of the old connection will not come over the new one.
    for (const pull of pulls) pull.abandon();
    if (up) refill();
  });
  refill();
  return {
    stop: async () => {
      state.stopped = true;
      watch.stop();
      await Promise.all([...pulls].map((pull) => pull.withdraw()));
      await Promise.allSettled(handlers);
    },
  };
}

type Pull = {
  /** The connection it was asked over is gone, and what it asked for with it. */
  abandon(): void;
  /** Wants no more. What is on its way already is handed back, not dropped: see `late`. */
  withdraw(): Promise<void>;
};

function startPull(
  nats: NatsConnection,
  { stream, consumer }: { stream: string; consumer: string },
  batch: number,
  on: {
    message: (message: Msg) => void;
    /** A message that came after `withdraw`. */
    late: (message: Msg) => void;
    end: (left: number, error?: Error) => void;
  },
): Pull {
  const inbox = createInbox(inboxPrefixOf(nats));
  let left = batch;
  let ended = false;
  let withdrawn = false;
  const finish = (error?: Error) => {
    if (ended) return;
    ended = true;
    clearTimeout(timer);
    subscription.unsubscribe();
    on.end(left, error);
  };
  const timer = setTimeout(finish, PULL_EXPIRES_MS + PULL_GRACE_MS);
  const subscription = nats.subscribe(inbox, {
    callback: (error, message) => {
      if (error) return finish(ensureError(error));
      const status = message.headers?.code ?? 0;
      if (status === 0 && withdrawn) return on.late(message);
      if (status === 0) {
        left--;
        on.message(message);
        if (left === 0) finish();
        return;
      }
      // 100: a sign of life; 404, 408: the pull has ended; anything else: the consumer is not well.
      if (status === 404 || status === 408) finish();
      else if (status !== 100) finish(new Error(message.headers?.description ?? String(status)));
    },
  });
  const body = JSON.stringify({ batch, expires: PULL_EXPIRES_MS * 1_000_000 });
  try {
    nats.publish(`$JS.API.CONSUMER.MSG.NEXT.${stream}.${consumer}`, body, { reply: inbox });
  } catch (error) {
    queueMicrotask(() => finish(ensureError(error)));
  }
  return {
    abandon: () => finish(),
    withdraw: async () => {
      if (ended) return;
      withdrawn = true;
      // Unsubscribing drops what the server has sent by then; it would wait for its ack in vain.
      await subscription.drain().catch(() => undefined);
      finish();
    },
  };
}

async function handleOne(
  options: ConsumeOptions,
  stream: string,
  unsettled: Set<string>,
  message: Msg,
  refill: () => void,
): Promise<void> {
  const reply = message.reply ?? '';
  const delivery = deliveryOf(reply);
  if (delivery === undefined) return;
  let settled = false;
  let forget: NodeJS.Timeout | undefined;
  const settle = (body: string) => {
    if (settled) return;
    settled = true;
    release();
    try {
      options.nats.publish(reply, body);
    } catch {
      // The link is gone: the message comes again, and the log knows what was done.
    }
  };
  function release(): void {
    clearTimeout(forget);
    if (unsettled.delete(reply)) refill();
  }
  // What is never settled is delivered again by then, to whoever pulls first: it holds no slot here.
  const arm = () => {
    clearTimeout(forget);
    forget = setTimeout(release, ackWaitMs(stream));
    forget.unref();
  };
  unsettled.add(reply);
  arm();
  try {
    await options.handle({
      subject: message.subject,
      data: message.data,
      seq: delivery.seq,
      at: delivery.at,
      deliveries: delivery.deliveries,
      ack: () => settle('+ACK'),
      nak: (delayMs) => settle(`-NAK {"delay":${Math.max(0, Math.round(delayMs)) * 1_000_000}}`),
      term: (reason) => settle(`+TERM ${reason.replaceAll(/\s+/g, ' ').slice(0, 200)}`),
      working: () => {
        if (settled) return;
        arm();
        options.nats.publish(reply, '+WPI');
      },
    });
  } catch {
    settle(`-NAK {"delay":${backoffMs(delivery.deliveries - 1, NAK) * 1_000_000}}`);
  }
}

const ACK_TIMEOUT_MS = 5_000;
const PUBLISH_TRIES_MAX = 6;
/** Who listens learns of each message at the call that publishes it; nobody does unless he measures. */
const published = channel('herobus:publish');

/**
 * Publishes to a stream without a fence; sent again under the same id when no acknowledgement comes, so
 * that the stream keeps one.
 */
export async function publishQueued(
  nats: NatsConnection,
  subject: string,
  data: Uint8Array,
  messageId: string,
): Promise<Appended> {
  if (published.hasSubscribers) published.publish({ subject, data });
  for (let attempt = 0; ; attempt++) {
    try {
      const headers = { [HEADER.messageId]: messageId };
      const ack = await publishAcked(nats, subject, data, { headers, timeoutMs: ACK_TIMEOUT_MS });
      return { seq: ack.seq };
    } catch (error) {
      if (error instanceof ServerRefusal) {
        const message = `${subject} was refused by its stream: ${error.message}`;
        throw new HeroError('quota', message, { cause: error });
      }
      const again = error instanceof HeroError && error.code === 'unreachable';
      if (!again || attempt + 1 >= PUBLISH_TRIES_MAX || nats.isClosed()) throw error;
      await new Promise((resolve) => setTimeout(resolve, backoffMs(attempt, RETRY)));
    }
  }
}
