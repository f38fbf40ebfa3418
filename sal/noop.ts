/**
 * The noop SAL: an operation that does nothing.
 *
 * What a job costs beside its work is measured with it, and whether jobs reach a node at all is tried out
 * with it without touching the node.
 */
import { z } from 'zod';
import { type Family, operation } from './driver.ts';

const Ignored = z.record(z.string(), z.unknown());

export function noopFamily(): Family {
  return {
    name: 'noop',
    fingerprint: () => Promise.resolve({ found: true, detail: 'built in' }),
    operations: [
      operation({
        name: 'noop.run',
        needs: 'noop',
        args: Ignored,
        run: () => Promise.resolve(null),
        inverse: () => Promise.resolve(),
      }),
    ],
  };
}
