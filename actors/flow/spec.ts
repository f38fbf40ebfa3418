/**
 * What a script wrote -> a job's spec. Pure; every fault names the key, what is wrong and what would do.
 *
 * The spec's canonical bytes (keys in schema order) are what the log's digest stands for, so nothing here
 * may depend on anything but the script's own values.
 */
import { z } from 'zod';
import {
  folderPathFault,
  foldersFault,
  type PlacedFile,
  type SentFile,
} from '../../schemas/blob.ts';
import { HeroError } from '../../schemas/errors.ts';
import {
  BACKOFF_MAX_MS,
  DELAY_MAX_MS,
  type JobKind,
  type JobSpec,
  RETRIES_MAX,
} from '../../schemas/job.ts';
import { type HostObject, type Value } from '../../rhai/engine.ts';
import { toJson } from '../../rhai/json.ts';
import { Char, Float, HostObject as HostObjectClass, RArray, RMap } from '../../rhai/values.ts';
import { selectorFault } from './place.ts';

/** A handle's place in a script: an opaque value that names a job. */
export const HANDLE = 'handle';
export const handleNumber = (value: Value | undefined): number | undefined =>
  value instanceof HostObjectClass && value.type === HANDLE
    ? (value as HostObject & { data: { n: number } }).data.n
    : undefined;

type Entries = ReadonlyMap<string, Value>;

const COMMON_KEYS = [
  'name',
  'group',
  'caps',
  'node',
  'timeout',
  'retries',
  'backoff',
  'after',
  'delay',
  'idempotent',
];

/** Keys of each kind's own part. `sal` has none: its arguments are a map of their own. */
const PAYLOAD_KEYS: Record<JobKind, readonly string[]> = {
  process: ['cmd', 'args', 'env', 'cwd', 'stdin', 'ok_codes', 'files'],
  container: ['image', 'cmd', 'env', 'memory', 'cpus', 'ports', 'mounts', 'keep'],
  vm: ['image', 'kernel', 'initramfs', 'cpus', 'memory', 'disks', 'net', 'keep'],
  wasm: ['module', 'export', 'input'],
  script: ['lang', 'source', 'input'],
  sal: [],
};

/** INTERFACES 3: may it run again when nobody knows how far it came? */
const IDEMPOTENT: Record<JobKind, boolean> = {
  process: false,
  container: true,
  vm: true,
  wasm: false,
  script: false,
  sal: true,
};

const DEFAULT_BACKOFF_MS = 1000;

const bad = (message: string): HeroError => new HeroError('bad_job', message);

/** A job of `kind` from the map a script gave; `sent` are the files of its deployment. */
export function jobSpec(
  kind: Exclude<JobKind, 'sal'>,
  entries: Entries,
  sent: Readonly<Record<string, SentFile>> = {},
): JobSpec {
  refuseUnknownKeys(kind, entries, [...COMMON_KEYS, ...PAYLOAD_KEYS[kind]]);
  const payload: Record<string, unknown> = {};
  for (const key of PAYLOAD_KEYS[kind]) {
    if (!entries.has(key)) continue;
    payload[key] = key === 'files' ? placed(entries.get(key), sent) : plain(entries.get(key), key);
  }
  if (kind === 'process' && typeof payload['cmd'] !== 'string') {
    throw bad(`process needs \`cmd\`, the command's name or path, as a string`);
  }
  return {
    v: 1,
    kind,
    ...common(kind, entries, defaultName(kind, payload)),
    payload,
    ...rest(kind, entries, kind),
  };
}

