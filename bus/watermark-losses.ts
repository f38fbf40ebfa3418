/**
 * Losses that were accepted: which stream lost what, when it was accepted and by whom, in `<data>/losses.jsonl`.
 *
 * Beside the marks and not in the ledger, whose own buckets may be what went back. A line is an envelope over an
 * `AcceptedLoss`, signed by who started `up --accept-loss`. What is accepted is bus/watermark.ts; who shows it is
 * `herobus doctor`.
 *
 * A1 Lines are only added; what stands there stays, also what cannot be read.
 */
import { join } from 'node:path';
import { AcceptedLoss, LOSS_PAYLOAD_TYPE } from '../schemas/config.ts';
import { HeroError } from '../schemas/errors.ts';
import { parseStrictBytes } from '../schemas/json.ts';
import { readIfThere, writeAtomic } from './atomic-file.ts';
import { open, seal, verifySignatures } from './envelope.ts';
import type { Identity } from './identity.ts';

/** What a stream lost, as far as it can be known. */
export type Loss = Pick<AcceptedLoss, 'stream' | 'from' | 'to' | 'what'>;

const FILE_MODE = 0o644;

export const lossesPath = (dataDir: string): string => join(dataDir, 'losses.jsonl');

export async function recordLosses(
  dataDir: string,
  identity: Identity,
  losses: readonly Loss[],
): Promise<void> {
  if (losses.length === 0) return;
  const before = (await readIfThere(lossesPath(dataDir))) ?? '';
  const said = { v: 1, at: new Date().toISOString(), by: identity.principal } as const;
  const lines = losses.map((loss) => {
    const record: AcceptedLoss = { ...said, ...loss };
    const bytes = seal(Buffer.from(JSON.stringify(record)), LOSS_PAYLOAD_TYPE, [identity]);
    return `${Buffer.from(bytes).toString()}\n`;
  });
  const joined = before === '' || before.endsWith('\n') ? before : `${before}\n`;
  await writeAtomic(lossesPath(dataDir), joined + lines.join(''), FILE_MODE);
}

/** In the order in which they were accepted. Throws where a line was changed since. */
export async function readLosses(dataDir: string): Promise<AcceptedLoss[]> {
  const path = lossesPath(dataDir);
  const lines = ((await readIfThere(path)) ?? '').split('\n').filter((line) => line !== '');
  return lines.map((line, at) => {
    try {
      const opened = open(Buffer.from(line));
      const record = AcceptedLoss.parse(parseStrictBytes(opened.payload, 'bad_envelope'));
      const signed = verifySignatures(opened).includes(record.by);
      if (signed && opened.payloadType === LOSS_PAYLOAD_TYPE) return record;
      throw new HeroError('bad_signature', `${record.by} did not sign it`);
    } catch (cause) {
      throw new HeroError('bad_signature', `line ${at + 1} of ${path} was changed`, { cause });
    }
  });
}
