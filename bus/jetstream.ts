/**
 * JetStream's request/reply protocol, as much of it as the bus uses: acknowledged publishes, direct reads,
 * pulls. Written down raw because credentials name these very subjects, because the client hides the
 * server's errors of batches (reference/bus.md 0.11), and because a lost acknowledgement must be told from
 * a refusal.
 *
 * Third-party errors become HeroErrors here and nowhere else in the bus. What the calls mean for a flow is
 * bus/log.ts.
 */
import {
  createInbox,
  errors,
  headers as makeHeaders,
  type Msg,
  type MsgHdrs,
  type NatsConnection,
} from '@nats-io/transport-node';
import { HeroError, ensureError } from '../schemas/errors.ts';
import { whenLost, whenThere } from './presence.ts';

export type Headers = Readonly<Record<string, string>>;

export const HEADER = {
  entry: 'hb-entry',
  signature: 'hb-sig',
  expected: 'Nats-Expected-Last-Subject-Sequence',
  expectedFilter: 'Nats-Expected-Last-Subject-Sequence-Subject',
  messageId: 'Nats-Msg-Id',
  sequence: 'Nats-Sequence',
  subject: 'Nats-Subject',
  time: 'Nats-Time-Stamp',
  operation: 'KV-Operation',
  ttl: 'Nats-TTL',
} as const;

/** What the server answered to a publish or an API call that it refused. */
export class ServerRefusal extends Error {
  override readonly name = 'ServerRefusal';
  readonly code: number;
  constructor(code: number, description: string) {
    super(description);
    this.code = code;
  }
}

/** 10071: a fence; 10164: a fence inside a batch, or one that the batch itself broke. */
export const isFenceRefusal = (error: unknown): error is ServerRefusal =>
  error instanceof ServerRefusal && (error.code === 10071 || error.code === 10164);

/** A message as the stream stored it. `at` is its timestamp in epoch ms. */
export type Stored = {
  subject: string;
  seq: number;
  at: number;
  data: Uint8Array;
  header: (name: string) => string | undefined;
};

export type PubAck = { stream: string; seq: number; duplicate: boolean; count: number };

const NO_DATA = new Uint8Array(0);

export function toHeaders(fields: Headers): MsgHdrs {
  const result = makeHeaders();
  for (const [name, value] of Object.entries(fields)) result.set(name, value);
  return result;
}

/**
 * Publishes and waits for the stream's acknowledgement. Throws ServerRefusal where the server said no;
 * `unreachable` where nobody answered in time, which leaves open whether the message was stored.
 */
export async function publishAcked(
  nats: NatsConnection,
  subject: string,
  data: Uint8Array,
  options: { headers?: Headers; timeoutMs: number },
): Promise<PubAck> {
  const reply = await request(nats, subject, data, options);
  const ack = JSON.parse(reply.string()) as {
    stream?: string;
    seq?: number;
    duplicate?: boolean;
    count?: number;
    error?: { err_code?: number; code?: number; description?: string };
  };
  if (ack.error !== undefined) throw refusal(ack.error);
  if (typeof ack.stream !== 'string' || typeof ack.seq !== 'number') {
    throw new HeroError('unreachable', `${subject} was answered by something that is no stream`);
  }
  const { stream, seq } = ack;
  return { stream, seq, duplicate: ack.duplicate === true, count: ack.count ?? 1 };
}

function refusal(error: { err_code?: number; code?: number; description?: string }): Error {
  const code = error.err_code ?? error.code ?? 0;
  // 503: JetStream has no leader just now, or is still starting; the same call may succeed later.
  if (error.code === 503) return new HeroError('unreachable', error.description ?? 'no leader');
  return new ServerRefusal(code, error.description ?? `error ${code}`);
}

/** One request, with the client's errors turned into ours. */
export async function request(
  nats: NatsConnection,
  subject: string,
  data: Uint8Array | string,
  options: { headers?: Headers; timeoutMs: number },
): Promise<Msg> {
  await assertThere(nats, subject, options.timeoutMs);
  const lost = Promise.withResolvers<never>();
  const forget = whenLost(nats, () => lost.reject(lostError(subject)));
  try {
    const answer = nats.request(subject, data, {
      timeout: options.timeoutMs,
      ...(options.headers === undefined ? {} : { headers: toHeaders(options.headers) }),
    });
    return await Promise.race([answer, lost.promise]);
  } catch (thrown) {
    throw mapNatsError(thrown, subject);
  } finally {
    forget();
  }
}

