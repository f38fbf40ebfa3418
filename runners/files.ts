/**
 * Files sent along with a deployment, on their way from the bus to a job's folder.
 *
 * A blob is verified when it is read (bus/blobs.ts). The last ones are kept in memory, since the jobs of a
 * flow tend to ask for the same; two jobs that ask at once share one read.
 */
import { setTimeout as delay } from 'node:timers/promises';
import { backoffMs } from '../actors/supervise.ts';
import { gone } from '../bus/blobs.ts';
import type { Blobs } from '../bus/bus.ts';
import type { FileToPlace } from '../sal/job-folder.ts';
import type { PlacedFile } from '../schemas/blob.ts';
import { HeroError } from '../schemas/errors.ts';
import type { ContextName } from '../schemas/ids.ts';

const KEPT_BYTES_MAX = 64 * 1024 * 1024;
const RETRY = { firstMs: 100, maxMs: 5000 };

export class SentFiles {
  readonly #blobs: Blobs;
  /** By context and digest, the least used first. */
  readonly #kept = new Map<string, { size: number; bytes: Promise<Uint8Array> }>();
  #bytes = 0;

  constructor(blobs: Blobs) {
    this.#blobs = blobs;
  }

  /** The bytes of these files; waits for a bus that is away until the job is aborted. */
  async get(
    context: ContextName,
    files: readonly PlacedFile[],
    signal: AbortSignal,
  ): Promise<FileToPlace[]> {
    const found: FileToPlace[] = [];
    for (const file of files)
      found.push({ path: file.path, bytes: await this.#get(context, file, signal) });
    return found;
  }

  async #get(context: ContextName, file: PlacedFile, signal: AbortSignal): Promise<Uint8Array> {
    for (let tries = 0; ; tries++) {
      signal.throwIfAborted();
      try {
        return await this.#read(context, file);
      } catch (error) {
        if (!(error instanceof HeroError) || error.code !== 'unreachable') {
          throw gone(error, `the file ${file.path}`);
        }
        await delay(backoffMs(tries, RETRY), undefined, { signal }).catch(() => undefined);
      }
    }
  }

  #read(context: ContextName, { sha256, size }: PlacedFile): Promise<Uint8Array> {
    const key = `${context} ${sha256}`;
    const kept = this.#kept.get(key);
    if (kept !== undefined && kept.size === size) {
      this.#kept.delete(key);
      this.#kept.set(key, kept);
      return kept.bytes;
    }
    const bytes = this.#blobs.get(context, sha256, size);
    this.#keep(key, size, bytes);
    return bytes;
  }

  #keep(key: string, size: number, bytes: Promise<Uint8Array>): void {
    this.#drop(key);
    this.#kept.set(key, { size, bytes });
    this.#bytes += size;
    bytes.catch(() => {
      if (this.#kept.get(key)?.bytes === bytes) this.#drop(key);
    });
    for (const oldest of this.#kept.keys()) {
      if (this.#bytes <= KEPT_BYTES_MAX) break;
      this.#drop(oldest);
    }
  }

  #drop(key: string): void {
    this.#bytes -= this.#kept.get(key)?.size ?? 0;
    this.#kept.delete(key);
  }
}
