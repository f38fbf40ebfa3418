/**
 * `npm run docs`: what can be generated of the documentation: the JSON Schema of every public record
 * (docs/schemas/) and the table of error codes (docs/errors.md), each from what the code itself uses.
 *
 * `test/docs.test.ts` fails where a file is not what this makes.
 */
import { mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { dirname, join, resolve } from 'node:path';
import { z } from 'zod';
import { ANSWERS, COMMAND_ANSWERS } from '../schemas/answers.ts';
import { Command } from '../schemas/command.ts';
import { BusFile, HomeConfig } from '../schemas/config.ts';
import { Deployment } from '../schemas/deployment.ts';
import { ERROR_CODES, ErrorRecord } from '../schemas/errors.ts';
import { ClaimEntry, DECISIONS, Flow, Job, Refusal, RunEntry } from '../schemas/flow.ts';
import {
  Challenge,
  ChallengeRequest,
  ConsumerReply,
  ContextRecord,
  FlowSummary,
  FollowRequest,
  LedgerChangePayload,
  LedgerReply,
  PrincipalRecord,
  RegisterPayload,
  RegisterReply,
} from '../schemas/ledger.ts';
import { NodeBeat } from '../schemas/node.ts';
import { ScriptError, TypedValue } from '../schemas/script.ts';
import { exitCodeOf } from './cli/failure.ts';

const ROOT = resolve(import.meta.dirname, '..');
const SCHEMAS = 'docs/schemas';

/** `written`: by clients, so what has a default may be left out; else it is what herobus gives. */
type Published = { schema: z.ZodType; what: string; written?: boolean };

const RECORDS: Record<string, Published> = {
  deployment: { schema: Deployment, what: 'payload of a deployment, as signed', written: true },
  command: { schema: Command, what: 'payload of a command to a flow, as signed', written: true },
  register: { schema: RegisterPayload, what: 'payload of a registration', written: true },
  change: { schema: LedgerChangePayload, what: 'payload of a change of the ledger', written: true },
  'challenge-request': { schema: ChallengeRequest, what: 'hb.ledger.challenge', written: true },
  challenge: { schema: Challenge, what: 'answer to hb.ledger.challenge' },
  'register-reply': { schema: RegisterReply, what: 'answer to hb.ledger.register' },
  'follow-request': { schema: FollowRequest, what: 'hb.ledger.follow', written: true },
  'follow-reply': { schema: ConsumerReply, what: 'answer to hb.ledger.follow' },
  'ledger-reply': { schema: LedgerReply, what: 'the form of every answer of the ledger' },
  ...Object.fromEntries(
    Object.entries(ANSWERS).map(([name, schema]) => [name, { schema, what: answering(name) }]),
  ),
  'flow-summary': { schema: FlowSummary, what: 'a flow in the list of hb.ledger.flows' },
  'context-record': { schema: ContextRecord, what: 'a context, as the ledger keeps it' },
  'principal-record': { schema: PrincipalRecord, what: 'a principal, as the ledger keeps it' },
  error: { schema: ErrorRecord, what: 'an error with its causes, wherever one stands' },
  refusal: { schema: Refusal, what: 'hb.refused.<context>.<digest>: a message that was refused' },
  config: { schema: HomeConfig, what: '<home>/config.json', written: true },
  bus: { schema: BusFile, what: '<data>/bus.json' },
  'node-beat': { schema: NodeBeat, what: 'hb.beat.<address>: what a node says of itself' },
  'entry-claim': { schema: ClaimEntry, what: 'log entry: a runner takes a pack, or it is void' },
  'entry-run': { schema: RunEntry, what: 'log entry: what a runner began and what came of it' },
  ...Object.fromEntries(
    Object.entries(DECISIONS).map(([kind, schema]) => [
      `entry-${kind}`,
      { schema, what: `log entry: the decision \`${kind}\`` },
    ]),
  ),
};

/** Which commands give an answer, in words. */
function answering(name: string): string {
  const given = commandForms()
    .filter(({ answer }) => answer === name)
    .map(({ command, lines }) => `\`${command} --json\`${lines ? ', one a line' : ''}`);
  return given.length > 0 ? given.join('; ') : 'a command with `--json` that failed';
}

/** Every form of every command with what it answers. */
function commandForms() {
  return Object.entries(COMMAND_ANSWERS).flatMap(([command, forms]) =>
    forms.map(({ when, ...form }) => ({
      ...form,
      command: when === undefined ? command : `${command} ${when}`,
    })),
  );
}

/** Path -> content of all that is generated. */
export function documents(): Map<string, string> {
  const files = new Map<string, string>();
  for (const [name, published] of Object.entries(RECORDS)) {
    files.set(
      `${SCHEMAS}/${name}.json`,
      `${JSON.stringify(jsonSchema(name, published), null, 2)}\n`,
    );
  }
  files.set(`${SCHEMAS}/README.md`, schemaList());
  files.set('docs/errors.md', errorTable());
  return files;
}

function jsonSchema(name: string, { schema, what, written = false }: Published): object {
  const shared = z.registry<{ id: string }>();
  for (const [id, each] of [
    ['error', ErrorRecord],
    ['job', Job],
    ['flow', Flow],
    ['typed-value', TypedValue],
    ['script-error', ScriptError],
  ] as const) {
    if (each !== schema) shared.add(each, { id });
  }
  const { $schema, ...rest } = z.toJSONSchema(schema, {
    io: written ? 'input' : 'output',
    metadata: shared,
  });
  return { $schema, title: `herobus ${name}`, description: what, ...rest };
}

const GENERATED = '<!-- Made by `npm run docs`; mend what it is made of instead. -->';

function schemaList(): string {
  const rows = Object.entries(RECORDS).map(
    ([name, { what }]) => `| [${name}](${name}.json) | ${what} |`,
  );
  return [
    GENERATED,
    '# Schemas',
    '',
    'Readers ignore fields they do not know, so that later versions stay readable. Integers in `args` and `value` may be',
    'larger than 2^53: read them with a parser that keeps them.',
    '',
    '| record | where |',
    '|---|---|',
    ...rows,
    '',
    '## What each command answers',
    '',
    'With `--json`, one value on stdout, or one a line. A command that fails answers with a [failure](failure.json), after',
    'what it had written until then.',
    '',
    '| command | answer |',
    '|---|---|',
    ...commandForms().map(
      ({ command, answer, lines }) =>
        `| \`${command}\` | [${answer}](${answer}.json)${lines ? ', one a line' : ''} |`,
    ),
    '',
  ].join('\n');
}

function errorTable(): string {
  const rows = Object.entries(ERROR_CODES).map(
    ([code, { kind, means, fix }]) =>
      `| \`${code}\` | ${kind} | ${exitCodeOf(code)} | ${cell(means)} | ${cell(fix)} |`,
  );
  return [
    GENERATED,
    '# Error codes',
    '',
    'Codes are stable: programs decide by them, never by a message. Terminal: the same again fails the same way. Transient:',
    'it may pass by itself. An error keeps its cause, down to the root; where it was met (actor, node) stands beside it.',
    'Exit is that of a command that ends with the code.',
    '',
    '| code | kind | exit | what it means | what to do |',
    '|---|---|---|---|---|',
    ...rows,
    '',
  ].join('\n');
}

const cell = (text: string): string => text.replaceAll('|', '\\|');

/** Files that are missing, differ, or are there and no longer made. */
export function stale(): string[] {
  const made = documents();
  const wrong = [...made]
    .filter(([path, text]) => readIfThere(path) !== text)
    .map(([path]) => path);
  const left = listed().filter((path) => !made.has(path));
  return [...wrong, ...left].toSorted();
}

const listed = (): string[] => readdirSync(join(ROOT, SCHEMAS)).map((name) => `${SCHEMAS}/${name}`);

function readIfThere(path: string): string | undefined {
  try {
    return readFileSync(join(ROOT, path), 'utf8');
  } catch {
    return undefined;
  }
}

function write(): void {
  mkdirSync(join(ROOT, SCHEMAS), { recursive: true });
  for (const path of stale()) {
    const text = documents().get(path);
    if (text === undefined) rmSync(join(ROOT, path));
    else {
      mkdirSync(dirname(join(ROOT, path)), { recursive: true });
      writeFileSync(join(ROOT, path), text);
    }
    console.log(`docs: ${text === undefined ? 'removed' : 'wrote'} ${path}`);
  }
}

if (import.meta.main) write();
