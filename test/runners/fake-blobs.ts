/** Blobs in memory, to lose, alter and hold. */
import { createHash } from 'node:crypto';
import type { Blobs } from '../../bus/bus.ts';
import { HeroError } from '../../schemas/errors.ts';

export class FakeBlobs implements Blobs {
  readonly stored = new Map<string, Uint8Array>();
  gets = 0;
  /** Awaited before each call: a test holds or fails it here. */
  before: (what: 'put' | 'get') => Promise<void> = () => Promise.resolve();

  async put(context: string, bytes: Uint8Array): Promise<string> {
    await this.before('put');
    const digest = createHash('sha256').update(bytes).digest('hex');
    this.stored.set(`${context} ${digest}`, bytes);
    return digest;
  }

  async get(context: string, digest: string, size?: number): Promise<Uint8Array> {
    this.gets++;
    await this.before('get');
    const bytes = this.stored.get(`${context} ${digest}`);
    if (bytes === undefined) throw new HeroError('not_found', `there is no blob ${digest}`);
    const found = createHash('sha256').update(bytes).digest('hex');
    if (found === digest && (size ?? bytes.length) === bytes.length) return bytes;
    throw new HeroError('unverifiable', `the blob ${digest} is not what its digest says`);
  }
}
