/**
 * A client's connection to the simulated server: the part of a NATS connection that the bus uses, over a
 * wire that is slow, uneven, and sometimes not there.
 *
 *   W1 what a client sends arrives in the order it was sent; what a server sends in the order of its lane;
 *   W2 a wire that is cut loses what is under way on it, both ways; one that stalls delivers it later;
 *   W3 a client learns of a cut after a while, and until then sends into nothing; it comes back by itself,
 *      with its subscriptions, when the server can be reached;
 *   W4 a process that is gone sends nothing and hears nothing. Each thing it sends is an effect, told to the
 *      process (`acts`) before it is done, so that it can die between any two.
 */
import {
  createInbox,
  errors,
  headers as makeHeaders,
  type Msg,
  type MsgHdrs,
  type NatsConnection,
} from '@nats-io/transport-node';
import { backoffMs } from '../backoff.ts';
import type { Link, LinkState } from '../bus.ts';
import type { Connection } from '../connect.ts';
import { connectionBack, connectionLost } from '../presence.ts';
import type { Random } from './random.ts';
import type { Party, Scheduler } from './scheduler.ts';
import type { Arrival, Session, SimulatedServer } from './server.ts';

/** A process as its connection needs it. */
export type Client = Party & {
  /** Asked before each effect; false when the process is gone. */
  acts(): boolean;
};

export type Cut = {
  /** How long the server cannot be reached. */
  forMs: number;
  /** How long the client does not notice; null: the connection was reset, which it does at once. */
  unnoticedMs: number | null;
};

export type WireOptions = {
  scheduler: Scheduler;
  random: Random;
  server: SimulatedServer;
  /** Virtual time at which the server runs again; past: it does. */
  serverUpAtMs: () => number;
};

export type ConnectAs = {
  principal: string;
  inboxPrefix: string;
  isLedger: boolean;
};

type Callback = (error: Error | null, message: Msg) => void;
type Sub = { sid: number; subject: string; callback: Callback; closed: boolean };
type Payload = Uint8Array | string | undefined;
type PublishFields = { reply?: string; headers?: MsgHdrs };

const RECONNECT = { firstMs: 50, capMs: 5_000 };
// The client draws on chance when it names its first inbox: here, so that no simulation does.
createInbox();

const CLOSED = 'the connection is closed';

export class SimulatedConnection implements Session {
  readonly principal: string;
  readonly isLedger: boolean;
  readonly options: { inboxPrefix: string };
  readonly #wire: WireOptions;
  readonly #client: Client;
  readonly #subs = new Map<number, Sub>();
  readonly #linkListeners = new Set<(state: LinkState) => void>();
  #link: LinkState;
  #sid = 0;
  #inboxes = 0;
  /** Counts the wires this connection has had; what was sent over an earlier one does not arrive. */
  #life = 0;
  #isCut = false;
  #reachableAtMs = 0;
  #stalledUntilMs = 0;
  #sentAtMs = 0;
  readonly #laneAtMs = new Map<string, number>();
  #tries = 0;
  #closed = false;

  constructor(wire: WireOptions, client: Client, as: ConnectAs) {
    this.#wire = wire;
    this.#client = client;
    this.principal = as.principal;
    this.isLedger = as.isLedger;
    this.options = { inboxPrefix: as.inboxPrefix };
    this.#link = { up: true, sinceMs: performance.now() };
  }

