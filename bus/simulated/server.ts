/**
 * A nats-server with JetStream, as much of it as the bus asks for, in memory and in virtual time.
 *
 * It does what the server was seen to do (reference/bus.md), the unpleasant parts included:
 *   N1 an acknowledgement may be lost although the message was stored (`faults`), a queue's message may come
 *      twice, copies of stored messages may be lost on their way;
 *   N2 it may stand still, and it may die: then nothing that waited to be stored is, consumers in memory are
 *      gone, and acknowledgements of the last moment are forgotten;
 *   N3 messages of one source come in order, those of different ones in any.
 * What travels between it and a client, and how long, is connection.ts.
 */
import { REQUEST_INFO_HEADER } from '../credentials.ts';
import { Consumer, type ConsumerConfig, type PullTarget } from './consumer.ts';
import { isLiteral, matcher } from './filters.ts';
import type { Random } from './random.ts';
import type { Scheduler } from './scheduler.ts';
import { type Fields, type Message, type StoredAt, Stream, type StreamConfig } from './stream.ts';

/** What arrives at a client. `code` is a status, as 503 for nobody there. */
export type Arrival = {
  subject: string;
  data: Uint8Array;
  reply: string;
  headers: Fields;
  code: number;
  description: string;
};

/** The server's end of a connection. */
export type Session = {
  readonly principal: string;
  /** In the ledger's account, where the server names the caller. */
  readonly isLedger: boolean;
  /** Messages of one lane keep their order. */
  send(lane: string, sid: number, arrival: Arrival): void;
};

export type ServerFaults = {
  lostAck: number;
  lostReply: number;
  lostCopy: number;
  againEarly: number;
};

export const NO_FAULTS: ServerFaults = { lostAck: 0, lostReply: 0, lostCopy: 0, againEarly: 0 };

type Interest = { session: Session; sid: number; subject: string };
type Published = Message & { reply: string };

/** A killed server loses less; one that loses its power more. */
const UNWRITTEN_MS = 1000;
const EMPTY = new Uint8Array(0);
const NO_FIELDS: Fields = new Map();
const NOT_FOUND = { code: 404, err_code: 10059, description: 'stream not found' };

export type ServerOptions = {
  scheduler: Scheduler;
  random: Random;
  /** Epoch ms of the server's clock now. */
  wallMs: () => number;
  /** Told of every message that was stored. */
  onStored: (stream: string, message: StoredAt) => void;
};

export class SimulatedServer {
  faults: ServerFaults = { ...NO_FAULTS };
  readonly #options: ServerOptions;
  readonly #streams = new Map<string, Stream>();
  readonly #consumers = new Map<string, Consumer>();
  readonly #literal = new Map<string, Interest[]>();
  #wild: Interest[] = [];
  readonly #batches = new Map<string, Published[]>();
  readonly #busyUntilMs = new Map<string, number>();
  /** New at each start: what waited in the one before is not done. */
  #life = 0;

  constructor(options: ServerOptions) {
    this.#options = options;
  }

  stream(name: string): Stream | undefined {
    return this.#streams.get(name);
  }

