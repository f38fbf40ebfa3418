/**
 * The first module of dist/cli.js: runs the CLI on the Node it was built for.
 *
 * Whatever Node started it must be able to read this file, so it is ES2022 with nothing but node: imports,
 * and the program itself is imported only once the version is right. An older Node starts the packaged one
 * and stands in for it: signals, exit code, and its own death are passed on.
 */
import { spawn } from 'node:child_process';
import { existsSync } from 'node:fs';
import { createRequire } from 'node:module';
import { constants } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

const NODE_MIN = 24;
const PASSED_ON = ['SIGINT', 'SIGTERM', 'SIGHUP', 'SIGUSR2'] as const;
/** Says to the packaged Node that it stands for a process of another Node. */
const STANDS_FOR = 'HEROBUS_REEXECUTED';

const major = Number(process.versions.node.split('.')[0]);
if (major >= NODE_MIN) {
  dieWithOlderNode();
  const { main } = await import('./main.ts');
  await main();
} else if (process.env[STANDS_FOR] !== undefined) {
  fail(`the packaged Node is ${process.versions.node}, older than ${NODE_MIN}`);
} else {
  runOnPackagedNode();
}

function runOnPackagedNode(): void {
  const node = packagedNode();
  if (node === undefined) return fail(`Node ${process.versions.node} is older than ${NODE_MIN}`);
  const script = fileURLToPath(import.meta.url);
  // The channel carries nothing: its end tells the child that this process is gone.
  const child = spawn(node, [script, ...process.argv.slice(2)], {
    stdio: ['inherit', 'inherit', 'inherit', 'ipc'],
    env: { ...process.env, [STANDS_FOR]: '1' },
  });
  const passOn = (signal: NodeJS.Signals) => void child.kill(signal);
  for (const signal of PASSED_ON) process.on(signal, passOn);
  child.once('error', (error) => fail(`${node} cannot be started: ${error.message}`));
  child.once('exit', (code, signal) => {
    for (const each of PASSED_ON) process.off(each, passOn);
    if (signal === null) process.exit(code ?? 1);
    process.exitCode = 128 + constants.signals[signal];
    process.kill(process.pid, signal);
  });
}

/** Killed hard, the older Node can pass on nothing: the end of the channel is then the signal. */
function dieWithOlderNode(): void {
  if (process.env[STANDS_FOR] === undefined) return;
  delete process.env[STANDS_FOR];
  if (process.channel === undefined || process.channel === null) return;
  process.on('disconnect', () => process.kill(process.pid, 'SIGKILL'));
  process.channel.unref();
}

function packagedNode(): string | undefined {
  try {
    const manifest = createRequire(import.meta.url).resolve('node/package.json');
    const node = join(dirname(manifest), 'bin', 'node');
    return existsSync(node) ? node : undefined;
  } catch {
    return undefined;
  }
}

function fail(what: string): void {
  process.stderr.write(
    `herobus: ${what}, and no newer one is packaged beside it\n  fix: run \`npm ci\` in the folder of herobus, or start it with Node ${NODE_MIN} or newer\n`,
  );
  process.exitCode = 1;
}
