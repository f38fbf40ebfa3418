/**
 * `deploy --file name=path`: files sent along with a deployment.
 *
 * They are read before anything is published, signed by digest and size, and stored as blobs of the context
 * before the deployment that names them.
 */
import { createHash } from 'node:crypto';
import { basename } from 'node:path';
import { FILE_BYTES_MAX, FILES_MAX, folderPathFault, type SentFile } from '../../schemas/blob.ts';
import { usage } from './failure.ts';
import { readInput } from './files.ts';
import { told } from './narrate.ts';
import { say } from './output.ts';
import type { Session } from './session.ts';

export type FileToSend = SentFile & { name: string; bytes: Uint8Array };

/** `name=path`, or a path alone: its last part is the name. */
export async function readFilesToSend(options: readonly string[]): Promise<FileToSend[]> {
  if (options.length > FILES_MAX) throw usage(`at most ${FILES_MAX} files are sent along`);
  const files = new Map<string, FileToSend>();
  for (const option of options) {
    const at = option.indexOf('=');
    const path = option.slice(at + 1);
    const name = at < 0 ? basename(path) : option.slice(0, at);
    const fault = folderPathFault(name);
    if (fault !== undefined || path === '') {
      throw usage(
        `--file ${option}: ${path === '' ? 'no path is named' : `"${name}" is no name: ${fault}`}`,
        'Write it as --file name=path.',
      );
    }
    if (files.has(name)) throw usage(`--file: the name "${name}" stands twice`);
    if (path === '-') throw usage('--file takes the path of a file, not standard input');
    const bytes = await readInput(path, 'file');
    if (bytes.length > FILE_BYTES_MAX) {
      throw usage(`${path} has ${bytes.length} bytes; at most ${FILE_BYTES_MAX} are sent along`);
    }
    const sha256 = createHash('sha256').update(bytes).digest('hex');
    files.set(name, { name, bytes, sha256, size: bytes.length });
  }
  return [...files.values()];
}

/** What is signed of them. */
export function signedFiles(files: readonly FileToSend[]): Record<string, SentFile> {
  return Object.fromEntries(files.map(({ name, sha256, size }) => [name, { sha256, size }]));
}

export async function sendFiles(
  { bus }: Session,
  context: string,
  files: readonly FileToSend[],
): Promise<void> {
  for (const { name, bytes } of files) {
    await bus.blobs.put(context, bytes);
    say(told('sent', `${name}, ${bytes.length} bytes`));
  }
}