  /** Consumers there are now. */
  consumers(): string[] {
    return [...this.#consumers].filter(([, each]) => !each.isGone()).map(([name]) => name);
  }

  /** Dies and starts anew; connections are the caller's to cut. */
  restart(): void {
    this.#life++;
    this.#literal.clear();
    this.#wild = [];
    this.#batches.clear();
    this.#busyUntilMs.clear();
    const writtenUntilMs = Math.floor(this.#options.wallMs()) - UNWRITTEN_MS;
    for (const stream of this.#streams.values()) stream.loseUnwritten(writtenUntilMs);
    for (const [name, consumer] of this.#consumers) {
      if (consumer.config.inMemory) this.#consumers.delete(name);
      else consumer.serverRestarted();
    }
  }

  subscribe(session: Session, sid: number, subject: string): void {
    const interest = { session, sid, subject };
    if (!isLiteral(subject)) this.#wild.push(interest);
    else this.#literal.set(subject, [...(this.#literal.get(subject) ?? []), interest]);
  }

  unsubscribe(session: Session, sid: number, subject: string): void {
    const isOther = (each: Interest) => each.session !== session || each.sid !== sid;
    if (!isLiteral(subject)) {
      this.#wild = this.#wild.filter(isOther);
      return;
    }
    const left = this.#literal.get(subject)?.filter(isOther) ?? [];
    if (left.length === 0) this.#literal.delete(subject);
    else this.#literal.set(subject, left);
  }

  detach(session: Session): void {
    this.#wild = this.#wild.filter((each) => each.session !== session);
    for (const [subject, all] of this.#literal) {
      const left = all.filter((each) => each.session !== session);
      if (left.length === 0) this.#literal.delete(subject);
      else if (left.length < all.length) this.#literal.set(subject, left);
    }
  }

  /** A message that came from a client. */
  publish(session: Session, published: Published): void {
    const { subject, reply } = published;
    if (subject.startsWith('$JS.ACK.')) return this.#acknowledge(subject, published.data);
    if (subject.startsWith('$JS.API.')) return this.#callApi(published);
    const stream = this.#streamOf(subject);
    const heard = this.#route(`core ${session.principal}`, {
      ...this.#vouched(session, published),
      code: 0,
      description: '',
    });
    if (stream !== undefined) this.#gather(stream, published);
    else if (!heard && reply !== '') this.#answerStatus(reply, 503, 'No Responders');
  }

  /** In the ledger's account the server says who asks, whatever the caller says. */
  #vouched(session: Session, published: Published): Published {
    if (!published.subject.startsWith('hb.ledger.')) return published;
    const claims = Buffer.from(JSON.stringify({ sub: session.principal })).toString('base64url');
    const headers = new Map(published.headers);
    headers.set(REQUEST_INFO_HEADER, JSON.stringify({ jwt: `e30.${claims}.e30` }));
    return { ...published, headers };
  }

