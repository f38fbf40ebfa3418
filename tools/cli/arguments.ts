/**
 * Values on the command line: script arguments, grants, durations, selectors. Pure; what is wrong is a usage
 * error that names the text.
 *
 * `k=v` is a string as it stands, `k:=json` is typed JSON (schemas/json.ts): integers are i64 and exact,
 * numbers with `.` or `e` are floats, null is unit.
 */
import { durationMs } from '../../actors/flow/spec.ts';
import { selectorFault } from '../../actors/flow/place.ts';
import { Capability, DEPLOY_LIFETIME_MAX_MS } from '../../schemas/deployment.ts';
import { ensureError } from '../../schemas/errors.ts';
import { type JsonValue, parseStrict } from '../../schemas/json.ts';
import { usage } from './failure.ts';

/** Commander collects repeated options with this. */
export const collect = (value: string, before: string[] | undefined): string[] => [
  ...(before ?? []),
  value,
];

export function parseArgs(given: readonly string[]): { [key: string]: JsonValue } {
  const args = new Map<string, JsonValue>();
  for (const text of given) {
    const { key, value } = parseArg(text);
    if (args.has(key)) throw usage(`--arg ${key} is given twice`);
    args.set(key, value);
  }
  return Object.fromEntries(args);
}

function parseArg(text: string): { key: string; value: JsonValue } {
  const at = text.indexOf('=');
  const typed = at > 0 && text[at - 1] === ':';
  const key = text.slice(0, typed ? at - 1 : at);
  if (at < 0 || key === '') {
    throw usage(
      `--arg "${text}" is neither k=v nor k:=json`,
      'Write --arg name=text for a string, --arg count:=3 for JSON.',
    );
  }
  const value = text.slice(at + 1);
  return { key, value: typed ? parseTyped(value, `--arg ${key}`) : value };
}

export function parseTyped(text: string, what: string): JsonValue {
  try {
    return parseStrict(text);
  } catch (cause) {
    throw usage(
      `${what}: ${ensureError(cause).message}`,
      'A string in JSON has quotes; for plain text write k=v, without the colon.',
      cause,
    );
  }
}

/** What a script needs to spawn jobs; everything that reaches further has to be named. */
export const GRANTED_BY_DEFAULT: readonly string[] = [
  'process',
  'container',
  'vm',
  'wasm',
  'script',
];

/** `--grant kv:write,net` adds to the kinds of jobs; with `none` among them, only what is named counts. */
export function parseGrants(given: readonly string[]): string[] {
  const named = given.flatMap((text) => text.split(',')).map((text) => text.trim());
  const capabilities = named.filter((text) => text !== 'none');
  for (const text of capabilities) {
    if (!Capability.safeParse(text).success) {
      throw usage(
        `--grant "${text}" is no capability`,
        'A capability is family, family:name or family:*, as in kv:write; --grant none grants nothing.',
      );
    }
  }
  const granted = new Set(named.includes('none') ? [] : GRANTED_BY_DEFAULT);
  for (const text of capabilities) granted.add(text);
  if (granted.size > 64) throw usage('--grant: at most 64 capabilities can be granted');
  return [...granted];
}

export function parseDuration(text: string, option: string): number {
  try {
    return durationMs(text, option);
  } catch {
    throw usage(`${option} "${text}" is no duration`, 'Write it like 500ms, 30s, 5m, 2h or 1d.');
  }
}

export function parseExpiry(text: string): number {
  const ms = parseDuration(text, '--expires');
  if (ms < 1 || ms > DEPLOY_LIFETIME_MAX_MS) {
    throw usage(`--expires ${text}: a deployment lives more than nothing and at most 24 h`);
  }
  return ms;
}

export function parseSelector(text: string | undefined): string | null {
  if (text === undefined) return null;
  const fault = selectorFault(text);
  if (fault !== undefined) throw usage(`--on: ${fault}`);
  return text;
}
