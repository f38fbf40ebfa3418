/** A job's payload, read by its class's schema: a fault names the field and is the job's own failure. */
import type { z } from 'zod';
import { HeroError } from '../../schemas/errors.ts';
import type { PackedJob } from '../../schemas/job.ts';

export function payloadOf<T>(schema: z.ZodType<T>, { spec }: PackedJob): T {
  return parsed(schema, spec.payload, spec.kind);
}

function parsed<T>(schema: z.ZodType<T>, value: unknown, what: string): T {
  const result = schema.safeParse(value);
  if (result.success) return result.data;
  const [issue] = result.error.issues;
  const field = issue === undefined ? '' : issue.path.map(String).join('.');
  const where = field === '' ? what : `${what}: \`${field}\``;
  throw new HeroError('bad_job', `${where}: ${issue?.message ?? 'it is not what it should be'}`);
}
