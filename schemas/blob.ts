/**
 * Blobs as other records name them: bytes by their SHA-256, stored in the context before what names them.
 *
 * Also the names of files in a job's folder: whoever plans a job and whoever places its files judge a path
 * by the same rule, because between them stands only the bus.
 */
import { z } from 'zod';

export const Sha256 = z.string().regex(/^[0-9a-f]{64}$/, 'a SHA-256 is 64 lower-case hex digits');

/** Of a job or a flow; larger ones are blobs. In bytes of typed JSON. */
export const INLINE_VALUE_BYTES_MAX = 64 * 1024;
/** Larger values fail as `too_large`. */
export const VALUE_BYTES_MAX = 16 * 1024 * 1024;
/** A file sent along with a deployment. It passes through memory on its way. */
export const FILE_BYTES_MAX = 64 * 1024 * 1024;
export const FILES_MAX = 256;

/** Stands for a value that is too large for the log: the SHA-256 and the size of its typed JSON. */
export const BlobRef = z.object({ blob: Sha256, size: z.int().min(0).max(VALUE_BYTES_MAX) });
export type BlobRef = z.infer<typeof BlobRef>;

/** A file sent along with a deployment. */
export const SentFile = z.object({ sha256: Sha256, size: z.int().min(0).max(FILE_BYTES_MAX) });
export type SentFile = z.infer<typeof SentFile>;

const PATH_BYTES_MAX = 1024;
const PART_BYTES_MAX = 255;
const bytesOf = (text: string): number => new TextEncoder().encode(text).length;

/** Why a path may not stand in a job's folder; undefined when it may. */
export function folderPathFault(path: string): string | undefined {
  if (path === '') return 'it is empty';
  // Lone surrogates: two such names would become one on a disk.
  if (!path.isWellFormed()) return 'it is no Unicode text';
  if (/\p{Cc}/u.test(path)) return 'it holds a control character';
  if (path.startsWith('/')) return 'it is absolute; write it relative to the folder';
  if (bytesOf(path) > PATH_BYTES_MAX) return `it has more than ${PATH_BYTES_MAX} bytes`;
  for (const part of path.split('/')) {
    if (part === '') return 'it has an empty part';
    if (part === '.' || part === '..') return `it has a part \`${part}\``;
    if (bytesOf(part) > PART_BYTES_MAX) return `a part of it has more than ${PART_BYTES_MAX} bytes`;
  }
  return undefined;
}

/** Why these paths cannot stand in one folder together; undefined when they can. */
export function foldersFault(paths: readonly string[]): string | undefined {
  const files = new Set<string>();
  for (const path of paths) {
    if (files.has(path)) return `\`${path}\` stands twice`;
    files.add(path);
  }
  for (const path of paths) {
    const parts = path.split('/');
    for (let count = 1; count < parts.length; count++) {
      const parent = parts.slice(0, count).join('/');
      if (files.has(parent)) return `\`${parent}\` is a file, and a folder of \`${path}\``;
    }
  }
  return undefined;
}

export const FolderPath = z.string().superRefine((path, context) => {
  const fault = folderPathFault(path);
  if (fault !== undefined) context.addIssue({ code: 'custom', message: fault });
});

/** A file in a job's own folder. */
export const PlacedFile = SentFile.extend({ path: FolderPath });
export type PlacedFile = z.infer<typeof PlacedFile>;

export const PlacedFiles = z
  .array(PlacedFile)
  .max(FILES_MAX)
  .superRefine((files, context) => {
    const fault = foldersFault(files.map(({ path }) => path));
    if (fault !== undefined) context.addIssue({ code: 'custom', message: fault });
  });
