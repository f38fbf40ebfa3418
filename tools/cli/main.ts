/**
 * The command `herobus`: one command a file, all put together here, and one place for what goes wrong.
 *
 * entry.ts imports this once the Node is right. The surface is INTERFACES 2.
 */
import { readFileSync } from 'node:fs';
import { Command } from 'commander';
import { fullName, tellFailure } from './failure.ts';
import { globals, withExample } from './output.ts';

const HELP_AFTER = `
Exit codes: 0 done, 1 failed, 2 refused or not placeable, 3 unreachable, 64 wrong usage,
130 detached from a flow that goes on.`;

type Register = (program: Command) => void;

/** In the order of the help. A node's code is not loaded to list flows: a command costs what it needs. */
const COMMANDS: Record<string, () => Promise<Register>> = {
  init: async () => (await import('./init.ts')).registerInit,
  up: async () => (await import('./up.ts')).registerUp,
  deploy: async () => (await import('./deploy.ts')).registerDeploy,
  plan: async () => (await import('./deploy.ts')).registerPlan,
  sign: async () => (await import('./sign.ts')).registerSign,
  publish: async () => (await import('./publish.ts')).registerPublish,
  verify: async () => (await import('./verify.ts')).registerVerify,
  flows: async () => (await import('./flows.ts')).registerFlows,
  flow: async () => (await import('./flow.ts')).registerFlow,
  watch: async () => (await import('./watch.ts')).registerWatch,
  why: async () => (await import('./why.ts')).registerWhy,
  logs: async () => (await import('./logs.ts')).registerLogs,
  cancel: async () => (await import('./cancel.ts')).registerCancel,
  retry: async () => (await import('./retry.ts')).registerRetry,
  pause: async () => (await import('./pause.ts')).registerPause,
  resume: async () => (await import('./pause.ts')).registerResume,
  nodes: async () => (await import('./nodes.ts')).registerNodes,
  node: async () => (await import('./node.ts')).registerNode,
  context: async () => (await import('./context.ts')).registerContext,
  principal: async () => (await import('./principal.ts')).registerPrincipal,
  token: async () => (await import('./token.ts')).registerToken,
  kv: async () => (await import('./kv.ts')).registerKv,
  script: async () => (await import('./script.ts')).registerScript,
  doctor: async () => (await import('./doctor.ts')).registerDoctor,
  runner: async () => (await import('./runner.ts')).registerRunner,
};

/** The commands that are named anywhere in the arguments; all of them where none is, as for the help. */
async function commandsFor(argv: readonly string[]): Promise<Register[]> {
  const named = Object.keys(COMMANDS).filter((name) => argv.includes(name));
  const names = named.length > 0 ? named : Object.keys(COMMANDS);
  return Promise.all(names.map((name) => (COMMANDS[name] as () => Promise<Register>)()));
}

/** What may still hold the process when all is said: idle sockets, timers of libraries. */
const LINGER_MS = 2000;

/** With the commands that `argv` names, or all. */
export async function buildProgram(argv: readonly string[]): Promise<Command> {
  const program = new Command('herobus');
  program
    .description('Publish a signed Rhai script to a NATS subject, and machines do what it says.')
    .version(version(), '--version', 'print the version')
    .option('--home <dir>', 'keys and configuration; by default $HEROBUS_HOME or ~/.herobus')
    .option('--server <url>', 'the bus; by default $HEROBUS_SERVER or the one of this machine')
    .option('--json', 'one JSON value on stdout (one a line for streams), all else on stderr')
    .helpOption('-h, --help', 'show help')
    .configureHelp({ showGlobalOptions: true })
    .addHelpText('after', HELP_AFTER)
    .showSuggestionAfterError()
    .exitOverride()
    .configureOutput({
      // Failures are told once, in tellFailure.
      writeErr: (text) => {
        if (!text.startsWith('error: ')) process.stderr.write(text);
      },
      outputError: () => undefined,
    });
  for (const register of await commandsFor(argv)) register(program);
  withExample(program, 'herobus init', 'herobus up', 'herobus deploy examples/hello.rhai');
  return program;
}

function version(): string {
  const manifest = JSON.parse(readFileSync(packageFile(), 'utf8')) as { version: string };
  return manifest.version;
}

/** From dist/ it is one folder up, from the sources two. */
function packageFile(): URL {
  const here = import.meta.url;
  return new URL(here.includes('/tools/cli/') ? '../../package.json' : '../package.json', here);
}

/** Runs one command line and returns its exit code; nothing it does wrong is thrown. */
export async function run(argv: readonly string[]): Promise<number> {
  const program = await buildProgram(argv);
  let current = program;
  program.hook('preAction', (_, acting) => {
    current = acting;
  });
  try {
    await program.parseAsync([...argv], { from: 'user' });
    return Number(process.exitCode ?? 0);
  } catch (error) {
    // A command line that cannot be parsed still says whether its answer is to be JSON.
    const json = globals(current).json ?? argv.includes('--json');
    return tellFailure(error, fullName(current), json);
  }
}

export async function main(): Promise<void> {
  // Who reads our output may stop early (`| head`): that is no failure.
  process.stdout.on('error', (error: NodeJS.ErrnoException) => {
    if (error.code === 'EPIPE') process.exit(process.exitCode ?? 0);
    throw error;
  });
  process.exitCode = await run(process.argv.slice(2));
  setTimeout(() => process.exit(), LINGER_MS).unref();
}
