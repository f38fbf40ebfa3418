/** `--help` of every command: an example, which the command itself would take. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Command } from 'commander';
import { parseFlowName } from '../../tools/cli/flow-view.ts';
import { acts, allCommands } from './commands.ts';

const commands = await allCommands();
const program = commands.get('') as Command;

/** As a shell would cut it: quotes hold together, pipes and redirections are not the command's. */
function words(line: string): string[] {
  const [, own = ''] = /(herobus .*?)(?: [<|>] .*)?$/.exec(line) ?? [];
  return [...own.matchAll(/"([^"]*)"|'([^']*)'|(\S+)/g)]
    .map(([, double, single, bare]) => double ?? single ?? bare ?? '')
    .slice(1);
}

/** What stands under `Example:` or `Examples:` of a command's help. */
function examplesOf(name: string): string[] {
  let help = '';
  const command = commands.get(name);
  command?.configureOutput({
    writeOut: (text) => {
      help += text;
    },
  });
  command?.outputHelp();
  const [, examples = ''] = /\nExamples?:\n((?: {2}\$ .*\n?)+)/.exec(help) ?? [];
  return examples.split('\n').flatMap((line) => (line === '' ? [] : [line.slice(4)]));
}

for (const name of commands.keys()) {
  test(`help - herobus ${name}: its examples are commands that it takes`, () => {
    const examples = examplesOf(name);
    assert.notEqual(examples.length, 0, 'it has no example');
    assert.ok(
      examples.some((line) => line.includes(`${name} `) || line.endsWith(name)),
      `none of its examples is one of \`herobus ${name}\``,
    );
    for (const line of examples) assertTaken(line);
  });
}

function assertTaken(line: string): void {
  // The options of herobus itself may stand before the command.
  const { operands: given, unknown: more } = program.parseOptions(words(line));
  let rest = [...given, ...more];
  let name = '';
  while (rest[0] !== undefined && commands.has(`${name} ${rest[0]}`.trim())) {
    name = `${name} ${rest[0]}`.trim();
    rest = rest.slice(1);
  }
  const command = commands.get(name);
  assert.ok(name !== '' && command !== undefined && acts(command), `${line}: no such command`);
  const { operands, unknown } = command.parseOptions(rest);
  assert.deepEqual(unknown, [], line);
  const wanted = command.registeredArguments;
  const least = wanted.filter(({ required }) => required).length;
  if (wanted[0]?.name() === 'id') parseFlowName(operands[0] ?? '');
  assert.ok(operands.length >= least && operands.length <= wanted.length, line);
}
