/**
 * Entries of a flow's log are signed by their writer: a right to publish is the server's to give, and whoever
 * has all rights (a stolen control plane) could write under anybody's address.
 *
 * The header `hb-sig` is `<principal> <fence> <base64 of 64 bytes>`, the fence being the sequence of the last
 * decision the writer knew, or `-` where none was asked for. Signed is the line
 * `herobus-entry-v1 <subject> <hb-entry> <fence> <SHA-256 of the data, hex>`: what was signed for one place
 * says nothing in another. Who may write an address needs no registry, since the address follows from the key.
 *
 * That the fence is the one the entry was stored under is the fold's to see: it knows the last decision.
 */
import { createHash } from 'node:crypto';
import type { Address } from '../schemas/ids.ts';
import { addressOf, type Identity, verifySignature } from './identity.ts';

export type SignedPart = {
  subject: string;
  /** The header `hb-entry`. */
  id: string;
  data: Uint8Array;
};

/** What a signature proves of an entry: its writer's key, and the decision it was written after. */
export type EntryProof = { fence: number | null };

export type EntrySigner = Pick<Identity, 'principal' | 'sign'>;

/** Several readers of a process look at the same entries within moments; each is verified once. */
const KNOWN_MAX = 4096;
const known = new Map<string, string>();

function remember(signature: string, line: string): void {
  known.delete(signature);
  known.set(signature, line);
  if (known.size <= KNOWN_MAX) return;
  const oldest = known.keys().next();
  if (!oldest.done) known.delete(oldest.value);
}

function lineOf({ subject, id, data }: SignedPart, fence: string): string {
  const digest = createHash('sha256').update(data).digest('hex');
  return `herobus-entry-v1 ${subject} ${id} ${fence} ${digest}`;
}

/** The value of `hb-sig`. */
export function signEntry(signer: EntrySigner, part: SignedPart, fence: number | null): string {
  const written = fence === null ? '-' : String(fence);
  const line = lineOf(part, written);
  const signature = Buffer.from(signer.sign(Buffer.from(line))).toString('base64');
  const header = `${signer.principal} ${written} ${signature}`;
  remember(header, line);
  return header;
}

const HEADER_FORM = /^(U[A-Z2-7]{55}) (-|0|[1-9][0-9]{0,15}) ([A-Za-z0-9+/]{86}==)$/;

/** What is proven of an entry under this writer's address; undefined: nothing is. */
export function proofOf(
  part: SignedPart,
  header: string | undefined,
  writer: Address,
): EntryProof | undefined {
  const match = HEADER_FORM.exec(header ?? '');
  if (header === undefined || match === null) return undefined;
  const [, principal = '', fence = '', signature = ''] = match;
  if (addressOf(principal) !== writer) return undefined;
  const line = lineOf(part, fence);
  if (known.get(header) !== line) {
    const valid = verifySignature(principal, Buffer.from(line), Buffer.from(signature, 'base64'));
    if (!valid) return undefined;
    remember(header, line);
  }
  return { fence: fence === '-' ? null : Number(fence) };
}
