/**
 * What went wrong, for people and for machines: the one place that turns an error into words and an exit
 * code. Commands throw; they never print their own failure.
 */
import { type Command, CommanderError } from 'commander';
import {
  ERROR_CODES,
  type ErrorCode,
  type ErrorRecord,
  errorRecord,
  HeroError,
  rootCause,
  shownError,
} from '../../schemas/errors.ts';
import type { FlowStatus } from '../../schemas/flow.ts';
import { addressText } from '../../schemas/ids.ts';
import { printJson } from './output.ts';

/** INTERFACES 2. A detach by SIGINT is neither done nor failed: it ends as a shell expects, with 130. */
export const EXIT = {
  done: 0,
  failed: 1,
  refused: 2,
  unreachable: 3,
  usage: 64,
  interrupted: 130,
} as const;

const REFUSED: ReadonlySet<string> = new Set([
  'bad_envelope',
  'bad_signature',
  'unknown_signer',
  'policy_unmet',
  'context_mismatch',
  'not_executor',
  'expired',
  'not_yet_valid',
  'too_large',
  'duplicate_key',
  'script_syntax',
  'script_limit',
  'capability_not_needed',
  'capability_not_offered',
  'capability_not_granted',
  'capability_not_allowed',
  'unplaced',
  'not_allowed',
  'quota',
  'kv_conflict',
]);

export function exitCodeOf(code: string): number {
  if (code === 'usage') return EXIT.usage;
  if (code === 'unreachable') return EXIT.unreachable;
  return REFUSED.has(code) ? EXIT.refused : EXIT.failed;
}

export function exitCodeOfFlow(status: FlowStatus): number {
  if (status === 'completed') return EXIT.done;
  return status === 'refused' || status === 'unplaced' ? EXIT.refused : EXIT.failed;
}

/** A mistake in how the command was called. */
export function usage(message: string, fix?: string, cause?: unknown): HeroError {
  return new HeroError('usage', message, {
    ...(fix === undefined ? {} : { fix }),
    ...(cause === undefined ? {} : { cause }),
  });
}

/** A record that came over the bus as an error to throw, with its causes. */
export function asError({ code, message, actor, node, cause }: ErrorRecord): HeroError {
  return new HeroError(code as HeroError['code'], message, {
    where: { ...(actor === null ? {} : { actor }), ...(node === null ? {} : { node }) },
    ...(cause === null ? {} : { cause: asError(cause) }),
  });
}

/** An error with its causes, one a line, the root cause last. */
export function errorLines(error: ErrorRecord): string[] {
  const lines: string[] = [];
  for (let each: ErrorRecord | null = error; each !== null; each = each.cause) {
    const where = [each.actor, each.node === null ? null : addressText(each.node)]
      .filter((part) => part !== null)
      .join(' on ');
    const text = each.message === '' ? each.code : each.message;
    const code = each.code === 'internal' || text === each.code ? '' : ` [${each.code}]`;
    const said = `${text}${code}${where === '' ? '' : ` (${where})`}`;
    const indent = '  '.repeat(Math.min(lines.length, 4));
    lines.push(
      `${lines.length === 0 ? '' : `${indent}because: `}${said.replaceAll('\n', `\n${indent}  `)}`,
    );
  }
  return lines;
}

/** What the reader of a refusal can do, by its root cause. */
export function refusalAdvice(error: ErrorRecord): string[] {
  const { code } = rootCause(error);
  return Object.hasOwn(ERROR_CODES, code) ? [`fix: ${ERROR_CODES[code as ErrorCode].fix}`] : [];
}

/** Says the failure on stderr, or as one JSON value on stdout, and returns the exit code. */
export function tellFailure(thrown: unknown, name: string, json: boolean): number {
  if (thrown instanceof CommanderError) {
    if (thrown.exitCode === 0) return EXIT.done;
    // The help that stands for a missing subcommand was printed already.
    if (thrown.code === 'commander.help' && !json) return EXIT.usage;
  }
  const error = thrown instanceof CommanderError ? usage(commandLineFault(thrown)) : thrown;
  const record = shownError(errorRecord(error));
  const fix = error instanceof HeroError ? error.fix : undefined;
  if (json) {
    printJson('failure', { error: { ...record, fix: fix ?? null } });
  } else {
    const advice =
      fix ??
      (record.code === 'usage' ? `See \`${name} --help\`.` : undefined) ??
      (record.code === 'internal'
        ? 'This is a fault of herobus itself: please report it.'
        : undefined);
    const lines = [`${name}: ${errorLines(record).join('\n')}`];
    if (advice !== undefined) lines.push(`  fix: ${advice}`);
    process.stderr.write(`${lines.join('\n')}\n`);
  }
  if (record.code === 'internal' && process.env['HEROBUS_DEBUG'] !== undefined) {
    process.stderr.write(`${error instanceof Error ? error.stack : ''}\n`);
  }
  return exitCodeOf(record.code);
}

function commandLineFault({ code, message }: CommanderError): string {
  return code === 'commander.help' ? 'which command?' : message.replace(/^error: /, '');
}

/** `herobus context grant`, for messages. */
export function fullName(command: Command): string {
  const parts: string[] = [];
  for (let each: Command | null = command; each !== null; each = each.parent) {
    parts.unshift(each.name());
  }
  return parts.join(' ');
}