/** What is published while there is no connection would be thrown away by the client. */
export async function assertThere(
  nats: NatsConnection,
  subject: string,
  timeoutMs: number,
): Promise<void> {
  if (await whenThere(nats, timeoutMs)) return;
  throw new HeroError('unreachable', `no connection to the bus to ask on ${subject}`, {
    fix: 'Check that the bus runs and that this machine reaches it.',
  });
}

function lostError(subject: string): HeroError {
  return new HeroError(
    'unreachable',
    `the connection was lost before an answer on ${subject} came`,
  );
}

export function mapNatsError(thrown: unknown, subject: string): HeroError {
  if (thrown instanceof HeroError) return thrown;
  const cause = ensureError(thrown);
  const root = ensureError(cause.cause ?? cause);
  if (/permissions violation/i.test(`${cause.message} ${root.message}`)) {
    return new HeroError('not_allowed', `this key may not use ${subject}`, {
      cause,
      fix: 'Ask an admin of the context for the right; a new right counts from the next connect.',
    });
  }
  return new HeroError('unreachable', `no answer on ${subject}: ${cause.message || cause.name}`, {
    cause,
    fix: 'Check that the bus runs and that this machine reaches it.',
  });
}

/** Nobody listens on the subject: told at once, unlike somebody who does not answer. */
export function isNobodyThere(error: unknown): boolean {
  for (let at = error; at instanceof Error; at = at.cause) {
    if (at instanceof errors.NoRespondersError) return true;
  }
  return false;
}

/** A call of the JetStream API with a JSON body. */
export async function callApi(
  nats: NatsConnection,
  subject: string,
  body: object,
  timeoutMs: number,
): Promise<Record<string, unknown>> {
  const reply = await request(nats, `$JS.API.${subject}`, JSON.stringify(body), { timeoutMs });
  const answer = JSON.parse(reply.string()) as Record<string, unknown> & {
    error?: { err_code?: number; code?: number; description?: string };
  };
  if (answer.error !== undefined) throw refusal(answer.error);
  return answer;
}

/** The last message under a subject or a wildcard; undefined when there is none. */
export async function readLast(
  nats: NatsConnection,
  stream: string,
  subject: string,
  timeoutMs: number,
): Promise<Stored | undefined> {
  const api = `$JS.API.DIRECT.GET.${stream}.${subject}`;
  return readAgain(timeoutMs, async (leftMs) =>
    directReply(await request(nats, api, NO_DATA, { timeoutMs: leftMs })),
  );
}

const READ_AGAIN_MS = 20;

/** A read changes nothing, so one whose connection was lost is made again, while there is time. */
async function readAgain<T>(timeoutMs: number, read: (leftMs: number) => Promise<T>): Promise<T> {
  const deadline = performance.now() + timeoutMs;
  for (;;) {
    try {
      return await read(Math.max(1, deadline - performance.now()));
    } catch (error) {
      const unreachable = error instanceof HeroError && error.code === 'unreachable';
      if (!unreachable || performance.now() + READ_AGAIN_MS > deadline) throw error;
      await new Promise((resolve) => setTimeout(resolve, READ_AGAIN_MS));
    }
  }
}

function directReply(message: Msg): Stored | undefined {
  const status = message.headers?.code ?? 0;
  if (status === 404) return undefined;
  if (status >= 400) throw new ServerRefusal(status, message.headers?.description ?? 'refused');
  return storedFromHeaders(message);
}

/** A direct read and a republished copy carry where and when the message was stored in headers. */
export function storedFromHeaders(message: Msg): Stored | undefined {
  const { headers } = message;
  if (!headers) return undefined;
  const seq = Number(headers.get(HEADER.sequence));
  const subject = headers.get(HEADER.subject);
  if (!Number.isSafeInteger(seq) || seq < 1 || subject === '') return undefined;
  return {
    subject,
    seq,
    at: instantMs(headers.get(HEADER.time)),
    data: message.data,
    header: (name) => (headers.has(name) ? headers.get(name) : undefined),
  };
}

