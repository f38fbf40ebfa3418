/**
 * Changing files of the tree, and undoing it.
 *
 *   C1 a job's change is done once, whichever attempt does it: its record is written before the deed;
 *   C2 what somebody else changed after a job is neither overwritten by its later attempts nor by its undo;
 *   C3 a file is replaced by rename: nobody reads half of it, and after a crash it is the one or the other.
 */
import { constants } from 'node:fs';
import { type FileHandle, mkdir, open, rename, rm, rmdir } from 'node:fs/promises';
import { HeroError } from '../schemas/errors.ts';
import type { JsonValue } from '../schemas/json.ts';
import type { SalContext } from './driver.ts';
import { contentIs, type Encoding, isSame, standing, statOf, withFile } from './file-look.ts';
import { errorCode, inside, type Place } from './file-tree.ts';
import type { UndoRecords } from './file-undo.ts';

type Content = { content: string; encoding: Encoding };

export const bytesOf = ({ content, encoding }: Content): Buffer => Buffer.from(content, encoding);

export async function write(
  place: Place,
  args: Content & { mode?: number | undefined },
  records: UndoRecords,
  { jobId, attempt }: SalContext,
): Promise<JsonValue> {
  const bytes = bytesOf(args);
  const before = await standing(place);
  if (before.kind === 'directory')
    throw new HeroError('job_failed', `${place.shown} is a directory`);
  const mode = args.mode ?? (before.kind === 'file' ? before.mode : 0o644);
  if (before.kind === 'file' && before.mode === mode && contentIs(before, bytes)) {
    return { changed: false, bytes: bytes.length };
  }
  const record = await records.keep(jobId, { v: 1, path: place.shown, before, offset: 0 });
  // An earlier attempt wrote, and somebody else after it: theirs is the later one.
  if (!isSame(before, record.before)) return { changed: false, bytes: bytes.length };
  await replace(place, bytes, mode, `.${jobId}.${attempt}.tmp`);
  return { changed: true, bytes: bytes.length };
}

/** Puts a whole new file in a place, durable and at once. */
async function replace(
  { directory, path }: Place,
  bytes: Buffer,
  mode: number,
  draft: string,
): Promise<void> {
  const { O_WRONLY, O_CREAT, O_TRUNC } = constants;
  const draftPath = inside(directory, draft);
  const file = await open(draftPath, O_WRONLY | O_CREAT | O_TRUNC | constants.O_NOFOLLOW, mode);
  try {
    await file.writeFile(bytes);
    await file.chmod(mode);
    await file.sync();
  } finally {
    await file.close();
  }
  await rename(draftPath, path);
  await directory.sync();
}

/** Undoes a write or a delete. `made` is what the job left there; undefined: nothing. */
export async function restore(
  place: Place,
  made: Buffer | undefined,
  records: UndoRecords,
  { jobId, attempt }: SalContext,
): Promise<void> {
  const record = await records.find(jobId);
  if (record === undefined) return;
  const { before } = record;
  const now = await standing(place);
  const isMade =
    made === undefined ? now.kind === 'absent' : now.kind === 'file' && contentIs(now, made);
  if (isMade) {
    if (before.kind === 'large') {
      throw new HeroError('job_failed', `${place.shown} was too large to be kept for an undo`);
    }
    if (before.kind === 'absent') await rm(place.path);
    if (before.kind === 'directory') await mkdir(place.path);
    if (before.kind === 'file') {
      const bytes = Buffer.from(before.content, 'base64');
      await replace(place, bytes, before.mode, `.${jobId}.${attempt}.undo`);
    }
  } else if (!isSame(now, before)) {
    throw drifted(place);
  }
  await records.drop(jobId);
}

const drifted = ({ shown }: Place): HeroError =>
  new HeroError('job_failed', `${shown} was changed since the job; it is left as it is`);

