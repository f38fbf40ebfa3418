/**
 * A bus in memory, for tests of actors: subjects with wildcards, requests, buckets, a link to cut.
 *
 * Several principals may share one `MemoryNet`; each sees it through its own `MemoryBus`. Time is the test's.
 */
import {
  RevisionLost,
  type Bus,
  type Incoming,
  type Kv,
  type KvEntry,
  type Link,
  type LinkState,
  type Subscription,
} from '../../bus/bus.ts';
import { newIdentity, type Identity } from '../../bus/identity.ts';
import { HeroError } from '../../schemas/errors.ts';

type Listener = { pattern: RegExp; onMessage: (message: Incoming) => void };
type Bucket = { entries: Map<string, KvEntry>; revision: number; watchers: Set<Watcher> };
type Watcher = (key: string, entry: KvEntry | undefined) => void;

const matcher = (subject: string) =>
  new RegExp(
    `^${subject
      .split('.')
      .map((token) =>
        token === '*' ? '[^.]+' : token === '>' ? '.+' : token.replace(/[$]/g, '\\$&'),
      )
      .join('\\.')}$`,
  );

export class MemoryNet {
  readonly listeners = new Set<Listener>();
  readonly buckets = new Map<string, Bucket>();
  nowMs = Date.UTC(2026, 0, 1);
  /** Fails the next writes to buckets, as a bus that is away does. */
  kvFails = 0;
  puts = 0;

  deliver(
    subject: string,
    data: Uint8Array,
    caller?: string,
    reply?: (body: object) => void,
  ): number {
    let count = 0;
    for (const { pattern, onMessage } of this.listeners) {
      if (!pattern.test(subject)) continue;
      count++;
      onMessage({ subject, data, caller, ...(reply === undefined ? {} : { reply }) });
    }
    return count;
  }

  bucket(name: string): Bucket {
    const found = this.buckets.get(name) ?? {
      entries: new Map(),
      revision: 0,
      watchers: new Set(),
    };
    this.buckets.set(name, found);
    return found;
  }
}

export class MemoryBus {
  readonly net: MemoryNet;
  readonly identity: Identity;
  readonly incarnation = 'memory000001';
  /** What the server vouches for; undefined is the bearer of the join credentials. */
  caller: string | undefined;
  #link: LinkState = { up: true, sinceMs: 0 };
  readonly #onLink = new Set<(state: LinkState) => void>();
  readonly link: Link = {
    state: () => this.#link,
    onChange: (listener) => {
      this.#onLink.add(listener);
      return { stop: () => this.#onLink.delete(listener) };
    },
  };

  constructor(net = new MemoryNet(), identity = newIdentity(), caller?: string) {
    this.net = net;
    this.identity = identity;
    this.caller = caller;
  }

  get principal(): string {
    return this.identity.principal;
  }

  get address(): string {
    return this.identity.address;
  }

  setLink(up: boolean): void {
    this.#link = { up, sinceMs: this.net.nowMs };
    for (const listener of this.#onLink) listener(this.#link);
  }

  now(): number {
    return this.net.nowMs;
  }

  publish(subject: string, body: object): void {
    this.net.deliver(subject, Buffer.from(JSON.stringify(body)), this.caller);
  }

  subscribe(subject: string, onMessage: (message: Incoming) => void): Subscription {
    const listener = { pattern: matcher(subject), onMessage };
    this.net.listeners.add(listener);
    return { stop: () => this.net.listeners.delete(listener) };
  }

  request(subject: string, body: object | Uint8Array, timeoutMs = 2000): Promise<unknown> {
    const data = body instanceof Uint8Array ? body : Buffer.from(JSON.stringify(body));
    return new Promise((resolve, reject) => {
      const gone = () => reject(new HeroError('unreachable', `nobody answers ${subject}`));
      const timer = setTimeout(gone, timeoutMs);
      const reply = (answer: object) => {
        clearTimeout(timer);
        resolve(JSON.parse(JSON.stringify(answer)));
      };
      if (this.#link.up && this.net.deliver(subject, data, this.caller, reply) > 0) return;
      clearTimeout(timer);
      gone();
    });
  }

  kv(name: string): Kv {
    const { net } = this;
    const bucket = net.bucket(name);
    const write = (key: string, value: unknown, lost: boolean) => {
      if (net.kvFails > 0) {
        net.kvFails--;
        throw new HeroError('unreachable', 'the bus is away');
      }
      if (lost) throw new RevisionLost(`${key} has another revision`);
      const revision = ++bucket.revision;
      const copy: unknown = JSON.parse(JSON.stringify(value));
      const entry = { key, value: copy, revision, at: net.nowMs };
      bucket.entries.set(key, entry);
      net.puts++;
      for (const watcher of bucket.watchers) watcher(key, entry);
      net.deliver(`hb.kv.${name}.${key}`, Buffer.from(JSON.stringify(value)));
      return revision;
    };
    return {
      get: async (key) => bucket.entries.get(key),
      revision: async (key) => bucket.entries.get(key)?.revision ?? 0,
      put: async (key, value) => write(key, value, false),
      create: async (key, value) => write(key, value, bucket.entries.has(key)),
      update: async (key, value, revision) =>
        write(key, value, bucket.entries.get(key)?.revision !== revision),
      delete: async (key) => {
        bucket.entries.delete(key);
        for (const watcher of bucket.watchers) watcher(key, undefined);
        net.deliver(`hb.kv.${name}.${key}`, new Uint8Array());
      },
      list: async (prefix = '') =>
        [...bucket.entries.keys()].filter((key) => key.startsWith(prefix)).sort(),
      watch: async (onChange) => {
        for (const [key, entry] of bucket.entries) onChange(key, entry);
        bucket.watchers.add(onChange);
        return { stop: () => bucket.watchers.delete(onChange) };
      },
    };
  }

  /** As the interface the actors know; queues and logs are not in this double. */
  asBus(): Bus {
    return this as unknown as Bus;
  }
}
