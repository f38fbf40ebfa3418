/**
 * Blobs: large values, modules, images, files, by the SHA-256 of their bytes, in `HB_BLOBS_<ctx>`.
 *
 * One message for each part under a subject of its own, so that a blob can be read with direct gets, which
 * need no right to make a consumer, and one that names size and parts, written last. A blob is written
 * before the entry that names it; writing it again changes nothing; every read is verified.
 */
import { createHash } from 'node:crypto';
import type { NatsConnection } from '@nats-io/transport-node';
import { HeroError } from '../schemas/errors.ts';
import type { ContextName } from '../schemas/ids.ts';
import { publishAcked, readLast } from './jetstream.ts';
import { streams } from './subjects.ts';

export type Blobs = {
  /** Stores the bytes and gives their digest, 64 hex digits. */
  put(context: ContextName, bytes: Uint8Array): Promise<string>;
  /** The bytes of a digest; throws not_found, or unverifiable when they are not what the digest says. */
  get(context: ContextName, digest: string): Promise<Uint8Array>;
};

const PART_BYTES = 512 * 1024;
/** A bound on what one value may take of memory; larger files travel as several. */
export const BLOB_BYTES_MAX = 256 * 1024 * 1024;
const PARTS_AT_ONCE = 4;
const TIMEOUT_MS = 10_000;

type Summary = { v: 1; size: number; parts: number };

export function makeBlobs(nats: NatsConnection): Blobs {
  const subject = (context: ContextName, digest: string, part: string) =>
    `hb.blobs.${context}.${digest}.${part}`;
  const readSummary = async (context: ContextName, digest: string) => {
    const stored = await readLast(
      nats,
      streams.blobs(context),
      subject(context, digest, 'all'),
      TIMEOUT_MS,
    );
    return stored && (JSON.parse(new TextDecoder().decode(stored.data)) as Summary);
  };
  return {
    put: async (context, bytes) => {
      if (bytes.length > BLOB_BYTES_MAX) {
        throw new HeroError('too_large', `a blob of ${bytes.length} bytes is too large`);
      }
      const digest = createHash('sha256').update(bytes).digest('hex');
      if ((await readSummary(context, digest)) !== undefined) return digest;
      const parts = Math.ceil(bytes.length / PART_BYTES);
      await forEachPart(parts, async (part) => {
        const data = bytes.subarray(part * PART_BYTES, (part + 1) * PART_BYTES);
        const name = subject(context, digest, String(part));
        await publishAcked(nats, name, data, { timeoutMs: TIMEOUT_MS });
      });
      const summary: Summary = { v: 1, size: bytes.length, parts };
      const data = Buffer.from(JSON.stringify(summary));
      const name = subject(context, digest, 'all');
      await publishAcked(nats, name, data, { timeoutMs: TIMEOUT_MS });
      return digest;
    },
    get: async (context, digest) => {
      if (!/^[0-9a-f]{64}$/.test(digest)) throw new HeroError('bad_request', 'no digest of a blob');
      const summary = await readSummary(context, digest);
      if (summary === undefined || summary.size > BLOB_BYTES_MAX) {
        throw new HeroError('not_found', `there is no blob ${digest} in ${context}`);
      }
      const parts: Uint8Array[] = [];
      await forEachPart(Math.ceil(summary.size / PART_BYTES), async (part) => {
        const name = subject(context, digest, String(part));
        const stored = await readLast(nats, streams.blobs(context), name, TIMEOUT_MS);
        parts[part] = stored?.data ?? new Uint8Array(0);
      });
      const bytes = Buffer.concat(parts);
      if (createHash('sha256').update(bytes).digest('hex') !== digest) {
        throw new HeroError('unverifiable', `the blob ${digest} is not what its digest says`);
      }
      return bytes;
    },
  };
}

async function forEachPart(count: number, act: (part: number) => Promise<void>): Promise<void> {
  let next = 0;
  const worker = async () => {
    while (next < count) await act(next++);
  };
  await Promise.all(Array.from({ length: Math.min(count, PARTS_AT_ONCE) }, worker));
}
