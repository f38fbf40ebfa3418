/**
 * The kv SAL: the caller's state bucket, over the kv socket of the node's supervisor.
 *
 * It speaks HTTP with JSON over a unix socket and knows nothing of the bus. Values travel as typed JSON
 * text, so that `1.0` stays a float. A call that found nobody is made again until its deadline: the far
 * side knows a repeated write by its job.
 */
import { request as httpRequest } from 'node:http';
import { setTimeout as delay } from 'node:timers/promises';
import { z } from 'zod';
import { ERROR_CODES, type ErrorCode, HeroError } from '../schemas/errors.ts';
import { type JsonValue, parseStrict, stringifyTyped } from '../schemas/json.ts';
import { KvReply, type KvRequest, type KvSocket } from '../schemas/kv.ts';
import { type Family, operation, type SalContext } from './driver.ts';

const AGAIN_MS = 100;
/** How long a supervisor that restarts is waited for. */
const PATIENCE_MS = 10_000;
const REPLY_BYTES_MAX = 4 * 1024 * 1024;

const Key = z.object({ key: z.string().min(1).max(1024) });
const KeyValue = Key.extend({
  value: z.custom<JsonValue>((value) => value !== undefined, 'there is no value'),
});

export function kvFamily(socket: KvSocket): Family {
  const ask = (
    op: KvRequest['op'],
    key: string,
    context: SalContext,
    value?: JsonValue,
  ): Promise<JsonValue> => askPatiently(socket, requestOf(op, key, context, value), context);
  return {
    name: 'kv',
    fingerprint: () => Promise.resolve({ found: true, detail: socket.path }),
    operations: [
      operation({
        name: 'kv.get',
        needs: 'kv:read',
        args: Key,
        run: ({ key }, context) => ask('get', key, context),
      }),
      operation({
        name: 'kv.list',
        needs: 'kv:read',
        args: z.object({ prefix: z.string().max(1024).default('') }),
        run: ({ prefix }, context) => ask('list', prefix, context),
      }),
      operation({
        name: 'kv.set',
        needs: 'kv:write',
        args: KeyValue,
        run: ({ key, value }, context) => ask('set', key, context, value),
      }),
      operation({
        name: 'kv.del',
        needs: 'kv:write',
        args: Key,
        run: ({ key }, context) => ask('del', key, context),
      }),
    ],
  };
}

function requestOf(
  op: KvRequest['op'],
  key: string,
  { caller, jobId, attempt }: SalContext,
  value: JsonValue | undefined,
): KvRequest {
  const text = value === undefined ? null : stringifyTyped(value);
  return { v: 1, op, key, value: text, caller, job: jobId, attempt, call: 0 };
}

async function askPatiently(
  socket: KvSocket,
  body: KvRequest,
  { signal, deadlineMs }: SalContext,
): Promise<JsonValue> {
  const untilMs = Math.min(performance.now() + PATIENCE_MS, deadlineMs ?? Number.POSITIVE_INFINITY);
  for (;;) {
    try {
      return await ask(socket, body, signal);
    } catch (error) {
      const again = error instanceof HeroError && error.code === 'unreachable';
      if (signal.aborted) throw signal.reason;
      if (!again || performance.now() + AGAIN_MS > untilMs) throw error;
      await delay(AGAIN_MS);
    }
  }
}

async function ask(socket: KvSocket, body: KvRequest, signal: AbortSignal): Promise<JsonValue> {
  const reply = KvReply.safeParse(parseReply(await post(socket, JSON.stringify(body), signal)));
  if (!reply.success) throw new HeroError('internal', 'the kv socket gave an odd answer');
  if ('ok' in reply.data) return parseStrict(reply.data.ok, 'internal');
  const { code, message } = reply.data.error;
  throw new HeroError(Object.hasOwn(ERROR_CODES, code) ? (code as ErrorCode) : 'internal', message);
}

function parseReply(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

function post({ path, token }: KvSocket, body: string, signal: AbortSignal): Promise<string> {
  return new Promise((resolve, reject) => {
    const fail = (cause: unknown): void => {
      reject(new HeroError('unreachable', `nobody answers on the kv socket ${path}`, { cause }));
    };
    const headers = {
      authorization: `Bearer ${token}`,
      'content-type': 'application/json',
      'content-length': Buffer.byteLength(body),
    };
    const request = httpRequest(
      { socketPath: path, path: '/kv', method: 'POST', headers, signal },
      (response) => {
        const chunks: Buffer[] = [];
        let bytes = 0;
        response.on('data', (chunk: Buffer) => {
          chunks.push(chunk);
          bytes += chunk.length;
          if (bytes > REPLY_BYTES_MAX) response.destroy(new Error('the answer is too large'));
        });
        response.on('error', fail);
        response.on('end', () => resolve(Buffer.concat(chunks).toString('utf8')));
      },
    );
    request.on('error', fail);
    request.end(body);
  });
}
