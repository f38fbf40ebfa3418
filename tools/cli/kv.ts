/**
 * `herobus kv …`: the caller's own bucket, which his scripts reach with kv_get and kv_set.
 *
 * Values are JSON, typed as arguments are. There is one bucket a user, whatever the context.
 */
import type { Command } from 'commander';
import type { Kv } from '../../bus/bus.ts';
import { userBucket } from '../../bus/streams.ts';
import { HeroError } from '../../schemas/errors.ts';
import { exactJson, stringifyTyped } from '../../schemas/json.ts';
import { parseTyped } from './arguments.ts';
import { globals, print, printJson, valueText, withExample } from './output.ts';
import { contextOf, withSession } from './session.ts';

export function registerKv(program: Command): void {
  const kv = program
    .command('kv')
    .summary('your own state bucket')
    .description('Your own state bucket: what your scripts reach with kv_get and kv_set.');
  registerGet(kv);
  registerSet(kv);
  registerDel(kv);
  registerList(kv);
  withExample(kv, 'herobus kv get fleet/summary');
}

type KvOptions = { context?: string };

function withContext(command: Command): Command {
  return command.option(
    '-c, --context <name>',
    'checked only: the bucket is yours in every context',
  );
}

async function withBucket(
  self: Command,
  { context }: KvOptions,
  act: (bucket: Kv) => Promise<void>,
): Promise<void> {
  await withSession(self, async ({ bus, home }) => {
    contextOf(context, home);
    await act(bus.kv(userBucket(bus.address)));
  });
}

function registerGet(kv: Command): void {
  const command = withContext(kv.command('get'))
    .description('Prints the value of a key as JSON; exit code 1 when there is none.')
    .argument('<key>')
    .action((key: string, options: KvOptions, self: Command) =>
      withBucket(self, options, async (bucket) => {
        const entry = await bucket.get(key);
        if (entry === undefined) {
          throw new HeroError('not_found', `there is no key "${key}"`, {
            fix: 'See what there is with `herobus kv list`.',
          });
        }
        if (globals(self).json) printJson('value', entry.value ?? null);
        else print(valueText(entry.value));
      }),
    );
  withExample(command, 'herobus kv get fleet/summary');
}

function registerSet(kv: Command): void {
  const command = withContext(kv.command('set'))
    .description('Sets a key to a text, or with --typed to JSON.')
    .argument('<key>')
    .argument('<value>')
    .option('--typed', 'the value is JSON: 3, 3.5, true, null, "text", […], {…}')
    .action((key: string, value: string, options: KvOptions & { typed?: true }, self: Command) => {
      const typed = options.typed ? stringifyTyped(parseTyped(value, 'the value')) : undefined;
      return withBucket(self, options, async (bucket) => {
        const revision = await bucket.put(key, typed === undefined ? value : exactJson(typed));
        if (globals(self).json) printJson('kv-set', { key, revision });
      });
    });
  withExample(command, 'herobus kv set greeting hello', 'herobus kv set limit 3 --typed');
}

function registerDel(kv: Command): void {
  const command = withContext(kv.command('del'))
    .description('Deletes a key; one that is not there is no failure.')
    .argument('<key>')
    .action((key: string, options: KvOptions, self: Command) =>
      withBucket(self, options, async (bucket) => {
        const entry = await bucket.get(key);
        if (entry !== undefined) await bucket.delete(key, entry.revision);
        if (globals(self).json) printJson('kv-del', { key, deleted: entry !== undefined });
      }),
    );
  withExample(command, 'herobus kv del greeting');
}

function registerList(kv: Command): void {
  const command = withContext(kv.command('list'))
    .description('Lists the keys, or those that begin with a prefix, sorted.')
    .argument('[prefix]')
    .action((prefix: string | undefined, options: KvOptions, self: Command) =>
      withBucket(self, options, async (bucket) => {
        const keys = await bucket.list(prefix ?? '');
        if (globals(self).json) printJson('keys', keys);
        else for (const key of keys) print(key);
      }),
    );
  withExample(command, 'herobus kv list fleet/');
}
