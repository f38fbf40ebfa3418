/**
 * Blobs: large values, modules, images, files, by the SHA-256 of their bytes, in `HB_BLOBS_<ctx>`.
 *
 * One message for each part under a subject of its own, so that a blob can be read with direct gets, which
 * need no right to make a consumer, and one that names size and parts, written last. A blob is written
 * before the entry that names it; writing it again changes nothing; every read is verified.
 */
import { createHash } from 'node:crypto';
import type { NatsConnection } from '@nats-io/transport-node';
import { type BlobRef, INLINE_VALUE_BYTES_MAX, Sha256, VALUE_BYTES_MAX } from '../schemas/blob.ts';
import { HeroError } from '../schemas/errors.ts';
import type { ContextName } from '../schemas/ids.ts';
import type { Blobs } from './bus.ts';
import { publishAcked, readLast } from './jetstream.ts';
import { streams } from './subjects.ts';

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
  const read = async (context: ContextName, digest: string, { size }: Summary) => {
    const parts: Uint8Array[] = [];
    await forEachPart(Math.ceil(size / PART_BYTES), async (part) => {
      const name = subject(context, digest, String(part));
      const stored = await readLast(nats, streams.blobs(context), name, TIMEOUT_MS);
      parts[part] = stored?.data ?? new Uint8Array(0);
    });
    const bytes = Buffer.concat(parts);
    return sha256(bytes) === digest ? bytes : undefined;
  };
  return {
    put: async (context, bytes) => {
      if (bytes.length > BLOB_BYTES_MAX) {
        throw new HeroError('too_large', `a blob of ${bytes.length} bytes is too large`);
      }
      const digest = sha256(bytes);
      const known = await readSummary(context, digest);
      // What is there is looked at: a blob that was damaged is mended by who has its bytes.
      if (known?.size === bytes.length && (await read(context, digest, known))) return digest;
      await forEachPart(Math.ceil(bytes.length / PART_BYTES), async (part) => {
        const data = bytes.subarray(part * PART_BYTES, (part + 1) * PART_BYTES);
        const name = subject(context, digest, String(part));
        await publishAcked(nats, name, data, { timeoutMs: TIMEOUT_MS });
      });
      const parts = Math.ceil(bytes.length / PART_BYTES);
      const summary: Summary = { v: 1, size: bytes.length, parts };
      const data = Buffer.from(JSON.stringify(summary));
      const name = subject(context, digest, 'all');
      await publishAcked(nats, name, data, { timeoutMs: TIMEOUT_MS });
      return digest;
    },
    get: async (context, digest, size) => {
      if (!Sha256.safeParse(digest).success) {
        throw new HeroError('bad_request', 'no digest of a blob');
      }
      const summary = await readSummary(context, digest);
      if (summary === undefined || summary.size > BLOB_BYTES_MAX) {
        throw new HeroError('not_found', `there is no blob ${digest} in ${context}`);
      }
      const bytes =
        size === undefined || summary.size === size
          ? await read(context, digest, summary)
          : undefined;
      if (bytes !== undefined) return bytes;
      throw new HeroError('unverifiable', `the blob ${digest} is not what its digest says`);
    },
  };
}

/** How a value stands in a log entry: as it is, or as the blob it was stored as before. */
export async function storeValue(
  blobs: Blobs,
  context: ContextName,
  text: string,
): Promise<{ value: string } | { value: null; value_ref: BlobRef }> {
  const size = Buffer.byteLength(text);
  if (size <= INLINE_VALUE_BYTES_MAX) return { value: text };
  if (size > VALUE_BYTES_MAX) {
    throw new HeroError(
      'too_large',
      `the value has ${size} bytes, at most ${VALUE_BYTES_MAX} are kept`,
    );
  }
  return { value: null, value_ref: { blob: await blobs.put(context, Buffer.from(text)), size } };
}

/** The value behind a reference. Throws what `get` throws, in words about the value. */
export async function fetchValue(
  blobs: Blobs,
  context: ContextName,
  { blob, size }: BlobRef,
): Promise<string> {
  try {
    return new TextDecoder().decode(await blobs.get(context, blob, size));
  } catch (error) {
    throw gone(error, `the value of ${size} bytes`);
  }
}

/** A blob that is away or altered, said by what it was; other failures as they are. */
export function gone(error: unknown, what: string): unknown {
  if (!(error instanceof HeroError)) return error;
  if (error.code !== 'not_found' && error.code !== 'unverifiable') return error;
  const how = error.code === 'not_found' ? 'is gone' : 'was altered';
  return new HeroError(error.code, `${what} ${how}: ${error.message}`);
}

function sha256(bytes: Uint8Array): string {
  return createHash('sha256').update(bytes).digest('hex');
}

async function forEachPart(count: number, act: (part: number) => Promise<void>): Promise<void> {
  let next = 0;
  const worker = async () => {
    while (next < count) await act(next++);
  };
  await Promise.all(Array.from({ length: Math.min(count, PARTS_AT_ONCE) }, worker));
}
