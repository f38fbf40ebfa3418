/** The incarnation id: new at each start of a process, carried by beats, leases and entries. */
import { randomBytes } from 'node:crypto';
import type { Incarnation } from '../schemas/ids.ts';

/**
 * Nine base36 digits of the start's time in ms, five of chance: never the same for two starts, and a later
 * start of the same thing sorts after an earlier one, as well as the clock is; who is on the bus has its
 * time. Where the clock went back between them, nothing breaks: who compares falls back on silence
 * (`supervisors/liveness.ts`).
 */
export function newIncarnation(nowMs: number = Date.now()): Incarnation {
  const time = Math.floor(nowMs).toString(36).padStart(9, '0');
  const chance = (randomBytes(4).readUInt32BE() % 36 ** 5).toString(36).padStart(5, '0');
  return `${time}${chance}`;
}
