/**
 * The file SAL: small files below one root directory of the node.
 *
 * Here is which operations there are. What they do to files is `file-change.ts` and `file-look.ts`, staying
 * below the root is `file-tree.ts`, remembering what was there before is `file-undo.ts`.
 */
import { lstat } from 'node:fs/promises';
import { z } from 'zod';
import { ensureError, HeroError } from '../schemas/errors.ts';
import { type Family, operation } from './driver.ts';
import {
  append,
  bytesOf,
  cutOff,
  makeDirectory,
  remove,
  removeMade,
  restore,
  write,
} from './file-change.ts';
import { list, read, stat } from './file-look.ts';
import { atPlace, errorCode, type Place } from './file-tree.ts';
import { UndoRecords } from './file-undo.ts';

export type FileOptions = {
  root: string;
  /** Where undo records are kept: outside of the root. */
  undo: string;
};

const Path = z.object({ path: z.string().min(1).max(4096) });
const Content = Path.extend({
  content: z.string(),
  encoding: z.enum(['utf8', 'base64']).default('utf8'),
});
const WriteArgs = Content.extend({ mode: z.int().min(0).max(0o777).optional() });
const ReadArgs = Path.extend({ encoding: z.enum(['utf8', 'base64']).default('utf8') });

export function fileFamily({ root, undo }: FileOptions): Family {
  const records = new UndoRecords(undo);
  void records.prune();
  const at = <T>(path: string, work: (place: Place) => Promise<T>): Promise<T> =>
    atPlace(root, path, work).catch((error: unknown) => {
      throw named(error, path);
    });
  const needs = 'file';
  return {
    name: 'file',
    fingerprint: async () => {
      const found = await lstat(root).then(
        (stats) => stats.isDirectory(),
        () => false,
      );
      return { found, detail: root };
    },
    operations: [
      operation({
        name: 'file.read',
        needs,
        args: ReadArgs,
        run: (a) => at(a.path, (p) => read(p, a.encoding)),
      }),
      operation({ name: 'file.stat', needs, args: Path, run: ({ path }) => at(path, stat) }),
      operation({ name: 'file.list', needs, args: Path, run: ({ path }) => at(path, list) }),
      operation({
        name: 'file.write',
        needs,
        args: WriteArgs,
        run: (args, context) => at(args.path, (place) => write(place, args, records, context)),
        inverse: (args, context) =>
          at(args.path, (place) => restore(place, bytesOf(args), records, context)),
      }),
      operation({
        name: 'file.append',
        needs,
        args: Content,
        run: (args, context) => at(args.path, (place) => append(place, args, records, context)),
        inverse: (args, context) => at(args.path, (place) => cutOff(place, args, records, context)),
      }),
      operation({
        name: 'file.delete',
        needs,
        args: Path,
        run: ({ path }, context) => at(path, (place) => remove(place, records, context)),
        inverse: ({ path }, context) =>
          at(path, (place) => restore(place, undefined, records, context)),
      }),
      operation({
        name: 'file.mkdir',
        needs,
        args: Path,
        run: ({ path }, context) => at(path, (place) => makeDirectory(place, records, context)),
        inverse: ({ path }, context) => at(path, (place) => removeMade(place, records, context)),
      }),
    ],
  };
}

/** System errors with the path the user gave, not the one through `/proc`. */
function named(error: unknown, path: string): HeroError {
  if (error instanceof HeroError) return error;
  const code = errorCode(error);
  const why = code === 'ENOENT' ? 'does not exist' : (code ?? ensureError(error).message);
  return new HeroError('job_failed', `${path}: ${why}`, { cause: error });
}
