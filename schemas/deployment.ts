/**
 * The deployment: the payload a user signs (INTERFACES 4, wire).
 *
 * The signed bytes are the bytes that are parsed; this schema reads them and is never used to write them
 * again. Readers ignore unknown fields inside the payload, so that a later version stays readable.
 */
import { z } from 'zod';
import { FILES_MAX, FolderPath, SentFile } from './blob.ts';
import { ContextName } from './ids.ts';

export const DEPLOY_PAYLOAD_TYPE = 'application/vnd.herobus.deploy+json';
/** INTERFACES 4: an envelope is at most 1 MiB, a deployment lives at most 24 h. */
export const DEPLOY_BYTES_MAX = 1024 * 1024;
export const DEPLOY_LIFETIME_MAX_MS = 24 * 3600 * 1000;

export const Capability = z
  .string()
  .regex(
    /^[a-z][a-z0-9_]*(:([a-z0-9_.-]+|\*))?$/i,
    'a capability is `family`, `family:name` or `family:*`',
  );
export type Capability = z.infer<typeof Capability>;

/** Milliseconds UTC as ISO 8601; the only written form of a time outside the bus. */
export const Instant = z.iso.datetime({ offset: false });

/** Arguments: any JSON; integers beyond 2^53 arrive as bigint (see schemas/json.ts). */
export const Args = z.record(z.string(), z.unknown());

export const MODULES_MAX = 64;
/** As `import` finds it: a path without `.rhai`, seen from the script's folder. */
export const ModuleName = z
  .string()
  .max(255)
  .regex(
    /^(?:\.\.\/)*(?!\.\.?(?:\/|$))[^/\p{Cc}]+(?:\/(?!\.\.?(?:\/|$))[^/\p{Cc}]+)*$/u,
    'a module is named by a path in its shortest form, without `.rhai`',
  );

export const Deployment = z.object({
  v: z.literal(1),
  context: ContextName,
  script: z.string().min(1),
  /** What the script may import, and nothing else: name -> source. */
  modules: z
    .record(ModuleName, z.string())
    .default({})
    .refine((modules) => Object.keys(modules).length <= MODULES_MAX, {
      message: `at most ${MODULES_MAX} modules`,
    }),
  /** What its jobs may ask for by name; the bytes are blobs of the context. */
  files: z
    .record(FolderPath, SentFile)
    .default({})
    .refine((files) => Object.keys(files).length <= FILES_MAX, {
      message: `at most ${FILES_MAX} files`,
    }),
  args: Args.default({}),
  grants: z.array(Capability).max(64).default([]),
  on: z.string().max(512).nullable().default(null),
  nonce: z.string().min(8).max(128),
  issued_at: Instant,
  expires_at: Instant,
});
export type Deployment = z.infer<typeof Deployment>;