/** The server writes nanoseconds and drops trailing zeros; the log's times are whole milliseconds, cut. */
export function instantMs(text: string): number {
  const match = /^(.+?)(?:\.(\d+))?Z$/.exec(text);
  const whole = Date.parse(`${match?.[1] ?? text}Z`);
  return whole + Number((match?.[2] ?? '').padEnd(3, '0').slice(0, 3));
}

export type BatchRead = { messages: Stored[]; pending: number };

/** A read that was answered in part is a failed one: the caller asks again from where it stands. */
const STALL_MS = 5_000;

/**
 * Many messages in one request: `next_by_subj` from a sequence on, or the last of each subject of
 * `multi_last`. Needs the right to read the whole stream.
 */
export function readBatch(
  nats: NatsConnection,
  stream: string,
  query:
    | { seq: number; next_by_subj: string; batch: number; max_bytes: number }
    | { multi_last: string[]; batch: number },
): Promise<BatchRead> {
  return collect(nats, `$JS.API.DIRECT.GET.${stream}`, query, (message, read) => {
    const code = message.headers?.code ?? 0;
    if (code === 204) {
      read.pending = Number(message.headers?.get('Nats-Num-Pending') ?? '0');
      return 'done';
    }
    if (code === 404) return 'done';
    if (code >= 400) return new ServerRefusal(code, message.headers?.description ?? 'refused');
    const stored = storedFromHeaders(message);
    if (stored !== undefined) read.messages.push(stored);
    return 'more';
  });
}

/** The server reads at most 1,024 subjects in one request. */
const SUBJECTS_AT_ONCE = 500;

/** The last message of every subject under a filter. Needs the right to read the whole stream. */
export async function* readLastOfAll(
  nats: NatsConnection,
  stream: string,
  filter: string,
): AsyncIterable<Stored> {
  const subjects = await subjectsUnder(nats, stream, filter);
  for (let at = 0; at < subjects.length; at += SUBJECTS_AT_ONCE) {
    const multi_last = subjects.slice(at, at + SUBJECTS_AT_ONCE);
    const { messages } = await readAgain(STALL_MS, () =>
      readBatch(nats, stream, { multi_last, batch: SUBJECTS_AT_ONCE }),
    );
    yield* messages;
  }
}

async function subjectsUnder(
  nats: NatsConnection,
  stream: string,
  filter: string,
): Promise<string[]> {
  const found: string[] = [];
  for (;;) {
    const query = { subjects_filter: filter, offset: found.length };
    const info = await readAgain(STALL_MS, (leftMs) =>
      callApi(nats, `STREAM.INFO.${stream}`, query, leftMs),
    );
    const state = info['state'] as { subjects?: Record<string, number> } | undefined;
    const page = Object.keys(state?.subjects ?? {});
    found.push(...page);
    if (page.length === 0 || found.length >= Number(info['total'] ?? 0)) return found;
  }
}

/** What a pull consumer has now, at most `batch` messages; does not wait for more. */
export function pullNow(
  nats: NatsConnection,
  { stream, consumer }: { stream: string; consumer: string },
  batch: number,
): Promise<BatchRead> {
  const subject = `$JS.API.CONSUMER.MSG.NEXT.${stream}.${consumer}`;
  return collect(nats, subject, { batch, no_wait: true }, (message, read) => {
    const code = message.headers?.code ?? 0;
    // 404: nothing is left; 408: the pull has ended; 409: it was cut short, what came counts.
    if (code === 404 || code === 408 || code === 409) return 'done';
    if (code !== 0) return new ServerRefusal(code, message.headers?.description ?? 'refused');
    // Not at `pending` 0: until the 404 that ends the pull it still takes what is stored meanwhile, and
    // the consumer counts that as delivered.
    return takeDelivery(message, read) >= batch ? 'done' : 'more';
  });
}

export type PageRequest = {
  batch: number;
  /** Messages beyond it are left for the next page. */
  maxBytes: number;
  /** How long the first message is waited for; 0 takes only what is there. */
  waitMs: number;
  /** Ends the wait; the consumer may have handed out messages by then that nobody got. */
  signal?: AbortSignal;
};