/** The record says where the job's part begins, so a repeated attempt finds it, whole or torn. */
export async function append(
  place: Place,
  args: Content,
  records: UndoRecords,
  { jobId }: SalContext,
): Promise<JsonValue> {
  const bytes = bytesOf(args);
  const stats = await statOf(place);
  if (stats !== undefined && !stats.isFile()) {
    throw new HeroError('job_failed', `${place.shown} is not a file`);
  }
  const size = Number(stats?.size ?? 0);
  const record = await records.keep(jobId, {
    v: 1,
    path: place.shown,
    before: stats === undefined ? { kind: 'absent' } : { kind: 'large' },
    offset: size,
  });
  const { O_RDWR, O_CREAT } = constants;
  return withFile(place, O_RDWR | O_CREAT, async (file) => {
    const there = await readFrom(file, record.offset, bytes.length);
    if (there.equals(bytes)) return { changed: false, bytes: bytes.length };
    const isTorn =
      size <= record.offset + there.length && bytes.subarray(0, there.length).equals(there);
    if (!isTorn) {
      const message = `${place.shown}: others wrote where an earlier attempt was about to`;
      throw new HeroError('outcome_unknown', message);
    }
    await file.write(
      bytes,
      there.length,
      bytes.length - there.length,
      record.offset + there.length,
    );
    await file.sync();
    return { changed: true, bytes: bytes.length };
  });
}

async function readFrom(file: FileHandle, offset: number, length: number): Promise<Buffer> {
  const buffer = Buffer.alloc(length);
  const { bytesRead } = await file.read(buffer, 0, length, offset);
  return buffer.subarray(0, bytesRead);
}

export async function cutOff(
  place: Place,
  args: Content,
  records: UndoRecords,
  { jobId }: SalContext,
): Promise<void> {
  const record = await records.find(jobId);
  if (record === undefined) return;
  const bytes = bytesOf(args);
  await withFile(place, constants.O_RDWR, async (file) => {
    const { size } = await file.stat();
    const isLast = size === record.offset + bytes.length;
    if (size > record.offset) {
      if (!isLast || !(await readFrom(file, record.offset, bytes.length)).equals(bytes)) {
        throw drifted(place);
      }
      await file.truncate(record.offset);
    }
  });
  if (record.before.kind === 'absent') await rm(place.path);
  await records.drop(jobId);
}

export async function remove(
  place: Place,
  records: UndoRecords,
  { jobId }: SalContext,
): Promise<JsonValue> {
  if (place.name === '.') throw new HeroError('not_allowed', 'the root itself cannot be deleted');
  const before = await standing(place);
  if (before.kind === 'absent') return { changed: false };
  const record = await records.keep(jobId, { v: 1, path: place.shown, before, offset: 0 });
  // An earlier attempt deleted it, and somebody else has made another since.
  if (!isSame(before, record.before)) return { changed: false };
  if (before.kind === 'directory') await rmdir(place.path);
  else await rm(place.path);
  return { changed: true };
}

export async function makeDirectory(
  place: Place,
  records: UndoRecords,
  { jobId }: SalContext,
): Promise<JsonValue> {
  const before = await standing(place);
  if (before.kind === 'directory') return { changed: false };
  if (before.kind !== 'absent') throw new HeroError('job_failed', `${place.shown} is a file`);
  await records.keep(jobId, { v: 1, path: place.shown, before, offset: 0 });
  await mkdir(place.path);
  return { changed: true };
}

export async function removeMade(
  place: Place,
  records: UndoRecords,
  { jobId }: SalContext,
): Promise<void> {
  const record = await records.find(jobId);
  if (record === undefined) return;
  const now = await standing(place);
  if (now.kind === 'directory') {
    await rmdir(place.path).catch((error: unknown) => {
      throw errorCode(error) === 'ENOTEMPTY' ? drifted(place) : error;
    });
  } else if (now.kind !== 'absent') {
    throw drifted(place);
  }
  await records.drop(jobId);
}
