/** The incarnation id: new at each start of a process, carried by beats, leases and entries. */
import { randomBytes } from 'node:crypto';
import type { Incarnation } from '../schemas/ids.ts';

/** 12 base36 characters: about 62 bits, never the same for two starts of one node. */
export function newIncarnation(): Incarnation {
  const number = BigInt(`0x${randomBytes(8).toString('hex')}`);
  return number.toString(36).padStart(13, '0').slice(-12);
}
