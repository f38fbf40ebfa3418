/**
 * What a job changed in the file tree, kept so that a repeated attempt sees what the first one did and an
 * inverse can restore what was.
 *
 * One record for each job, written before the change; the first attempt's stands. Records are dropped when
 * the job is undone, and after a day: no deployment lives longer.
 */
import { link, mkdir, readdir, readFile, rename, rm, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { z } from 'zod';
import { errorCode } from './file-tree.ts';

const KEEP_MS = 24 * 3600 * 1000;

export const UndoRecord = z.object({
  v: z.literal(1),
  path: z.string(),
  /** What stood there: nothing, a file, a directory, or a file too large to keep. */
  before: z.discriminatedUnion('kind', [
    z.object({ kind: z.literal('absent') }),
    z.object({ kind: z.literal('file'), content: z.base64(), mode: z.int() }),
    z.object({ kind: z.literal('directory') }),
    z.object({ kind: z.literal('large') }),
  ]),
  /** For an append: where it begins. */
  offset: z.int().default(0),
});
export type UndoRecord = z.infer<typeof UndoRecord>;

export class UndoRecords {
  readonly #directory: string;

  constructor(directory: string) {
    this.#directory = directory;
  }

  /** The record of the job: this one, or the one an earlier attempt wrote. */
  async keep(jobId: string, record: UndoRecord): Promise<UndoRecord> {
    await mkdir(this.#directory, { recursive: true, mode: 0o700 });
    const file = this.#file(jobId);
    const draft = `${file}.${process.pid}.draft`;
    await writeFile(draft, JSON.stringify(record), { mode: 0o600, flush: true });
    try {
      await link(draft, file);
      return record;
    } catch (error) {
      if (errorCode(error) !== 'EEXIST') throw error;
      return (await this.find(jobId)) ?? (await this.#replace(draft, file, record));
    } finally {
      await rm(draft, { force: true });
    }
  }

  async find(jobId: string): Promise<UndoRecord | undefined> {
    try {
      return UndoRecord.parse(JSON.parse(await readFile(this.#file(jobId), 'utf8')));
    } catch {
      return undefined;
    }
  }

  async drop(jobId: string): Promise<void> {
    await rm(this.#file(jobId), { force: true });
  }

  /** Drops records nobody can ask for any more. */
  async prune(nowMs: number = Date.now()): Promise<void> {
    const names = await readdir(this.#directory).catch(() => []);
    for (const name of names) {
      const file = join(this.#directory, name);
      const { mtimeMs } = await stat(file).catch(() => ({ mtimeMs: nowMs }));
      if (nowMs - mtimeMs > KEEP_MS) await rm(file, { force: true }).catch(() => undefined);
    }
  }

  /** An unreadable record (a crash of the machine while it was written) is none. */
  async #replace(draft: string, file: string, record: UndoRecord): Promise<UndoRecord> {
    await rename(draft, file);
    return record;
  }

  #file(jobId: string): string {
    return join(this.#directory, `${jobId}.json`);
  }
}
