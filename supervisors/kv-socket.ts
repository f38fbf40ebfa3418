/**
 * The kv socket: the node's runners reach their callers' buckets through it, and through nothing else.
 *
 * HTTP with JSON over a unix socket that only this user can open; whoever asks shows the token the
 * supervisor gave its runners. The client is `sal/kv.ts`; who may ask what was judged before a job ran.
 *
 *   K1 a write takes effect at most once for each write of a job: the answer to a repeated request, or to
 *      a later attempt of a job whose write was done, is the one given before;
 *   K2 a request of an attempt that was superseded changes nothing;
 *   K3 a write that finds the key changed under it counts as done just before that change.
 * The memory behind K1 and K2 is this process's own. After its restart a repeated write converges: a value
 * that stands is not written again. (The bucket holds plain values, as INTERFACES 4 says: there is no
 * place beside them.)
 */
import { createHash, randomBytes, timingSafeEqual } from 'node:crypto';
import { chmodSync, rmSync } from 'node:fs';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import { type Bus, type Kv, RevisionLost } from '../bus/bus.ts';
import { addressOf } from '../bus/identity.ts';
import { userBucket } from '../bus/streams.ts';
import { errorRecord, HeroError } from '../schemas/errors.ts';
import { exactJson } from '../schemas/json.ts';
import { KvRequest, type KvSocket } from '../schemas/kv.ts';

const REQUEST_BYTES_MAX = 1024 * 1024;
const VALUE_BYTES_MAX = 512 * 1024;
const REMEMBERED_MAX = 10_000;
/** What the system has room for in the address of a unix socket. */
const PATH_BYTES_MAX = 107;

export type KvSocketServer = KvSocket & {
  close: () => Promise<void>;
};

/** `token`: what the node's runners show; it may outlive this process, so that either can restart. */
export async function serveKv(
  bus: Bus,
  path: string,
  token: string = randomBytes(32).toString('hex'),
): Promise<KvSocketServer> {
  if (Buffer.byteLength(path) > PATH_BYTES_MAX) {
    const message = `the path of the kv socket has more than ${PATH_BYTES_MAX} bytes: ${path}`;
    throw new HeroError('usage', message, { fix: 'use a data folder with a shorter path' });
  }
  const writes = new Writes();
  const server = createServer((request, response) => {
    void answer(bus, writes, token, request, response);
  });
  // What a killed predecessor left behind.
  rmSync(path, { force: true });
  await new Promise<void>((resolve, reject) => {
    server.once('error', reject);
    server.listen(path, resolve);
  });
  chmodSync(path, 0o600);
  return {
    path,
    token,
    close: async () => {
      server.closeAllConnections();
      await new Promise((resolve) => {
        server.close(resolve);
      });
    },
  };
}

async function answer(
  bus: Bus,
  writes: Writes,
  token: string,
  request: IncomingMessage,
  response: ServerResponse,
): Promise<void> {
  let reply: object;
  try {
    checkToken(request, token);
    const asked = KvRequest.safeParse(await readBody(request));
    if (!asked.success) throw new HeroError('bad_request', `kv: ${asked.error.message}`);
    reply = { ok: await perform(bus, writes, asked.data) };
  } catch (error) {
    const { code, message } = errorRecord(error);
    reply = { error: { code, message } };
  }
  const body = JSON.stringify(reply);
  response.on('error', () => undefined);
  response.writeHead(200, { 'content-type': 'application/json' }).end(body);
}

function checkToken({ headers }: IncomingMessage, token: string): void {
  const digest = (text: string): Buffer => createHash('sha256').update(text).digest();
  if (timingSafeEqual(digest(headers.authorization ?? ''), digest(`Bearer ${token}`))) return;
  throw new HeroError('not_allowed', 'the kv socket is for the runners of this node');
}

async function readBody(request: IncomingMessage): Promise<unknown> {
  const chunks: Buffer[] = [];
  let bytes = 0;
  for await (const chunk of request as AsyncIterable<Buffer>) {
    bytes += chunk.length;
    if (bytes > REQUEST_BYTES_MAX) throw new HeroError('too_large', 'kv: the request is too large');
    chunks.push(chunk);
  }
  try {
    return JSON.parse(Buffer.concat(chunks).toString('utf8'));
  } catch {
    throw new HeroError('bad_request', 'kv: the request is not JSON');
  }
}

/** Typed JSON text. */
async function perform(bus: Bus, writes: Writes, asked: KvRequest): Promise<string> {
  const address = addressOf(asked.caller);
  if (address === undefined) throw new HeroError('bad_request', 'kv: the caller is no principal');
  const kv = bus.kv(userBucket(address));
  switch (asked.op) {
    case 'get':
      return JSON.stringify((await kv.get(asked.key))?.value ?? null);
    case 'list':
      return JSON.stringify(await kv.list(asked.key));
    case 'set':
      return writes.once(asked, () => set(kv, asked));
    case 'del':
      return writes.once(asked, () => remove(kv, asked.key));
  }
}

async function set(kv: Kv, { key, value }: KvRequest): Promise<string> {
  if (value === null) throw new HeroError('bad_request', 'kv.set: there is no value');
  if (Buffer.byteLength(value) > VALUE_BYTES_MAX) {
    throw new HeroError('too_large', `kv.set: a value has at most ${VALUE_BYTES_MAX} bytes`);
  }
  const wanted = exactJson(value);
  const standing = await kv.get(key);
  if (standing !== undefined && JSON.stringify(standing.value) === JSON.stringify(wanted)) {
    return 'null';
  }
  await unlessOvertaken(
    standing === undefined ? kv.create(key, wanted) : kv.update(key, wanted, standing.revision),
  );
  return 'null';
}

async function remove(kv: Kv, key: string): Promise<string> {
  const standing = await kv.get(key);
  if (standing !== undefined) await unlessOvertaken(kv.delete(key, standing.revision));
  return 'null';
}

/** K3: somebody else's later value stands, as it would had ours been there for a moment. */
async function unlessOvertaken(write: Promise<unknown>): Promise<void> {
  try {
    await write;
  } catch (error) {
    if (!(error instanceof RevisionLost)) throw error;
  }
}

/** Which writes of which attempts were done (K1, K2). */
class Writes {
  readonly #done = new Map<string, { attempt: number; answer: Promise<string> }>();

  once(
    { caller, job, call, op, key, attempt }: KvRequest,
    write: () => Promise<string>,
  ): Promise<string> {
    const id = JSON.stringify([caller, job, call, op, key]);
    const known = this.#done.get(id);
    if (known !== undefined) {
      if (attempt < known.attempt) {
        const message = `kv: attempt ${known.attempt} of ${job} has taken over`;
        return Promise.reject(new HeroError('fence_lost', message));
      }
      known.attempt = attempt;
      return known.answer;
    }
    const answer = write();
    this.#done.set(id, { attempt, answer });
    // A write that failed was not done; whoever asks again gets another try.
    answer.catch(() => this.#done.delete(id));
    for (const oldest of this.#done.keys()) {
      if (this.#done.size <= REMEMBERED_MAX) break;
      this.#done.delete(oldest);
    }
    return answer;
  }
}