  /** True when anybody listens. */
  #route(lane: string, arrival: Arrival): boolean {
    const { subject } = arrival;
    let heard = false;
    const send = ({ session, sid }: Interest) => {
      if (subject.startsWith('hb.ledger.') && !session.isLedger) return;
      heard = true;
      session.send(lane, sid, arrival);
    };
    for (const interest of this.#literal.get(subject) ?? []) send(interest);
    for (const interest of this.#wild) if (matcher(interest.subject)(subject)) send(interest);
    return heard;
  }

  #streamOf(subject: string): Stream | undefined {
    for (const stream of this.#streams.values()) if (stream.takes(subject)) return stream;
    return undefined;
  }

  /** Batches are held until their commit comes. */
  #gather(stream: Stream, published: Published): void {
    const id = published.headers.get('Nats-Batch-Id');
    if (id === undefined) return this.#store(stream, [published]);
    const batch = [...(this.#batches.get(id) ?? []), published];
    if (published.headers.has('Nats-Batch-Commit')) {
      this.#batches.delete(id);
      const whole = batch.length === Number(published.headers.get('Nats-Batch-Sequence'));
      if (whole) this.#store(stream, batch);
      else this.#refuseBatch(published.reply);
    } else {
      this.#batches.set(id, batch);
    }
  }

  #refuseBatch(reply: string): void {
    const error = { code: 400, err_code: 10176, description: 'batch is incomplete' };
    this.#answer(reply, { error }, this.faults.lostAck);
  }

  /** One after the other, each after its own sync. */
  #store(stream: Stream, messages: Published[]): void {
    const { scheduler, random } = this.#options;
    const { name } = stream.config;
    const life = this.#life;
    const begunMs = Math.max(scheduler.nowMs, this.#busyUntilMs.get(name) ?? 0);
    const doneMs = begunMs + random.between(0.1, 1.5);
    this.#busyUntilMs.set(name, doneMs);
    scheduler.at(doneMs, undefined, () => {
      if (life === this.#life) this.#commit(stream, messages);
    });
  }

  #commit(stream: Stream, messages: Published[]): void {
    const { wallMs, onStored } = this.#options;
    const verdict = stream.store(messages, Math.floor(wallMs()));
    const reply = messages.at(-1)?.reply ?? '';
    const { name } = stream.config;
    if ('refused' in verdict) {
      this.#answer(reply, { error: verdict.refused, stream: name, seq: 0 }, this.faults.lostAck);
      return;
    }
    const { seq, duplicate, stored } = verdict;
    for (const message of stored) {
      onStored(name, message);
      this.#copy(stream, message);
    }
    const batch = messages.length > 1 ? { count: messages.length } : {};
    this.#answer(reply, { stream: name, seq, duplicate, ...batch }, this.faults.lostAck);
    if (stored.length === 0) return;
    for (const consumer of this.#consumersOf(name)) {
      if (stored.some(({ subject }) => consumer.wants(subject))) consumer.pump();
    }
  }

  #copy(stream: Stream, message: StoredAt): void {
    const { republish, name } = stream.config;
    if (republish === undefined) return;
    if (this.#options.random.chance(this.faults.lostCopy)) return;
    const to = republish.dest.slice(0, -1) + message.subject.slice(republish.src.length - 1);
    const headers = this.#storedFields(name, message);
    const { data } = message;
    this.#route(`copies ${name}`, {
      subject: to,
      data,
      reply: '',
      headers,
      code: 0,
      description: '',
    });
  }

  #storedFields(stream: string, { subject, seq, at, headers }: StoredAt): Fields {
    const fields = new Map(headers);
    fields.set('Nats-Stream', stream);
    fields.set('Nats-Subject', subject);
    fields.set('Nats-Sequence', String(seq));
    fields.set('Nats-Time-Stamp', new Date(at).toISOString());
    return fields;
  }

  #answer(reply: string, body: object, lost = this.faults.lostReply): void {
    if (reply === '' || this.#options.random.chance(lost)) return;
    const data = Buffer.from(JSON.stringify(body));
    const arrival = { subject: reply, data, reply: '', headers: NO_FIELDS };
    this.#route(`reply ${reply}`, { ...arrival, code: 0, description: '' });
  }

  #answerStatus(reply: string, code: number, description: string): void {
    const arrival = { subject: reply, data: EMPTY, reply: '', headers: NO_FIELDS };
    this.#route(`reply ${reply}`, { ...arrival, code, description });
  }

  #acknowledge(subject: string, data: Uint8Array): void {
    const [, , stream = '', name = '', , seq = ''] = subject.split('.');
    const consumer = this.#consumers.get(`${stream} ${name}`);
    const body = Buffer.from(data).toString();
    const number = Number(seq);
    if (body.startsWith('+WPI')) consumer?.settle(number, 'working');
    else if (body.startsWith('+TERM')) consumer?.settle(number, 'term');
    else if (body.startsWith('-NAK')) {
      const text = body.slice(4).trim();
      const { delay = 0 } = text === '' ? {} : (JSON.parse(text) as { delay?: number });
      consumer?.settle(number, { nakMs: delay / 1_000_000 });
    } else consumer?.settle(number, 'ack');
  }

  #callApi({ subject, data, reply }: Published): void {
    const [, , family, verb, ...rest] = subject.split('.');
    const text = Buffer.from(data).toString();
    const body = (text === '' ? {} : JSON.parse(text)) as Record<string, unknown>;
    const call = `${family} ${verb}`;
    const [name = '', ...more] = rest;
    if (call === 'STREAM INFO') this.#streamInfo(name, body, reply);
    else if (call === 'STREAM CREATE' || call === 'STREAM UPDATE') {
      this.#makeStream(body as unknown as StreamConfig, reply);
    } else if (call === 'DIRECT GET') this.#directGet(name, more.join('.'), body, reply);
    else if (call === 'CONSUMER CREATE') this.#makeConsumer(name, more[0] ?? '', body, reply);
    else if (call === 'CONSUMER MSG') this.#pull(more[0] ?? '', more[1] ?? '', body, reply);
    else throw new Error(`the simulated server has no call ${subject}`);
  }

  #makeStream(config: StreamConfig, reply: string): void {
    const known = this.#streams.get(config.name);
    if (known === undefined) this.#streams.set(config.name, new Stream(config));
    else known.config = config;
    this.#answer(reply, { config });
  }

  #streamInfo(name: string, query: Record<string, unknown>, reply: string): void {
    const stream = this.#streams.get(name);
    if (stream === undefined) return this.#answer(reply, { error: NOT_FOUND });
    const filter = query['subjects_filter'];
    const all = typeof filter === 'string' ? stream.subjects(filter) : [];
    const page = all.slice(Number(query['offset'] ?? 0));
    const subjects = Object.fromEntries(page.map((subject) => [subject, 1]));
    this.#answer(reply, {
      config: stream.config,
      state: { last_seq: stream.lastSeq, messages: stream.count, subjects },
      total: all.length,
      ts: new Date(this.#options.wallMs()).toISOString(),
    });
  }

  #directGet(name: string, last: string, query: Record<string, unknown>, reply: string): void {
    const stream = this.#streams.get(name);
    if (stream === undefined) return this.#answerStatus(reply, 503, 'No Responders');
    if (this.#options.random.chance(this.faults.lostReply)) return;
    const send = (message: StoredAt) =>
      this.#route(`reply ${reply}`, {
        subject: reply,
        data: message.data,
        reply: '',
        headers: this.#storedFields(name, message),
        code: 0,
        description: '',
      });
    if (last !== '') {
      const message = stream.last(last);
      if (message === undefined) this.#answerStatus(reply, 404, 'Message Not Found');
      else send(message);
      return;
    }
    const { messages, pending } = readMany(stream, query);
    if (messages.length === 0) return this.#answerStatus(reply, 404, 'No Results');
    for (const message of messages) send(message);
    this.#route(`reply ${reply}`, {
      subject: reply,
      data: EMPTY,
      reply: '',
      headers: new Map([['Nats-Num-Pending', String(pending)]]),
      code: 204,
      description: 'EOB',
    });
  }

  #consumersOf(stream: string): Consumer[] {
    const prefix = `${stream} `;
    return [...this.#consumers].filter(([key]) => key.startsWith(prefix)).map(([, each]) => each);
  }

  #makeConsumer(
    streamName: string,
    name: string,
    body: Record<string, unknown>,
    reply: string,
  ): void {
    const stream = this.#streams.get(streamName);
    if (stream === undefined) return this.#answer(reply, { error: NOT_FOUND });
    const key = `${streamName} ${name}`;
    if (!this.#consumers.has(key)) {
      const { scheduler, random } = this.#options;
      const config = consumerConfig(body['config'] as Record<string, unknown>);
      const consumer = new Consumer(name, stream, config, scheduler, {
        early: () => (random.chance(this.faults.againEarly) ? random.between(1, 400) : undefined),
      });
      this.#consumers.set(key, consumer);
    }
    this.#answer(reply, { stream_name: streamName, name });
  }

  /** A pull of a consumer that is not there has no answer. */
  #pull(rest: string, consumerName: string, body: Record<string, unknown>, reply: string): void {
    // `$JS.API.CONSUMER.MSG.NEXT.<stream>.<consumer>`
    const key = `${rest} ${consumerName}`;
    const consumer = this.#consumers.get(key);
    if (consumer?.isGone()) this.#consumers.delete(key);
    if (consumer === undefined || consumer.isGone()) return;
    const lane = `pull ${key}`;
    const target: PullTarget = {
      listens: () => this.#literal.has(reply),
      message: ({ subject, data, headers }, ackSubject) => {
        for (const { session, sid } of this.#literal.get(reply) ?? []) {
          const arrival = { subject, data, reply: ackSubject, headers };
          session.send(lane, sid, { ...arrival, code: 0, description: '' });
        }
      },
      status: (code, description) => {
        for (const { session, sid } of this.#literal.get(reply) ?? []) {
          const arrival = { subject: reply, data: EMPTY, reply: '', headers: NO_FIELDS };
          session.send(lane, sid, { ...arrival, code, description });
        }
      },
    };
    const expires = body['expires'];
    const until =
      typeof expires === 'number' ? this.#options.scheduler.nowMs + expires / 1_000_000 : null;
    consumer.pull(target, Number(body['batch'] ?? 1), body['no_wait'] === true ? null : until);
  }
}