/** `files: ["name"]`, or `files: #{"path in the folder": "name"}`, by the digests that were signed. */
function placed(value: Value | undefined, sent: Readonly<Record<string, SentFile>>): PlacedFile[] {
  const pairs =
    value instanceof RMap
      ? [...value.items].toSorted(([a], [b]) => (a < b ? -1 : 1))
      : value instanceof RArray
        ? value.items.map((item): [string, Value] => [textOf(item, 'files'), item])
        : undefined;
  if (pairs === undefined) {
    throw bad('`files` must be an array of names, or a map #{"path in the folder": "name"}');
  }
  const files = pairs.map(([path, item]) => {
    const name = textOf(item, 'files');
    const file = Object.hasOwn(sent, name) ? sent[name] : undefined;
    if (file === undefined) {
      const names = Object.keys(sent).join(', ');
      throw bad(
        names === ''
          ? `\`files\`: "${name}" was not sent along: deploy with --file ${name}=PATH`
          : `\`files\`: "${name}" was not sent along; there are: ${names}`,
      );
    }
    const fault = folderPathFault(path);
    if (fault !== undefined) throw bad(`\`files\`: "${path}" cannot be placed: ${fault}`);
    return { sha256: file.sha256, size: file.size, path };
  });
  const fault = foldersFault(files.map(({ path }) => path));
  if (fault !== undefined) throw bad(`\`files\`: ${fault}`);
  return files;
}

/** One SAL operation; `options` holds the common keys. */
export function salSpec(op: string, args: Value, options: Entries): JobSpec {
  if (!/^[a-z][a-z0-9_]*\.[a-z][a-z0-9_]*$/.test(op)) {
    throw bad(`"${op}" is no SAL operation: write family.operation, as in "file.write"`);
  }
  refuseUnknownKeys('sal', options, COMMON_KEYS);
  const payload = { op, args: toJson(args) };
  return {
    v: 1,
    kind: 'sal',
    ...common('sal', options, op),
    payload,
    ...rest('sal', options, salNeed(op)),
  };
}

/** `kv.get` and `kv.list` read; every other family needs its own name. */
export function salNeed(op: string): string {
  const [family, verb] = op.split('.');
  if (family !== 'kv') return family ?? op;
  return verb === 'get' || verb === 'list' ? 'kv:read' : 'kv:write';
}

/** The bytes a spec's digest is taken over. */
export const canonical = (spec: JobSpec): string => JSON.stringify(spec);

function common(kind: JobKind, entries: Entries, fallback: string): { name: string } {
  const name = text(entries, 'name') ?? fallback;
  if (name.length === 0 || name.length > 128)
    throw bad(`${kind}: \`name\` must have 1 to 128 characters`);
  return { name };
}

function rest(
  kind: JobKind,
  entries: Entries,
  need: string,
): Omit<JobSpec, 'v' | 'kind' | 'name' | 'payload'> {
  const caps = list(entries, 'caps').map((value) => textOf(value, 'caps'));
  return {
    needs: [...new Set([need, ...caps])],
    on: selector(entries),
    timeout_ms: entries.has('timeout') ? durationMs(entries.get('timeout'), 'timeout') : null,
    retries: whole(entries, 'retries', 0, RETRIES_MAX) ?? 0,
    backoff_ms: entries.has('backoff')
      ? Math.min(durationMs(entries.get('backoff'), 'backoff'), BACKOFF_MAX_MS)
      : DEFAULT_BACKOFF_MS,
    after: list(entries, 'after').map((value) => {
      const n = handleNumber(value);
      if (n === undefined) throw bad('`after` must be an array of job handles');
      return n;
    }),
    idempotent: flag(entries, 'idempotent') ?? IDEMPOTENT[kind],
    ...delay(entries),
  };
}

/** No key where there is none: the digests of older jobs stay what they were. */
function delay(entries: Entries): { delay_ms?: number } {
  if (!entries.has('delay')) return {};
  const ms = durationMs(entries.get('delay'), 'delay');
  if (ms > DELAY_MAX_MS) throw bad('`delay` must be at most 365 days');
  return ms === 0 ? {} : { delay_ms: ms };
}

function selector(entries: Entries): string | null {
  const node = text(entries, 'node');
  const group = text(entries, 'group');
  const nodeTerm = node === undefined || node.includes('=') ? node : `name=${node}`;
  const terms = [nodeTerm, group === undefined ? undefined : `group=${group}`].filter(
    (term) => term !== undefined,
  );
  if (terms.length === 0) return null;
  const joined = terms.join(',');
  const fault = selectorFault(joined);
  if (fault !== undefined) throw bad(`\`node\`: ${fault}`);
  return joined;
}

