/**
 * The bus on NATS: one connection of one principal, with everything of bus/bus.ts on it.
 *
 * Three kinds, by what their credentials allow. `control` (coord, ledger, roster) reads streams directly and
 * makes consumers, also for others; `node` and `user` get theirs from the ledger and read through them.
 * A control connection opens a second one in the ledger's account: for the control plane's own buckets, and
 * to answer `hb.ledger.*`.
 *
 * What each part does stands in its file: log, jobs, kv, blobs, connect, credentials, streams.
 */
import { randomBytes } from 'node:crypto';
import type { Msg, NatsConnection } from '@nats-io/transport-node';
import type { Durability } from '../schemas/config.ts';
import { HeroError } from '../schemas/errors.ts';
import type { Address, ContextName, FlowRef, Incarnation } from '../schemas/ids.ts';
import {
  ConsumerReply,
  type FollowRequest,
  LedgerReply,
  LogPage,
  type QueueRequest,
  type ReadRequest,
} from '../schemas/ledger.ts';
import { makeBlobs } from './blobs.ts';
import type { Bus, Incoming, Kv, Queues, QueueName, StoredMessage, Subscription } from './bus.ts';
import { makeClock, type BusClock } from './clock.ts';
import { connect, type Connection, reconnect } from './connect.ts';
import { makeFollower, makeQueueConsumer, type FollowerSpec, type QueueSpec } from './consumers.ts';
import { callerOf, inboxPrefix, LEDGER_INBOX, REQUEST_INFO_HEADER } from './credentials.ts';
import { consumerRange, directRange, type RangeReader } from './follow.ts';
import type { Identity } from './identity.ts';
import { callApi, HEADER, isNobodyThere, readBatch, request, type Stored } from './jetstream.ts';
import { consumeQueue, publishQueued } from './jobs.ts';
import { openKv } from './kv.ts';
import { makeFlowLog } from './log.ts';
import { type QueueWatchOptions, watchQueues } from './queue-watch.ts';
import { readOutput, type OutputQuery, type OutputReader } from './output.ts';
import { streamTails, type StreamTails } from './stream-tails.ts';
import { ensureBus, ensureContext, ensurePrivate, ensureUserBucket, isPrivate } from './streams.ts';
import { consumers, streams, subjects } from './subjects.ts';

export type NatsBusOptions = {
  kind: 'control' | 'node' | 'user';
  server: string | readonly string[];
  identity: Identity;
  incarnation: Incarnation;
  /** The user JWT, asked at each connect: bus/credentials.ts, `Issuer`. */
  jwt: () => string;
  /** Control only: the JWT of `Issuer.ledgerService`, for the private buckets and `hb.ledger.*`. */
  ledgerJwt?: () => string;
  name?: string;
  ca?: string;
  /** Go on trying for ever when the first connect fails. */
  persist?: boolean;
  /** Control only: what streams it makes. */
  durability?: Durability;
};

/** What only the control plane can do; its calls are idempotent. */
export type BusAdmin = {
  /** All streams and buckets of the bus. */
  ensureBus(): Promise<void>;
  ensureContext(context: ContextName): Promise<void>;
  ensureUserBucket(address: Address): Promise<void>;
  /** For the ledger: see its `ConsumerMaker`. */
  follower(spec: FollowerSpec): Promise<void>;
  queue(spec: QueueSpec & { makeStream?: string | null }): Promise<void>;
  /** For the ledger: a page of a flow's log, for who may not read the stream. */
  readLog(request: ReadRequest): Promise<LogPage>;
  /** Sees to it that the consumers of the work queues deliver; see bus/queue-watch.ts. */
  watchQueues(options: QueuesWatched): { stop: () => void };
  /** The ends of the streams that carry truth, of both accounts. */
  tails(): StreamTails;
};

type QueuesWatched = Omit<QueueWatchOptions, 'nats' | 'link'>;

export type NatsBus = Bus & {
  /** What the jobs of a flow print. Reads with a consumer of the ledger, so not for the control plane. */
  output(query: OutputQuery): OutputReader;
  /** Throws not_allowed on connections that are not the control plane's. */
  readonly admin: BusAdmin;
  /** Connects anew, with the newest token: what it allows holds from then on. */
  reconnect(): Promise<void>;
  /** The connection, for what has no place in the interface (metrics, tests). */
  readonly nats: NatsConnection;
};

