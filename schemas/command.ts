/** A signed command to a flow: same subject and envelope as a deployment, another payload type. */
import { z } from 'zod';
import { Instant } from './deployment.ts';
import { ContextName, FlowId, JobNumber } from './ids.ts';

export const COMMAND_PAYLOAD_TYPE = 'application/vnd.herobus.command+json';

export const CommandVerb = z.enum(['cancel', 'retry', 'pause', 'resume']);
export type CommandVerb = z.infer<typeof CommandVerb>;

export const Command = z.object({
  v: z.literal(1),
  context: ContextName,
  flow: FlowId,
  job: JobNumber.nullable().default(null),
  verb: CommandVerb,
  reason: z.string().max(1024).nullable().default(null),
  nonce: z.string().min(8).max(128),
  issued_at: Instant,
  expires_at: Instant,
});
export type Command = z.infer<typeof Command>;
