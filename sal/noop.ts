/**
 * The noop SAL: an operation that does nothing.
 *
 * What a job costs beside its work is measured with it, and whether jobs reach a node at all is tried out
 * with it without touching the node. Who listens on the diagnostics channel `herobus:noop` learns when one
 * begins.
 */
import { channel } from 'node:diagnostics_channel';
import { z } from 'zod';
import { type Family, operation } from './driver.ts';

const begun = channel('herobus:noop');
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
        run: (_, { jobId }) => {
          begun.publish({ jobId });
          return Promise.resolve(null);
        },
        inverse: () => Promise.resolve(),
      }),
    ],
  };
}