const REQUEST_TIMEOUT_MS = 5_000;
const NO_RESPONDER_WAIT_MS = 100;

/** A bus is made of connections that are there, however they came to be. */
export type BusOver = Pick<NatsBusOptions, 'kind' | 'identity' | 'incarnation' | 'durability'> & {
  main: Connection;
  /** Control only: in the ledger's account. */
  ledger?: Connection | undefined;
};

export async function openNatsBus(options: NatsBusOptions): Promise<NatsBus> {
  const { kind, identity } = options;
  const base = {
    server: options.server,
    ...(options.name === undefined ? {} : { name: options.name }),
    ...(options.ca === undefined ? {} : { ca: options.ca }),
    ...(options.persist === undefined ? {} : { persist: options.persist }),
  };
  const main = await connect({
    ...base,
    as: { key: identity, jwt: options.jwt },
    inboxPrefix: inboxPrefix(kind, identity.principal),
  });
  const { ledgerJwt } = options;
  const ledger =
    ledgerJwt === undefined
      ? undefined
      : await connect({
          ...base,
          as: { key: identity, jwt: ledgerJwt },
          inboxPrefix: LEDGER_INBOX,
        }).catch(async (error: unknown) => {
          await main.close();
          throw error;
        });
  return busOver({ ...options, main, ledger });
}

/** Everything of bus/bus.ts over these connections; closing it closes them. */
export async function busOver(options: BusOver): Promise<NatsBus> {
  const { main, identity, incarnation } = options;
  const clock = makeClock(
    () => performance.now(),
    () => Date.now(),
  );
  const parts: Parts = { ...options, clock, counter: 0 };
  await readClock(parts);
  main.link.onChange(({ up }) => {
    if (up) void readClock(parts);
  });
  return assemble(parts, identity, incarnation);
}

type Parts = BusOver & { clock: BusClock; counter: number };

function assemble(parts: Parts, identity: Identity, incarnation: Incarnation): NatsBus {
  const { main, ledger, clock } = parts;
  const { principal, address } = identity;
  const { nats, link } = main;
  const log = makeFlowLog({
    nats,
    link,
    clock,
    address,
    incarnation,
    signer: identity,
    range: (ref, only) => rangeReader(parts, ref, only),
    rangeOf: (context, flows) =>
      consumerRange(main, (from) =>
        askFollower(nats, { context, flow: null, flows: [...flows], from }),
      ),
  });
  return {
    principal,
    address,
    incarnation,
    link,
    log,
    queues: makeQueues(parts),
    blobs: makeBlobs(nats),
    output: (query) => readOutput(main, query, (from) => askOutput(nats, query, from)),
    admin: makeAdmin(parts),
    reconnect: () => reconnect(main),
    nats,
    kv: (bucket) => openBucket(parts, bucket),
    stored: (stream, filter) => stored(nats, streams[stream], filter),
    now: () => clock.now(),
    publish: (subject, body) => publishHint(nats, subject, body),
    subscribe: (subject, onMessage) => subscribe(parts, subject, onMessage),
    request: (subject, body, timeoutMs) => requestJson(nats, subject, body, timeoutMs),
    close: async () => {
      log.close();
      await Promise.all([main.close(), ledger?.close()]);
    },
  };
}

/** The control plane's own buckets are where nobody else is (bus/streams.ts). */
function openBucket(parts: Parts, bucket: string): Kv {
  const connection = isPrivate(bucket) ? parts.ledger : parts.main;
  if (connection === undefined) {
    throw new HeroError('not_allowed', `${bucket} belongs to the control plane`);
  }
  const { nats, link } = connection;
  return openKv({ nats, link, clock: parts.clock, bucket, writeId: () => writeId(parts) });
}

async function* stored(
  nats: NatsConnection,
  stream: string,
  filter: string,
): AsyncIterable<StoredMessage> {
  for await (const page of directRange(nats, filter, stream)(1)) {
    for (const { subject, seq, at, data } of page)
      yield { subject, seq, at, body: parseJson(data) };
  }
}

/** Core publishes and answers are hints: a connection that was closed meanwhile loses them like any link. */
function publishHint(nats: NatsConnection, subject: string, body: object): void {
  if (!nats.isClosed() && !nats.isDraining()) nats.publish(subject, JSON.stringify(body));
}

/** Unguessable ids: whoever could name one beforehand could have a stream take ours for a repeat of his. */
const ID_SALT = randomBytes(12).toString('hex');
function writeId(parts: Parts): string {
  return `${parts.incarnation}:${ID_SALT}:${++parts.counter}`;
}