function readMany(
  stream: Stream,
  query: Record<string, unknown>,
): { messages: StoredAt[]; pending: number } {
  const multiLast = query['multi_last'];
  if (Array.isArray(multiLast)) {
    const found = (multiLast as string[]).flatMap((subject) => stream.last(subject) ?? []);
    return { messages: found.toSorted((a, b) => a.seq - b.seq), pending: 0 };
  }
  const batch = Number(query['batch'] ?? 1);
  const messages: StoredAt[] = [];
  let pending = 0;
  const filter = String(query['next_by_subj']);
  for (const message of stream.from(Number(query['seq'] ?? 1), [filter])) {
    if (messages.length < batch) messages.push(message);
    else pending++;
  }
  return { messages, pending };
}

function consumerConfig(config: Record<string, unknown>): ConsumerConfig {
  const single = config['filter_subject'];
  const filters = typeof single === 'string' ? [single] : (config['filter_subjects'] as string[]);
  const ms = (name: string) => Number(config[name] ?? 0) / 1_000_000;
  return {
    filters,
    explicitAck: config['ack_policy'] === 'explicit',
    ackWaitMs: ms('ack_wait'),
    inMemory: config['mem_storage'] === true,
    inactiveMs: ms('inactive_threshold'),
    startSeq: Number(config['opt_start_seq'] ?? 1),
  };
}
