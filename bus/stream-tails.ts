/**
 * The ends of the streams that carry truth, as the server shows them: what bus/watermark.ts keeps and compares.
 *
 * Flows, deployments, the control plane's buckets and the users'. Not here: what only wakes or tells (job and
 * wake queues, output, refusals), what is written anew all the time (the roster), and blobs, whose names are
 * the digests of what they hold.
 */
import { createHash } from 'node:crypto';
import type { NatsConnection } from '@nats-io/transport-node';
import { callApi, ServerRefusal } from './jetstream.ts';
import { bucketStream, isUserStream, PRIVATE_BUCKETS } from './streams.ts';
import { streams } from './subjects.ts';

/** Where a stream ends. A stream that does not exist ends at 0. */
export type Tail = {
  first: number;
  last: number;
  messages: number;
  /** Its messages go by themselves: by being acknowledged, or by their age. */
  forgets: boolean;
};

/** `streams` are the ones that every bus has; each is seen over the account it lives in. */
export type StreamTails = {
  streams: readonly string[];
  tail(stream: string): Promise<Tail>;
  /** The users' buckets, which come with their users: some hundreds for one question. */
  users(): Promise<ReadonlyMap<string, Tail>>;
  /** Whether the server found damage when it started, and left out what it could not read. */
  damaged(stream: string): Promise<boolean>;
  /** SHA-256 of the message there; undefined when none is stored. */
  digest(stream: string, seq: number): Promise<string | undefined>;
};

const ANSWER_TIMEOUT_MS = 5_000;
const STREAM_NOT_FOUND = 10059;
const MESSAGE_NOT_FOUND = 10037;

export const NOTHING: Tail = { first: 0, last: 0, messages: 0, forgets: false };

export function streamTails(main: NatsConnection, ledger: NatsConnection | undefined): StreamTails {
  const ours = ledger === undefined ? [] : PRIVATE_BUCKETS.map(bucketStream);
  const api = async (stream: string, call: string, body: object) =>
    callApi(
      ours.includes(stream) ? (ledger ?? main) : main,
      `STREAM.${call}.${stream}`,
      body,
      ANSWER_TIMEOUT_MS,
    );
  return {
    streams: [streams.flow, streams.deploy, ...ours],
    tail: async (stream) => tailOf(await unless(STREAM_NOT_FOUND, api(stream, 'INFO', {}))),
    users: () => userTails(main),
    damaged: async (stream) => {
      const query = { deleted_details: true };
      const info = await unless(STREAM_NOT_FOUND, api(stream, 'INFO', query));
      return (info?.['state'] as { lost?: object } | undefined)?.lost !== undefined;
    },
    digest: async (stream, seq) => {
      const answer = await unless(MESSAGE_NOT_FOUND, api(stream, 'MSG.GET', { seq }));
      return answer === undefined ? undefined : digestOf(answer);
    },
  };
}

async function userTails(main: NatsConnection): Promise<Map<string, Tail>> {
  const tails = new Map<string, Tail>();
  let total = 1;
  // New buckets may shift the pages: what is then seen twice is the same.
  for (let offset = 0; offset < total; ) {
    const query = { offset, subject: '$KV.*.>' };
    const page = await callApi(main, 'STREAM.LIST', query, ANSWER_TIMEOUT_MS);
    const found = (page['streams'] ?? []) as { config: { name: string } }[];
    if (found.length === 0) break;
    for (const info of found) {
      if (isUserStream(info.config.name)) tails.set(info.config.name, tailOf(info));
    }
    offset += found.length;
    total = Number(page['total']);
  }
  return tails;
}

async function unless<T>(code: number, answer: Promise<T>): Promise<T | undefined> {
  try {
    return await answer;
  } catch (error) {
    if (error instanceof ServerRefusal && error.code === code) return undefined;
    throw error;
  }
}

type State = { first_seq: number; last_seq: number; messages: number };

function tailOf(info: Record<string, unknown> | undefined): Tail {
  const state = info?.['state'] as State;
  const config = info?.['config'] as { retention?: string; allow_msg_ttl?: boolean };
  if (info === undefined) return NOTHING;
  return {
    first: state.first_seq,
    last: state.last_seq,
    messages: state.messages,
    forgets: config.retention === 'workqueue' || config.allow_msg_ttl === true,
  };
}

/** Over the stored bytes of subject, headers and data, each behind its length. */
function digestOf(answer: Record<string, unknown>): string {
  const message = answer['message'] as { subject: string; hdrs?: string; data?: string };
  const hash = createHash('sha256');
  const parts = [
    Buffer.from(message.subject),
    Buffer.from(message.hdrs ?? '', 'base64'),
    Buffer.from(message.data ?? '', 'base64'),
  ];
  for (const part of parts) hash.update(`${part.length}:`).update(part);
  return hash.digest('hex');
}
