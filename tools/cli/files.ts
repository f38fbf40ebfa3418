/** Files and standard input that the command line names; `-` is standard input. */
import { readFile } from 'node:fs/promises';
import { buffer } from 'node:stream/consumers';
import { ensureError } from '../../schemas/errors.ts';
import { usage } from './failure.ts';

export async function readInput(path: string, what: string): Promise<Uint8Array> {
  try {
    return path === '-' ? await buffer(process.stdin) : await readFile(path);
  } catch (cause) {
    const reason = ensureError(cause)
      .message.replace(/^E[A-Z]+: /, '')
      .replace(/, \w+( '.*')?$/, '');
    throw usage(`the ${what} ${path} cannot be read: ${reason}`);
  }
}

export async function readText(path: string, what: string): Promise<string> {
  const bytes = await readInput(path, what);
  try {
    return new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(bytes);
  } catch {
    throw usage(`${path === '-' ? 'standard input' : path} is no ${what}: it is not UTF-8`);
  }
}

export async function readScript(path: string): Promise<string> {
  const text = await readText(path, 'script');
  if (text.trim() !== '') return text;
  throw usage(`${path === '-' ? 'standard input' : path} is no script: it is empty`);
}
