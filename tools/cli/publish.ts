/**
 * `herobus publish`: puts sealed bytes on the bus as they are, and follows what becomes of them.
 *
 * It judges nothing: bytes that are no envelope at all are published too, and the refusal is told. That is
 * what the bus is for, and how it is tried out.
 */
import type { Command } from 'commander';
import type { FlowRef } from '../../schemas/ids.ts';
import { parseDuration } from './arguments.ts';
import { goalOf } from './command.ts';
import { openHome } from './home.ts';
import { globals, withExample } from './output.ts';
import { contextIn, readSealed, type Sealed } from './sealed.ts';
import { contextOf, withSession } from './session.ts';
import { submit } from './submit.ts';

type PublishOptions = { context?: string; detach?: boolean; placeWithin: string };

export function registerPublish(program: Command): void {
  const command = program
    .command('publish')
    .summary('publish sealed bytes and follow them')
    .description(
      'Publishes sealed bytes that `deploy --out` wrote, as they are, and follows their flow to its end. The same bytes twice are one flow.',
    )
    .argument('<file>', 'the sealed bytes; - reads them from standard input')
    .option('-c, --context <name>', 'publish to this context; by default the one they name')
    .option('--detach', 'only publish: print the flow id and do not wait')
    .option('--place-within <duration>', 'give up waiting when no node fits for this long', '30s')
    .action(async (path: string, options: PublishOptions, self: Command) => {
      const placeWithinMs = parseDuration(options.placeWithin, '--place-within');
      const home = await openHome(globals(self).home);
      const sealed = await readSealed(path);
      const context = contextOf(options.context ?? contextIn(sealed), home);
      const { bytes, digest, opened } = sealed;
      const signers = opened?.signatures.map(({ keyid }) => keyid) ?? [];
      process.exitCode = await withSession(self, (session) =>
        submit(
          session,
          {
            context,
            bytes,
            digest,
            ref: refOf(sealed, context),
            signers,
            ...(sealed.content?.type === 'command'
              ? { what: `${sealed.content.command.verb} of ${sealed.content.command.flow}` }
              : {}),
          },
          {
            json: globals(self).json ?? false,
            detach: options.detach ?? false,
            placeWithinMs,
            ...(sealed.content?.type === 'command'
              ? { goal: goalOf(sealed.content.command.verb, sealed.content.command.job) }
              : {}),
          },
        ),
      );
    });
  withExample(command, 'herobus publish web.sealed');
}

function refOf({ opened, content }: Sealed, context: string): FlowRef | undefined {
  if (content?.type === 'command') return { context, flow: content.command.flow };
  return opened === undefined ? undefined : { context, flow: opened.flow };
}