  get asConnection(): Connection {
    const link: Link = {
      state: () => this.#link,
      onChange: (listener) => {
        this.#linkListeners.add(listener);
        return { stop: () => void this.#linkListeners.delete(listener) };
      },
    };
    return { nats: this.#nats, link, close: () => this.close() };
  }

  /** The bus uses no more of a connection than this class has. */
  get #nats(): NatsConnection {
    return this as unknown as NatsConnection;
  }

  isClosed(): boolean {
    return this.#closed;
  }

  isDraining(): boolean {
    return false;
  }

  close(): Promise<void> {
    this.end();
    return Promise.resolve();
  }

  /** What was sent before still arrives: also when the process is gone, its system sends it. */
  end(): void {
    this.#up(() => this.#wire.server.detach(this));
    this.#closed = true;
  }

  publish(subject: string, data?: Payload, fields: PublishFields = {}): void {
    if (this.#closed) throw new errors.ClosedConnectionError();
    if (!this.#client.acts()) return;
    this.#send(subject, data, fields);
  }

  subscribe(subject: string, { callback }: { callback: Callback }) {
    const sub: Sub = { sid: ++this.#sid, subject, callback, closed: false };
    this.#subs.set(sub.sid, sub);
    this.#up(() => {
      if (!sub.closed) this.#wire.server.subscribe(this, sub.sid, subject);
    });
    const unsubscribe = () => {
      if (sub.closed) return;
      sub.closed = true;
      this.#subs.delete(sub.sid);
      this.#up(() => this.#wire.server.unsubscribe(this, sub.sid, subject));
    };
    return {
      unsubscribe,
      // What the server has sent until it hears of this still comes.
      drain: () =>
        new Promise<void>((resolve) => {
          this.#up(() => {
            this.#wire.server.unsubscribe(this, sub.sid, subject);
            this.#down('drain', () => {
              sub.closed = true;
              this.#subs.delete(sub.sid);
              resolve();
            });
          });
          this.#wire.scheduler.after(1000, this.#client, resolve);
        }),
    };
  }

  request(
    subject: string,
    data: Payload,
    { timeout, headers }: { timeout: number; headers?: MsgHdrs },
  ): Promise<Msg> {
    if (this.#closed) return Promise.reject(new errors.ClosedConnectionError());
    return new Promise((resolve, reject) => {
      const inbox = `${this.options.inboxPrefix}.r${++this.#inboxes}`;
      const end = () => {
        timer.cancel();
        this.#subs.delete(sub.sid);
        this.#wire.server.unsubscribe(this, sub.sid, inbox);
      };
      const sub: Sub = {
        sid: ++this.#sid,
        subject: inbox,
        closed: false,
        callback: (_error, message) => {
          end();
          if (message.headers?.code === 503) reject(new errors.NoRespondersError(subject));
          else resolve(message);
        },
      };
      const timer = this.#wire.scheduler.after(timeout, this.#client, () => {
        end();
        reject(new errors.TimeoutError());
      });
      if (!this.#client.acts()) return;
      this.#subs.set(sub.sid, sub);
      // A client listens for all its answers from the beginning.
      if (!this.#isCut) this.#wire.server.subscribe(this, sub.sid, inbox);
      this.#send(subject, data, { reply: inbox, ...(headers === undefined ? {} : { headers }) });
    });
  }

  flush(): Promise<void> {
    return Promise.resolve();
  }

  /** The server's end: see Session. */
  send(lane: string, sid: number, arrival: Arrival): void {
    this.#down(lane, () => {
      const sub = this.#subs.get(sid);
      if (sub !== undefined && !sub.closed) sub.callback(null, toMsg(arrival, sid));
    });
  }

  /** Nothing passes for so long, and nothing is lost. */
  stall(forMs: number): void {
    this.#stalledUntilMs = Math.max(this.#stalledUntilMs, this.#wire.scheduler.nowMs + forMs);
  }

  cut({ forMs, unnoticedMs }: Cut): void {
    if (this.#closed) return;
    const { scheduler, random, server } = this.#wire;
    this.#reachableAtMs = Math.max(this.#reachableAtMs, scheduler.nowMs + forMs);
    if (this.#isCut) return;
    this.#isCut = true;
    this.#life++;
    this.#laneAtMs.clear();
    this.#sentAtMs = 0;
    server.detach(this);
    const noticedMs = unnoticedMs ?? random.between(0, 30);
    scheduler.after(noticedMs, this.#client, () => this.#lost(), 'message');
  }

  #lost(): void {
    if (this.#closed) return;
    this.#tries = 0;
    connectionLost(this.#nats);
    this.#become(false);
    this.#tryAgain();
  }

  #tryAgain(): void {
    const { scheduler, serverUpAtMs, server, random } = this.#wire;
    scheduler.after(backoffMs(this.#tries++, RECONNECT), this.#client, () => {
      if (this.#closed) return;
      if (Math.max(this.#reachableAtMs, serverUpAtMs()) > scheduler.nowMs) {
        this.#tryAgain();
        return;
      }
      this.#isCut = false;
      const life = this.#life;
      for (const { sid, subject, closed } of this.#subs.values()) {
        if (!closed) server.subscribe(this, sid, subject);
      }
      scheduler.after(
        random.between(0.5, 5),
        this.#client,
        () => {
          if (this.#closed || life !== this.#life) return;
          connectionBack(this.#nats);
          this.#become(true);
        },
        'message',
      );
    });
  }

  #become(up: boolean): void {
    if (this.#link.up === up) return;
    this.#link = { up, sinceMs: performance.now() };
    for (const listener of this.#linkListeners) listener(this.#link);
  }

  #send(subject: string, data: Payload, { reply = '', headers }: PublishFields): void {
    const bytes = typeof data === 'string' ? Buffer.from(data) : (data ?? new Uint8Array(0));
    const fields = new Map(headers?.keys().map((key) => [key, headers.get(key)]) ?? []);
    this.#up(() =>
      this.#wire.server.publish(this, { subject, data: bytes, reply, headers: fields }),
    );
  }

  #up(arrive: () => void): void {
    if (this.#isCut || this.#closed) return;
    const { scheduler } = this.#wire;
    const life = this.#life;
    this.#sentAtMs = Math.max(this.#sentAtMs, this.#arrivalMs());
    scheduler.at(
      this.#sentAtMs,
      undefined,
      () => this.#unlessStalled(life, undefined, arrive),
      'message',
    );
  }

  #down(lane: string, arrive: () => void): void {
    if (this.#isCut || this.#closed) return;
    const { scheduler } = this.#wire;
    const life = this.#life;
    const before =
      lane === 'drain' ? Math.max(...this.#laneAtMs.values()) : this.#laneAtMs.get(lane);
    const atMs = Math.max(before ?? 0, this.#arrivalMs());
    if (this.#laneAtMs.size > 2000) this.#laneAtMs.clear();
    this.#laneAtMs.set(lane, atMs);
    scheduler.at(
      atMs,
      this.#client,
      () => this.#unlessStalled(life, this.#client, arrive),
      'message',
    );
  }

  #unlessStalled(life: number, party: Party | undefined, arrive: () => void): void {
    if (life !== this.#life || (this.#closed && party !== undefined)) return;
    const { scheduler } = this.#wire;
    if (this.#stalledUntilMs <= scheduler.nowMs) return arrive();
    scheduler.at(
      this.#stalledUntilMs,
      party,
      () => this.#unlessStalled(life, party, arrive),
      'message',
    );
  }

  /** Mostly a local network, now and then a bad one. */
  #arrivalMs(): number {
    const { scheduler, random } = this.#wire;
    const draw = random.float();
    const delayMs = draw < 0.985 ? 0.05 + draw : random.between(2, draw < 0.998 ? 40 : 600);
    return scheduler.nowMs + delayMs;
  }
}

function toMsg({ subject, data, reply, headers, code, description }: Arrival, sid: number): Msg {
  const fields = makeHeaders(code, description);
  for (const [name, value] of headers) fields.set(name, value);
  const message = {
    subject,
    data,
    sid,
    reply,
    ...(headers.size > 0 || code > 0 ? { headers: fields } : {}),
    string: () => new TextDecoder().decode(data),
    json: () => JSON.parse(new TextDecoder().decode(data)) as unknown,
    respond: () => {
      throw new Error(CLOSED);
    },
  };
  return message as Msg;
}
