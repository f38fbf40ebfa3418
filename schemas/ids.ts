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

/** An address as people and programs are shown it: IPv6, as mycelium itself writes it. */
export const AddressText = z
  .string()
  .regex(/^[0-9a-f]{0,4}(:[0-9a-f]{0,4}){2,7}$/, 'an address is shown as IPv6');
export type AddressText = z.infer<typeof AddressText>;

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

/** An address as it is shown: IPv6 by RFC 5952. What is no address in hex stays as it is. */
export function addressText(address: Address): AddressText {
  if (!Address.safeParse(address).success) return address;
  const groups = (address.match(/.{4}/g) ?? []).map((group) => group.replace(/^0{1,3}/, ''));
  let best = { start: -1, length: 1 };
  for (let start = 0; start < groups.length; start++) {
    let length = 0;
    while (groups[start + length] === '0') length++;
    if (length > best.length) best = { start, length };
  }
  if (best.start < 0) return groups.join(':');
  const head = groups.slice(0, best.start).join(':');
  return `${head}::${groups.slice(best.start + best.length).join(':')}`;
}

/** Reads an address in either form, 32 hex digits or IPv6 text; undefined when it is neither. */
export function parseAddress(text: string): Address | undefined {
  const lower = text.trim().toLowerCase();
  if (/^[0-9a-f]{32}$/.test(lower)) return lower;
  const halves = lower.split('::');
  if (halves.length > 2) return undefined;
  const groups = halves.map((half) => (half === '' ? [] : half.split(':')));
  const given = groups.flat();
  if (given.some((group) => !/^[0-9a-f]{1,4}$/.test(group))) return undefined;
  const missing = 8 - given.length;
  if (halves.length === 1 ? missing !== 0 : missing < 1) return undefined;
  const all = [...(groups[0] ?? []), ...Array<string>(missing).fill('0'), ...(groups[1] ?? [])];
  return all.map((group) => group.padStart(4, '0')).join('');
}
