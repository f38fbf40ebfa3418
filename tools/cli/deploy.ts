/**
 * `herobus deploy`: seals a script with its arguments and publishes it; follows the flow to its end.
 *
 * First of the eight files a deployment goes through (DESIGN 11); the next is schemas/deployment.ts. What
 * happens on the way is told on stderr; the flow's value, or with --json the flow object, goes to stdout.
 */
import { writeFile } from 'node:fs/promises';
import type { Command } from 'commander';
import { open } from '../../bus/envelope.ts';
import type { Identity } from '../../bus/identity.ts';
import { ensureError, HeroError } from '../../schemas/errors.ts';
import {
  collect,
  GRANTED_BY_DEFAULT,
  parseArgs,
  parseDuration,
  parseExpiry,
  parseGrants,
  parseSelector,
} from './arguments.ts';
import { readBundle } from './bundle.ts';
import { assertCompiles } from './check.ts';
import { tellPlan } from './dry-run.ts';
import { EXIT, usage } from './failure.ts';
import { openHome, readKeyFile } from './home.ts';
import { globals, printJson, say, withExample } from './output.ts';
import { type DeploymentDraft, sealDeployment } from './seal.ts';
import { readFilesToSend, sendFiles, signedFiles } from './sent-files.ts';
import { contextOf, mayExecute, type Session, withSession } from './session.ts';
import { submit } from './submit.ts';

type DeployOptions = {
  context?: string;
  arg?: string[];
  grant?: string[];
  on?: string;
  expires: string;
  sign?: string[];
  file?: string[];
  detach?: boolean;
  dryRun?: boolean;
  out?: string;
  placeWithin?: string;
};

/** What is signed and by whom: the same for a deployment and for its plan. */
function withContent(command: Command): Command {
  return command
    .argument('<file>', 'the script; - reads it from standard input')
    .option('-c, --context <name>', "the context; by default the home's, else `default`")
    .option('--arg <k=v>', 'an argument: k=v a string, k:=json typed; may be repeated', collect)
    .option(
      '--grant <caps>',
      `capabilities, joined by commas, on top of ${GRANTED_BY_DEFAULT.join(', ')}; none: only those named`,
      collect,
    )
    .option(
      '--on <selector>',
      'where the flow may be placed: node=, name=, group=, cap=, by commas',
    )
    .option('--expires <duration>', 'how long the message is good for, at most 24h', '10m')
    .option('--sign <keyfile>', 'sign with this key too; may be repeated', collect)
    .option(
      '--file <name=path>',
      'a file sent along, for jobs that ask for it by name; may be repeated',
      collect,
    );
}

export function registerDeploy(program: Command): void {
  const command = withContent(program.command('deploy'))
    .summary('seal a script, publish it and follow it to the end')
    .description(
      'Seals a script with its arguments, publishes it, and follows its flow to the end. The value of the script goes to stdout, all else to stderr. Ctrl-C detaches and cancels nothing.',
    )
    .option('--dry-run', 'publish nothing: tell what it would do, as `herobus plan`')
    .option('--detach', 'only publish: print the flow id and do not wait')
    .option('--out <file>', 'write the sealed bytes there instead of publishing them')
    .option('--place-within <duration>', 'give up waiting when no node fits for this long', '30s')
    .action(async (file: string, options: DeployOptions, self: Command) => {
      process.exitCode = await deploy(file, options, self);
    });
  withExample(
    command,
    'herobus deploy examples/hello.rhai --arg name=world',
    'herobus deploy site.rhai --file site.conf=conf/prod.conf',
    'herobus deploy fleet.rhai -c acme --arg seconds:=0.5 --grant kv:write --on group=edge',
    'echo \'process("date")\' | herobus deploy - --detach',
  );
}

export function registerPlan(program: Command): void {
  const command = withContent(program.command('plan'))
    .summary('tell what a deployment would do')
    .description(
      'Tells what deploying a script would do, and changes nothing: what would be refused, and the jobs the script asks for until it first waits, each with the node it would go to by the roster as it stands. Exits with 2 where something would be refused or not placed.',
    )
    .action(async (file: string, options: DeployOptions, self: Command) => {
      process.exitCode = await deploy(file, { ...options, dryRun: true }, self);
    });
  withExample(command, 'herobus plan fleet.rhai --grant kv:write --on group=edge');
}

async function deploy(file: string, options: DeployOptions, self: Command): Promise<number> {
  const { home: given, json = false } = globals(self);
  if (options.detach && options.out !== undefined) {
    throw usage('--detach and --out exclude each other: with --out nothing is published');
  }
  const placeWithinMs = parseDuration(options.placeWithin ?? '30s', '--place-within');
  const home = await openHome(given);
  const context = contextOf(options.context, home);
  const parsed = {
    context,
    args: parseArgs(options.arg ?? []),
    grants: parseGrants(options.grant ?? []),
    on: parseSelector(options.on),
    lifetimeMs: parseExpiry(options.expires),
  };
  const keys = [home.identity, ...(await Promise.all((options.sign ?? []).map(readKeyFile)))];
  const bundle = await readBundle(file);
  // A plan tells what would be refused; that it does not compile is part of it.
  if (options.dryRun !== true) assertCompiles(bundle, file);
  const files = await readFilesToSend(options.file ?? []);
  const draft: DeploymentDraft = { ...parsed, ...bundle, files: signedFiles(files) };
  if (options.dryRun === true) {
    if (options.out !== undefined) throw usage('--dry-run and --out exclude each other');
    return withSession(self, (session) => tellPlan(session, draft, once(keys), json));
  }
  if (options.out !== undefined) {
    // Whoever publishes the bytes has not got the files: they are sent now.
    if (files.length > 0) {
      await withSession(self, async (session) => sendFiles(session, context, files));
    }
    return writeOut(options.out, draft, keys, json);
  }
  return withSession(self, async (session) => {
    assertExecutor(session, context);
    await sendFiles(session, context, files);
    const bytes = sealDeployment(draft, once(keys), session.bus.now());
    const { flow, envelopeDigest: digest, signatures } = open(bytes);
    const signers = signatures.map(({ keyid }) => keyid);
    return submit(
      session,
      { context, bytes, digest, ref: { context, flow }, signers },
      { json, detach: options.detach ?? false, placeWithinMs },
    );
  });
}

/** One key, one signature, however often it is named. */
function once(keys: readonly Identity[]): Identity[] {
  return [...new Map(keys.map((key) => [key.principal, key])).values()];
}

async function writeOut(
  path: string,
  draft: DeploymentDraft,
  keys: readonly Identity[],
  json: boolean,
): Promise<number> {
  const bytes = sealDeployment(draft, once(keys), Date.now());
  const { flow, signatures } = open(bytes);
  await writeFile(path, bytes).catch((cause: unknown) => {
    throw usage(`${path} cannot be written: ${ensureError(cause).message}`);
  });
  say(`sealed      flow ${flow}, ${signatures.length} signature(s), in ${path}`);
  if (json) {
    const { context } = draft;
    const signers = signatures.map(({ keyid }) => keyid);
    printJson('sealed', { flow, context, file: path, signers });
  }
  return EXIT.done;
}

/** The bus would refuse it too; here it is said before anything is published. */
export function assertExecutor(session: Session, context: string): void {
  if (mayExecute(session, context)) return;
  const { principal } = session.bus;
  throw new HeroError('not_executor', `you are no executor of the context ${context}`, {
    fix: `Ask one of its admins: \`herobus context grant ${context} ${principal} executor\`.`,
  });
}