/** The server's clock, from the answer of a stream this connection may ask about. */
async function readClock({ kind, main, identity, clock }: Parts): Promise<void> {
  const stream =
    kind === 'control'
      ? streams.flow
      : kind === 'node'
        ? 'KV_roster'
        : `KV_user_${identity.address}`;
  const info = await callApi(main.nats, `STREAM.INFO.${stream}`, {}, REQUEST_TIMEOUT_MS).catch(
    () => undefined,
  );
  const ts = info?.['ts'];
  if (typeof ts === 'string') clock.saw(Date.parse(ts));
}

function rangeReader(parts: Parts, ref: FlowRef, only?: 'decisions'): RangeReader {
  const { nats } = parts.main;
  if (parts.kind === 'control') {
    return directRange(nats, only === undefined ? subjects.flow(ref) : subjects.decisions(ref));
  }
  const follow = consumerRange(parts.main, (from) => askFollower(nats, { ...ref, from }));
  return async function* (from) {
    const { entries, more } = LogPage.parse(await askLedger(nats, 'read', { ...ref, from, only }));
    if (entries.length > 0) yield entries.map(toStored);
    // A consumer costs the server far more than a page; a long log is worth one.
    if (more) yield* follow((entries.at(-1)?.seq ?? 0) + 1);
  };
}

const toStored = ({ data, id, sig, ...entry }: LogPage['entries'][number]): Stored => {
  const headers = new Map([
    [HEADER.entry, id],
    [HEADER.signature, sig],
  ] as [string, string | null][]);
  return {
    ...entry,
    data: Buffer.from(data),
    header: (name) => headers.get(name) ?? undefined,
  };
};

/** What fits a reply: an entry with an envelope of 1 MiB does. */
const LOG_PAGE_BYTES = 512 * 1024;
const LOG_PAGE_ITEMS = 256;

async function readLogPage(
  nats: NatsConnection,
  { context, flow, from, only }: ReadRequest,
): Promise<LogPage> {
  const ref = { context, flow };
  const { messages, pending } = await readBatch(nats, streams.flow, {
    seq: from,
    next_by_subj: only === undefined ? subjects.flow(ref) : subjects.decisions(ref),
    batch: LOG_PAGE_ITEMS,
    max_bytes: LOG_PAGE_BYTES,
  });
  const entries = messages.map(({ subject, seq, at, data, header }) => {
    const id = header(HEADER.entry) ?? null;
    const sig = header(HEADER.signature) ?? null;
    return { subject, seq, at, data: new TextDecoder().decode(data), id, sig };
  });
  return { entries, more: pending > 0 };
}

async function askFollower(nats: NatsConnection, asked: FollowRequest): Promise<ConsumerReply> {
  return ConsumerReply.parse(await askLedger(nats, 'follow', asked));
}

async function askOutput(
  nats: NatsConnection,
  { ref, job, since }: OutputQuery,
  from: number | null,
): Promise<ConsumerReply> {
  return askFollower(nats, { ...ref, from, of: 'output', job, since });
}

/** Asks the ledger; its refusals become errors with the code it gave. */
export async function askLedger(
  nats: NatsConnection,
  verb: string,
  body: object | Uint8Array,
): Promise<unknown> {
  const reply = LedgerReply.parse(await requestJson(nats, subjects.ledger(verb), body));
  if ('ok' in reply) return reply.ok;
  const { code, message, fix } = reply.error;
  throw new HeroError(code as HeroError['code'], message, fix === null ? {} : { fix });
}

async function requestJson(
  nats: NatsConnection,
  subject: string,
  body: object | Uint8Array,
  timeoutMs = REQUEST_TIMEOUT_MS,
): Promise<unknown> {
  const data = body instanceof Uint8Array ? body : Buffer.from(JSON.stringify(body));
  const deadline = performance.now() + timeoutMs;
  for (;;) {
    const left = Math.max(1, deadline - performance.now());
    try {
      return parseJson((await request(nats, subject, data, { timeoutMs: left })).data);
    } catch (thrown) {
      // Who answers may be starting: nobody there is not yet nobody in time.
      if (!isNobodyThere(thrown) || deadline - performance.now() < NO_RESPONDER_WAIT_MS) {
        throw thrown;
      }
      await new Promise((resolve) => setTimeout(resolve, NO_RESPONDER_WAIT_MS));
    }
  }
}

