/** Looking at files of the tree: what stands at a place, and the operations that only read. */
import { constants, type Stats } from 'node:fs';
import { type FileHandle, lstat, open, readdir } from 'node:fs/promises';
import { HeroError } from '../schemas/errors.ts';
import type { JsonValue } from '../schemas/json.ts';
import { errorCode, type Place } from './file-tree.ts';
import type { UndoRecord } from './file-undo.ts';

export type Encoding = 'utf8' | 'base64';

/** A value is at most 64 KiB; escapes make text longer. */
/** A script holds strings up to this. */
const READ_BYTES_MAX = 4 * 1024 * 1024;
const KEPT_BYTES_MAX = 1024 * 1024;
const LIST_MAX = 1000;

/** The file that stands at a place; undefined when nothing does. */
export async function standing(place: Place): Promise<UndoRecord['before']> {
  const stats = await statOf(place);
  if (stats === undefined) return { kind: 'absent' };
  if (stats.isDirectory()) return { kind: 'directory' };
  if (!stats.isFile()) throw new HeroError('job_failed', `${place.shown} is not a file`);
  if (stats.size > KEPT_BYTES_MAX) return { kind: 'large' };
  const content = await readAll(place);
  return { kind: 'file', content: content.toString('base64'), mode: stats.mode & 0o777 };
}

export async function statOf({ path }: Place): Promise<Stats | undefined> {
  try {
    return await lstat(path);
  } catch (error) {
    if (errorCode(error) === 'ENOENT') return undefined;
    throw error;
  }
}

export async function withFile<T>(
  { path }: Place,
  flags: number,
  work: (file: FileHandle) => Promise<T>,
): Promise<T> {
  const file = await open(path, flags | constants.O_NOFOLLOW | constants.O_NONBLOCK);
  try {
    return await work(file);
  } finally {
    await file.close();
  }
}

const readAll = (place: Place): Promise<Buffer> =>
  withFile(place, constants.O_RDONLY, (file) => file.readFile());

export const contentIs = ({ content }: { content: string }, bytes: Buffer): boolean =>
  Buffer.from(content, 'base64').equals(bytes);

export const isSame = (a: UndoRecord['before'], b: UndoRecord['before']): boolean =>
  a.kind === b.kind && (a.kind !== 'file' || b.kind !== 'file' || a.content === b.content);

export async function read(place: Place, encoding: Encoding): Promise<JsonValue> {
  const stats = await statOf(place);
  if (stats !== undefined && !stats.isFile()) {
    throw new HeroError('job_failed', `${place.shown} is not a file`);
  }
  if (stats !== undefined && stats.size > READ_BYTES_MAX) {
    const message = `${place.shown} has ${stats.size} bytes; at most ${READ_BYTES_MAX} can be read`;
    throw new HeroError('too_large', message);
  }
  const bytes = await readAll(place);
  if (encoding === 'base64') return bytes.toString('base64');
  try {
    return new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(bytes);
  } catch {
    throw new HeroError(
      'job_failed',
      `${place.shown} is not UTF-8; read it with encoding "base64"`,
    );
  }
}

export async function stat(place: Place): Promise<JsonValue> {
  const stats = await statOf(place);
  if (stats === undefined) return null;
  return {
    type: typeOf(stats),
    size: stats.size,
    mode: stats.mode & 0o777,
    modified_ms: Math.round(stats.mtimeMs),
  };
}

type Typed = { isFile(): boolean; isDirectory(): boolean; isSymbolicLink(): boolean };

function typeOf(entry: Typed): string {
  if (entry.isFile()) return 'file';
  if (entry.isDirectory()) return 'directory';
  return entry.isSymbolicLink() ? 'link' : 'other';
}

export async function list({ path, shown }: Place): Promise<JsonValue> {
  const entries = await readdir(path, { withFileTypes: true });
  if (entries.length > LIST_MAX) {
    throw new HeroError(
      'too_large',
      `${shown} has ${entries.length} entries, more than ${LIST_MAX}`,
    );
  }
  return entries
    .map((entry) => ({ name: entry.name, type: typeOf(entry) }))
    .toSorted((a, b) => (a.name < b.name ? -1 : 1));
}
