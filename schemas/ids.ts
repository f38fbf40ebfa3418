/**
 * Identifiers: their written forms, in one place.
 *
 * A principal is its nkey (`U…`), an address is the 32 hex digits of a mycelium address, a flow id is
 * the lower-case base32 of the first 16 bytes of SHA-256 over the signed payload. How they are derived
 * from keys and bytes stands in `bus/identity.ts` and `bus/envelope.ts`; here is only what they look like.
 */
import { z } from 'zod';

export const Principal = z
  .string()
  .regex(/^U[A-Z2-7]{55}$/, 'a principal is an nkey: U and 55 base32 characters');
export type Principal = z.infer<typeof Principal>;

export const Address = z.string().regex(/^[0-9a-f]{32}$/, 'an address is 32 lower-case hex digits');
export type Address = z.infer<typeof Address>;

export const ContextName = z
  .string()
  .regex(
    /^[a-z0-9][a-z0-9-]{0,31}$/,
    'a context name is 1 to 32 of a-z, 0-9 and -, not starting with -',
  );
export type ContextName = z.infer<typeof ContextName>;

export const FlowId = z.string().regex(/^[a-z2-7]{26}$/, 'a flow id is 26 base32 characters');
export type FlowId = z.infer<typeof FlowId>;

/** Position of a job in its script's run, from 0. */
export const JobNumber = z.int().min(0).max(10_000_000);
export type JobNumber = z.infer<typeof JobNumber>;

/** Name of a pack within its flow: `p<ordinal>` of the plan's running count. */
export const PackId = z.string().regex(/^p[0-9]{1,9}$/);
export type PackId = z.infer<typeof PackId>;

/** New at each start of a process; a changed incarnation is a restart. */
export const Incarnation = z.string().regex(/^[a-z0-9]{8,32}$/);
export type Incarnation = z.infer<typeof Incarnation>;

/** One flow's place in the log. */
export type FlowRef = { context: ContextName; flow: FlowId };

export const jobId = (flow: FlowId, n: JobNumber): string => `${flow}.${n}`;

/** Splits `<flow>` or `<flow>.<n>`; undefined when it is neither. */
export function parseJobId(text: string): { flow: FlowId; n: JobNumber | null } | undefined {
  const match = /^([a-z2-7]{26})(?:\.([0-9]{1,8}))?$/.exec(text);
  if (!match?.[1]) return undefined;
  return { flow: match[1], n: match[2] === undefined ? null : Number(match[2]) };
}
