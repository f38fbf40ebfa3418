/** The hidden command `herobus runner`: one runner process, started and configured by `up`. */
import { readFileSync, watchFile } from 'node:fs';
import { text } from 'node:stream/consumers';
import type { Command } from 'commander';
import { Host } from '../../actors/host.ts';
import { newIncarnation } from '../../actors/incarnation.ts';
import type { Blobs } from '../../bus/bus.ts';
import { parseCreds } from '../../bus/connect.ts';
import { identityFromText } from '../../bus/identity.ts';
import { openNatsBus } from '../../bus/nats.ts';
import type { RunnerClass } from '../../runners/classes/class.ts';
import { processClass } from '../../runners/classes/process.ts';
import { salClass } from '../../runners/classes/sal.ts';
import { startRunner } from '../../runners/runner.ts';
import { Registry } from '../../sal/driver.ts';
import { fileFamily } from '../../sal/file.ts';
import { kvFamily } from '../../sal/kv.ts';
import { noopFamily } from '../../sal/noop.ts';
import { RunnerProcess } from '../../schemas/config.ts';
import { HeroError } from '../../schemas/errors.ts';
import { BEAT_MS } from '../../schemas/node.ts';

const CREDS_LOOK_MS = 1000;

export function registerRunner(program: Command): void {
  program
    .command('runner', { hidden: true })
    .description('one runner process; `up` starts it')
    .action(async () => run(RunnerProcess.parse(JSON.parse(await text(process.stdin)))));
}

async function run(config: RunnerProcess): Promise<void> {
  const identity = identityFromText(readFileSync(config.key, 'utf8'));
  const bus = await openNatsBus({
    kind: 'node',
    server: config.server,
    identity,
    incarnation: newIncarnation(),
    // The supervisor's process renews the file; the newest token is read at each connect.
    jwt: () => parseCreds(readFileSync(config.creds, 'utf8')).jwt,
    name: `runner ${config.name}`,
    persist: true,
  });
  const host = new Host({
    onFault: (name, error) => {
      console.error(`actor ${name} failed: ${error.stack ?? error.message}`);
      process.exit(1);
    },
  });
  const runner = startRunner({
    bus,
    host,
    name: config.name,
    work: classOf(config, bus.blobs),
    slots: config.slots,
    contexts: config.contexts,
  });
  // New credentials mean new rights: they hold from the next connect, so it is made now.
  watchFile(config.creds, { interval: CREDS_LOOK_MS }, (now, before) => {
    if (now.mtimeMs !== before.mtimeMs) void bus.reconnect().catch(() => undefined);
  });
  // A sign of life for the parent, who kills a runner that gives none.
  setInterval(() => process.stdout.write('.'), BEAT_MS);
  process.once('SIGTERM', () => runner.drain());
  const reason = await runner.ended;
  const asked = reason === 'drained';
  if (!asked) console.error(`ended: ${reason}`);
  await bus.close();
  process.exit(asked ? 0 : 1);
}

function classOf(config: RunnerProcess, blobs: Blobs): RunnerClass {
  switch (config.class) {
    case 'process':
      return processClass({ directory: config.work, folders: config.folders, blobs });
    case 'sal':
      return salClass(
        new Registry([
          kvFamily({ path: config.kv_socket, token: config.kv_token }),
          fileFamily({ root: config.work, undo: config.undo }),
          noopFamily(),
        ]),
      );
    default:
      throw new HeroError('usage', `this version has no runner of class ${config.class}`);
  }
}
