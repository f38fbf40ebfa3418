/**
 * Writes archives in cpio's newc format, the one the kernel unpacks as its first root file system.
 *
 * Pure. The same entries give the same bytes, in whatever order they come: no times, no owners but root, the
 * folders a path needs made with it. What belongs into such an archive is efi/initramfs.ts.
 */
import { dirname } from 'node:path/posix';

export type CpioEntry = { path: string } & (
  | { kind: 'folder' }
  | { kind: 'file'; data: Uint8Array; executable?: boolean }
  | { kind: 'link'; target: string }
);

const MAGIC = '070701';
const TRAILER = 'TRAILER!!!';
const ALIGNMENT = 4;
const MODES = { folder: 0o040755, link: 0o120777, file: 0o100644, executable: 0o100755 };

export function cpio(entries: readonly CpioEntry[]): Buffer {
  const parts: Uint8Array[] = [];
  let inode = 0;
  for (const entry of withFolders(entries)) {
    parts.push(...member(++inode, entry.path, modeOf(entry), bodyOf(entry)));
  }
  parts.push(...member(0, TRAILER, 0, new Uint8Array()));
  return Buffer.concat(parts);
}

/** Sorted by path, so that a folder comes before what is in it. */
function withFolders(entries: readonly CpioEntry[]): CpioEntry[] {
  const all = new Map<string, CpioEntry>();
  for (const entry of entries) {
    const path = entry.path.replace(/^\/+/, '');
    for (let folder = dirname(path); folder !== '.'; folder = dirname(folder)) {
      if (!all.has(folder)) all.set(folder, { path: folder, kind: 'folder' });
    }
    all.set(path, { ...entry, path });
  }
  return [...all.values()].toSorted((a, b) => (a.path < b.path ? -1 : 1));
}

function modeOf(entry: CpioEntry): number {
  return MODES[entry.kind === 'file' && entry.executable === true ? 'executable' : entry.kind];
}

function bodyOf(entry: CpioEntry): Uint8Array {
  if (entry.kind === 'folder') return new Uint8Array();
  return entry.kind === 'link' ? Buffer.from(entry.target) : entry.data;
}

/** Header and name, then the body; each filled up to the alignment. */
function member(inode: number, path: string, mode: number, body: Uint8Array): Uint8Array[] {
  const name = Buffer.from(`${path}\0`);
  const links = 1;
  const fields = [inode, mode, 0, 0, links, 0, body.length, 0, 0, 0, 0, name.length, 0];
  const header = MAGIC + fields.map((field) => field.toString(16).padStart(8, '0')).join('');
  return [
    Buffer.from(header),
    name,
    padding(header.length + name.length),
    body,
    padding(body.length),
  ];
}

const padding = (length: number): Uint8Array =>
  new Uint8Array((ALIGNMENT - (length % ALIGNMENT)) % ALIGNMENT);