function defaultName(kind: JobKind, payload: Record<string, unknown>): string {
  const source = payload['cmd'] ?? payload['image'] ?? payload['export'] ?? payload['lang'];
  const name = Array.isArray(source) ? source[0] : source;
  return typeof name === 'string' && name.length > 0 ? name.slice(-128) : kind;
}

function refuseUnknownKeys(kind: string, entries: Entries, known: readonly string[]): void {
  for (const key of entries.keys()) {
    if (known.includes(key)) continue;
    const close = known.find((each) => distance(each, key) <= 2);
    const hint =
      close === undefined ? `known keys: ${known.join(', ')}` : `did you mean \`${close}\`?`;
    throw bad(`${kind}: key \`${key}\` is not known; ${hint}`);
  }
}

/** Levenshtein distance, for the hint at a misspelt key. */
function distance(a: string, b: string): number {
  let row = Array.from({ length: b.length + 1 }, (_, i) => i);
  for (let i = 1; i <= a.length; i++) {
    const next = [i];
    for (let j = 1; j <= b.length; j++) {
      const same = a[i - 1] === b[j - 1] ? 0 : 1;
      next[j] = Math.min((next[j - 1] ?? 0) + 1, (row[j] ?? 0) + 1, (row[j - 1] ?? 0) + same);
    }
    row = next;
  }
  return row[b.length] ?? 0;
}

const UNITS_MS: Record<string, number> = { ms: 1, s: 1000, m: 60_000, h: 3_600_000, d: 86_400_000 };

/** "500ms", "30s", "5m", "2h", "1d", or a number of seconds. */
export function durationMs(value: Value | undefined, key: string): number {
  if (typeof value === 'number' && value >= 0) return value * 1000;
  if (value instanceof Float && value.value >= 0) return Math.round(value.value * 1000);
  const match = typeof value === 'string' ? /^(\d+(?:\.\d+)?)(ms|s|m|h|d)$/.exec(value) : null;
  if (!match) throw bad(`\`${key}\` must be a duration like "500ms", "30s", "5m", "2h" or "1d"`);
  return Math.round(Number(match[1]) * (UNITS_MS[match[2] ?? 's'] ?? 1000));
}

function text(entries: Entries, key: string): string | undefined {
  const value = entries.get(key);
  return value === undefined || value === null ? undefined : textOf(value, key);
}

function textOf(value: Value, key: string): string {
  if (typeof value === 'string') return value;
  if (value instanceof Char) return value.text;
  throw bad(`\`${key}\` must be a string`);
}

function list(entries: Entries, key: string): Value[] {
  const value = entries.get(key);
  if (value === undefined || value === null) return [];
  return value instanceof RArray ? value.items : [value];
}

function flag(entries: Entries, key: string): boolean | undefined {
  const value = entries.get(key);
  if (value === undefined || typeof value === 'boolean') return value;
  throw bad(`\`${key}\` must be true or false`);
}

function whole(entries: Entries, key: string, min: number, max: number): number | undefined {
  const value = entries.get(key);
  if (value === undefined) return undefined;
  const parsed = z.int().min(min).max(max).safeParse(value);
  if (!parsed.success) throw bad(`\`${key}\` must be a whole number from ${min} to ${max}`);
  return parsed.data;
}

/** A script's value as plain JSON data; numbers lose the int/float distinction, which no payload needs. */
function plain(value: Value | undefined, path: string): unknown {
  if (value === undefined || value === null) return null;
  if (typeof value === 'string' || typeof value === 'boolean' || typeof value === 'number')
    return value;
  if (value instanceof Float) return value.value;
  if (value instanceof Char) return value.text;
  if (value instanceof RArray) return value.items.map((item, i) => plain(item, `${path}[${i}]`));
  if (value instanceof RMap) {
    const entries = [...value.items].map(([key, item]) => [key, plain(item, `${path}.${key}`)]);
    return Object.fromEntries(entries);
  }
  throw bad(`\`${path}\` cannot leave the script: use strings, numbers, booleans, arrays and maps`);
}
