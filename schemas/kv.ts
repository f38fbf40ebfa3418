/** Requests on a node's kv socket: `sal/kv.ts` asks, `supervisors/kv-socket.ts` answers. */
import { z } from 'zod';
import { TypedJson } from './job.ts';

/** The file in a node's data folder, and what shows that one may use it. */
export const KvSocket = z.object({ path: z.string(), token: z.string() });
export type KvSocket = z.infer<typeof KvSocket>;

/** `key` is the prefix for `list`. `call` tells several writes of one job apart. */
export const KvRequest = z.object({
  v: z.literal(1),
  op: z.enum(['get', 'set', 'del', 'list']),
  key: z.string().max(1024),
  value: TypedJson.nullable().default(null),
  caller: z.string(),
  /** `<flow>.<n>`: a write of a job is done once, whichever attempt asks. */
  job: z.string(),
  attempt: z.int().min(1),
  call: z.int().min(0).default(0),
});
export type KvRequest = z.infer<typeof KvRequest>;

export const KvReply = z.union([
  z.object({ ok: TypedJson }),
  z.object({ error: z.object({ code: z.string(), message: z.string() }) }),
]);
export type KvReply = z.infer<typeof KvReply>;
