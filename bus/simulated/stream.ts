/**
 * One stream: a total order of messages, with what a publish may ask of it.
 *
 *   S1 a fence lets a message in only where the last message under its filter is the one expected (10071);
 *   S2 the messages of a batch are stored together or not at all;
 *   S3 a message id within the window gives the sequence of the first one, and stores nothing;
 *   S4 sequences are never given twice, whatever is taken away;
 *   S5 what a stream acknowledges before it is written down may be gone when its server dies.
 */
import { matcher } from './filters.ts';

export type Fields = ReadonlyMap<string, string>;
export type Message = { subject: string; data: Uint8Array; headers: Fields };
export type StoredAt = Message & { seq: number; at: number };

export type StreamConfig = {
  name: string;
  subjects: string[];
  retention?: string;
  max_msgs_per_subject?: number;
  republish?: { src: string; dest: string };
  persist_mode?: string;
};

/** What the server says to a publish. */
export type Verdict =
  | { seq: number; duplicate: boolean; stored: StoredAt[] }
  | { refused: { code: number; err_code: number; description: string } };

/** A fence of a batch that the batch itself breaks. */
function refuseWithin({ subject, headers }: Message, before: readonly Message[]) {
  if (!headers.has('Nats-Expected-Last-Subject-Sequence')) return undefined;
  const filter = headers.get('Nats-Expected-Last-Subject-Sequence-Subject') ?? subject;
  if (!before.some((other) => matcher(filter)(other.subject))) return undefined;
  return { code: 400, err_code: 10164, description: 'wrong last sequence within the batch' };
}

const DUPLICATE_WINDOW_MS = 120_000;

type Node = { children: Map<string, Node>; here: number; under: number };
const emptyNode = (): Node => ({ children: new Map(), here: 0, under: 0 });

export class Stream {
  config: StreamConfig;
  readonly #messages: (StoredAt | undefined)[] = [];
  readonly #root = emptyNode();
  readonly #bySubject = new Map<string, number[]>();
  readonly #ids = new Map<string, { seq: number; at: number }>();

  constructor(config: StreamConfig) {
    this.config = config;
  }

  get lastSeq(): number {
    return this.#messages.length;
  }

  get isQueue(): boolean {
    return this.config.retention === 'workqueue';
  }

  takes(subject: string): boolean {
    return this.config.subjects.some((filter) => matcher(filter)(subject));
  }

  /** One message or a whole batch. */
  store(messages: readonly Message[], at: number): Verdict {
    for (const [index, message] of messages.entries()) {
      const refused = this.#refuse(message) ?? refuseWithin(message, messages.slice(0, index));
      if (refused !== undefined) return { refused };
    }
    const [first] = messages;
    const id = messages.length === 1 ? first?.headers.get('Nats-Msg-Id') : undefined;
    const known = id === undefined ? undefined : this.#ids.get(id);
    if (known !== undefined && at - known.at < DUPLICATE_WINDOW_MS) {
      return { seq: known.seq, duplicate: true, stored: [] };
    }
    const stored = messages.map((message) => this.#append(message, at));
    const seq = this.lastSeq;
    if (id !== undefined) this.#ids.set(id, { seq, at });
    return { seq, duplicate: false, stored };
  }

  get(seq: number): StoredAt | undefined {
    return this.#messages[seq - 1];
  }

  remove(seq: number): void {
    const message = this.#messages[seq - 1];
    if (message === undefined) return;
    this.#messages[seq - 1] = undefined;
    const seqs = this.#bySubject.get(message.subject);
    const left = seqs?.filter((each) => each !== seq) ?? [];
    if (left.length === 0) this.#bySubject.delete(message.subject);
    else this.#bySubject.set(message.subject, left);
  }

  /** A message that was taken away by an acknowledgement nobody wrote down. */
  restore(message: StoredAt): void {
    if (this.#messages[message.seq - 1] !== undefined) return;
    this.#messages[message.seq - 1] = message;
    const seqs = this.#bySubject.get(message.subject) ?? [];
    this.#bySubject.set(
      message.subject,
      [...seqs, message.seq].toSorted((a, b) => a - b),
    );
  }

  /** The server died: what it stored from then on, by its own clock, had not reached the disk. */
  loseUnwritten(sinceMs: number): void {
    if (this.config.persist_mode !== 'async') return;
    for (let seq = this.lastSeq; seq > 0; seq--) {
      const message = this.get(seq);
      if (message !== undefined && message.at < sinceMs) return;
      this.remove(seq);
    }
  }

  /** Stored messages under any of the filters from a sequence on, oldest first. */
  *from(seq: number, filters: readonly string[]): Iterable<StoredAt> {
    const matchers = filters.map(matcher);
    for (let at = Math.max(1, seq); at <= this.#messages.length; at++) {
      const message = this.#messages[at - 1];
      if (message !== undefined && matchers.some((each) => each(message.subject))) yield message;
    }
  }

  last(filter: string): StoredAt | undefined {
    const seq = this.#lastSeqOf(filter);
    return seq === 0 ? undefined : this.get(seq);
  }

  /** Subjects with messages. */
  subjects(filter: string): string[] {
    const wanted = matcher(filter);
    return [...this.#bySubject.keys()].filter(wanted).toSorted();
  }

  get count(): number {
    let count = 0;
    for (const seqs of this.#bySubject.values()) count += seqs.length;
    return count;
  }

  #refuse({ subject, headers }: Message) {
    const expected = headers.get('Nats-Expected-Last-Subject-Sequence');
    if (expected === undefined) return undefined;
    const filter = headers.get('Nats-Expected-Last-Subject-Sequence-Subject') ?? subject;
    const last = this.#lastSeqOf(filter);
    if (last === Number(expected)) return undefined;
    const description = `wrong last sequence: ${last}`;
    return { code: 400, err_code: 10071, description };
  }

  #append(message: Message, at: number): StoredAt {
    const stored: StoredAt = { ...message, seq: this.#messages.length + 1, at };
    this.#messages.push(stored);
    const seqs = this.#bySubject.get(stored.subject);
    if (seqs === undefined) this.#bySubject.set(stored.subject, [stored.seq]);
    else seqs.push(stored.seq);
    this.#note(stored);
    const max = this.config.max_msgs_per_subject ?? -1;
    const all = this.#bySubject.get(stored.subject) ?? [];
    if (max > 0) for (const old of all.slice(0, -max)) this.remove(old);
    return stored;
  }

  #note({ subject, seq }: StoredAt): void {
    let node = this.#root;
    for (const token of subject.split('.')) {
      node.under = seq;
      let child = node.children.get(token);
      if (child === undefined) {
        child = emptyNode();
        node.children.set(token, child);
      }
      node = child;
    }
    node.here = seq;
  }

  #lastSeqOf(filter: string): number {
    const search = (node: Node, tokens: readonly string[], at: number): number => {
      const token = tokens[at];
      if (token === undefined) return node.here;
      if (token === '>') return node.under;
      if (token !== '*') {
        const child = node.children.get(token);
        return child === undefined ? 0 : search(child, tokens, at + 1);
      }
      let last = 0;
      for (const child of node.children.values()) {
        last = Math.max(last, search(child, tokens, at + 1));
      }
      return last;
    };
    return search(this.#root, filter.split('.'), 0);
  }
}