/** What a pull consumer has, in pages: `batch` messages or `maxBytes` at most, whichever comes first. */
export function pullPage(
  nats: NatsConnection,
  { stream, consumer }: { stream: string; consumer: string },
  { batch, maxBytes, waitMs, signal }: PageRequest,
): Promise<BatchRead> {
  const subject = `$JS.API.CONSUMER.MSG.NEXT.${stream}.${consumer}`;
  const patience = waitMs > 0 ? { expires: waitMs * 1_000_000 } : { no_wait: true };
  const body = { batch, max_bytes: maxBytes, ...patience };
  const judge: Judge = (message, read) => {
    const code = message.headers?.code ?? 0;
    if (code === 0) return takeDelivery(message, read) >= batch ? 'done' : 'more';
    // 404: nothing is left; 408: nothing came; 409: full by bytes, or, with nothing, not well.
    if (code === 404 || code === 408 || (code === 409 && read.messages.length > 0)) return 'done';
    return new HeroError('unreachable', message.headers?.description ?? `a pull ended by ${code}`);
  };
  return collect(nats, subject, body, judge, { stallMs: waitMs + STALL_MS, signal });
}

/** Keeps a delivered message; returns how many there are. */
function takeDelivery(message: Msg, read: BatchRead): number {
  const delivery = deliveryOf(message.reply ?? '');
  if (delivery === undefined) return read.messages.length;
  const { headers } = message;
  read.messages.push({
    subject: message.subject,
    seq: delivery.seq,
    at: delivery.at,
    data: message.data,
    header: (name) => (headers?.has(name) ? headers.get(name) : undefined),
  });
  read.pending = delivery.pending;
  return read.messages.length;
}

type Judge = (message: Msg, read: BatchRead) => 'more' | 'done' | Error;

async function collect(
  nats: NatsConnection,
  subject: string,
  body: object,
  judge: Judge,
  { stallMs = STALL_MS, signal }: { stallMs?: number; signal?: AbortSignal | undefined } = {},
): Promise<BatchRead> {
  await assertThere(nats, subject, STALL_MS);
  signal?.throwIfAborted();
  return new Promise((resolve, reject) => {
    const read: BatchRead = { messages: [], pending: 0 };
    const inbox = createInbox(inboxPrefixOf(nats));
    const stalled = () => finish(new HeroError('unreachable', `no answer on ${subject}`));
    let timer = setTimeout(stalled, stallMs);
    const abort = () => finish(ensureError(signal?.reason));
    signal?.addEventListener('abort', abort);
    let ended = false;
    const finish = (error?: Error) => {
      if (ended) return;
      ended = true;
      clearTimeout(timer);
      signal?.removeEventListener('abort', abort);
      forget();
      subscription.unsubscribe();
      if (error === undefined) resolve(read);
      else reject(error);
    };
    const forget = whenLost(nats, () => finish(lostError(subject)));
    const subscription = nats.subscribe(inbox, {
      callback: (error, message) => {
        if (error) return finish(mapNatsError(error, subject));
        if (message.headers?.code === 503) {
          return finish(new HeroError('unreachable', `nobody answers on ${subject}`));
        }
        clearTimeout(timer);
        timer = setTimeout(stalled, stallMs);
        const verdict = judge(message, read);
        if (verdict !== 'more') finish(verdict === 'done' ? undefined : verdict);
      },
    });
    try {
      nats.publish(subject, JSON.stringify(body), { reply: inbox });
    } catch (thrown) {
      finish(mapNatsError(thrown, subject));
    }
  });
}

/** The prefix the connection was opened with; the client keeps it among its options only. */
export function inboxPrefixOf(nats: NatsConnection): string {
  const { options } = nats as unknown as { options?: { inboxPrefix?: string } };
  return options?.inboxPrefix ?? '_INBOX';
}

export type Delivery = { deliveries: number; seq: number; at: number; pending: number };

/** Reads the acknowledgement subject of a delivered message; newer servers put domain and account first. */
export function deliveryOf(reply: string): Delivery | undefined {
  const tokens = reply.split('.');
  if (tokens[0] !== '$JS' || tokens[1] !== 'ACK' || tokens.length < 9) return undefined;
  const at = tokens.length === 9 ? 4 : 6;
  const [deliveries, seq, , time, pending] = tokens.slice(at, at + 5);
  if (time === undefined || pending === undefined) return undefined;
  return {
    deliveries: Number(deliveries),
    seq: Number(seq),
    at: Number(BigInt(time) / 1_000_000n),
    pending: Number(pending),
  };
}