function parseJson(data: Uint8Array): unknown {
  try {
    return JSON.parse(new TextDecoder().decode(data)) as unknown;
  } catch (cause) {
    throw new HeroError('bad_request', 'the answer is no JSON', { cause });
  }
}

/**
 * `hb.ledger.*` is answered over the ledger's own connection, where the server names the caller. Elsewhere
 * a control connection answers nothing: it may publish anywhere, and a reply subject is the caller's
 * choice (credentials K3).
 */
function subscribe(
  { kind, main, ledger }: Parts,
  subject: string,
  onMessage: (message: Incoming) => void,
): Subscription {
  const forLedger = subject.startsWith('hb.ledger.');
  const connection = forLedger ? ledger : main;
  if (connection === undefined) {
    throw new HeroError('not_allowed', 'this connection does not answer for the ledger');
  }
  const answers = forLedger || kind !== 'control';
  const subscription = connection.nats.subscribe(subject, {
    callback: (error, message) => {
      if (error) return;
      const { reply } = message;
      onMessage({
        subject: message.subject,
        data: message.data,
        caller: forLedger ? callerOf(requestInfo(message)) : undefined,
        ...(answers && reply !== undefined && reply !== ''
          ? { reply: (body: object) => publishHint(connection.nats, reply, body) }
          : {}),
      });
    },
  });
  return { stop: () => subscription.unsubscribe() };
}

function requestInfo(message: Msg): string[] {
  return message.headers?.values(REQUEST_INFO_HEADER) ?? [];
}

function makeQueues(parts: Parts): Queues {
  const { nats, link } = parts.main;
  return {
    consume: (queue, { inFlight }, handle) =>
      consumeQueue({
        nats,
        link,
        inFlight,
        handle,
        ensure: () => ensureQueue(parts, queue),
      }),
    publish: async (subject, body, id = writeId(parts)) =>
      publishQueued(nats, subject, Buffer.from(JSON.stringify(body)), id),
    publishBytes: (subject, data) => publishQueued(nats, subject, data, writeId(parts)),
  };
}

/** The control plane makes the consumer it needs; a node asks the ledger for its own. */
async function ensureQueue(
  { kind, main, identity }: Parts,
  queue: QueueName,
): Promise<{ stream: string; consumer: string }> {
  if (kind === 'control') {
    const spec = queueSpec(queue, identity.address);
    await makeQueueConsumer(main.nats, spec);
    return spec;
  }
  if (queue.queue === 'deploy') {
    throw new HeroError('not_allowed', 'only the control plane takes in deployments');
  }
  const asked: QueueRequest = queue;
  return ConsumerReply.parse(await askLedger(main.nats, 'queue', asked));
}

function queueSpec(queue: QueueName, node: Address): QueueSpec {
  switch (queue.queue) {
    case 'deploy':
      return {
        stream: streams.deploy,
        consumer: consumers.deploy,
        filter: subjects.deployAll,
      };
    case 'assign':
      return {
        stream: streams.assign,
        consumer: consumers.assign(node),
        filter: subjects.assign(node),
      };
    case 'jobs':
      return {
        stream: streams.jobs(queue.context),
        consumer: consumers.jobs(queue.class, node),
        filter: subjects.jobs(queue.context, queue.class, node),
      };
  }
}

function makeAdmin({ kind, main, ledger, durability = 'fsync' }: Parts): BusAdmin {
  const control = () => {
    if (kind === 'control') return main.nats;
    throw new HeroError('not_allowed', 'only the control plane makes streams and consumers');
  };
  return {
    ensureBus: async () => {
      await ensureBus(control(), durability);
      if (ledger !== undefined) await ensurePrivate(ledger.nats, durability);
    },
    ensureContext: async (context) => ensureContext(control(), context, durability),
    ensureUserBucket: async (address) => ensureUserBucket(control(), address, durability),
    follower: async (spec) => makeFollower(control(), spec),
    queue: async (spec) => {
      const nats = control();
      // A context's streams may be missing where its record was made by an older ledger.
      if (spec.makeStream) await ensureContext(nats, spec.stream.replace(/^JOBS_/, ''), durability);
      await makeQueueConsumer(nats, spec);
    },
    readLog: (request) => readLogPage(control(), request),
    watchQueues: (options) => watchQueues({ nats: control(), link: main.link, ...options }),
    tails: () => streamTails(control(), ledger?.nats),
  };
}
