/**
 * docs/tutorial.md is true: its commands are read from the document, typed as they stand there, and what they
 * print is compared with what it shows, by the rule it states (transcript.ts).
 *
 * Only `git clone` is not typed: it stands for a folder of links into this working tree, so that what the
 * reader makes is removed with it. `npm run demo` is, set-up included.
 */
import assert from 'node:assert/strict';
import { mkdirSync, readdirSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { test, type TestContext } from 'node:test';
import { temporaryFolder } from './nodes.ts';
import { Terminal } from './terminal.ts';
import {
  type Bindings,
  type Block,
  blocksOf,
  commandOf,
  stepsOf,
  withoutJobs,
} from './transcript.ts';

const ROOT = resolve(import.meta.dirname, '../..');
const WITHIN_MS = 90_000;
const OWN = new Set(['.git', '.cache']);

function cloneOf(t: TestContext): { tree: string; env: NodeJS.ProcessEnv } {
  const folder = temporaryFolder(t);
  const [tree, user, temporary] = ['herobus', 'user', 'tmp'].map((name) => {
    const path = join(folder, name);
    mkdirSync(path);
    return path;
  }) as [string, string, string];
  for (const name of readdirSync(ROOT)) {
    if (!OWN.has(name)) symlinkSync(join(ROOT, name), join(tree, name));
  }
  const { HEROBUS_SERVER: _server, ...rest } = process.env;
  const own = { HOME: user, HEROBUS_HOME: join(user, '.herobus'), TMPDIR: temporary };
  return { tree, env: { ...rest, ...own, NO_COLOR: '1' } };
}

/** A reader with the terminals the document names, and what its ids are in this run. */
class Reader {
  readonly #open: () => Terminal;
  readonly #terminals = new Map<string, Terminal>();
  #bindings: Bindings = new Map();

  constructor(open: () => Terminal) {
    this.#open = open;
  }

  async follow(block: Block): Promise<void> {
    const steps = stepsOf(block);
    for (const [n, { command, printed }] of steps.entries()) {
      if (command?.startsWith('git clone ')) continue;
      const terminal = this.#terminal(block.terminal);
      if (command !== null) terminal.type(commandOf(command, this.#bindings));
      const on = block.terminal !== '' && n === steps.length - 1;
      const seen = await terminal
        .expect(printed, this.#bindings, { on, withinMs: WITHIN_MS })
        .catch((error: Error) => assert.fail(`$ ${command ?? ''}\n${error.message}`));
      this.#bindings = seen.bindings;
      const told = steps[n + 1]?.command === 'echo $?';
      if (!on && !told) assert.equal(seen.code, 0, `${command} ends with 0`);
    }
  }

  section(): void {
    this.#bindings = withoutJobs(this.#bindings);
  }

  #terminal(name: string): Terminal {
    const terminal = this.#terminals.get(name) ?? this.#open();
    this.#terminals.set(name, terminal);
    return terminal;
  }
}

test('tutorial - its commands print what it shows', async (t) => {
  const blocks = blocksOf(readFileSync(join(ROOT, 'docs', 'tutorial.md'), 'utf8'));
  const { tree, env } = cloneOf(t);
  const reader = new Reader(() => new Terminal(t, tree, env));
  let section = '';
  for (const block of blocks) {
    if (block.section !== section) reader.section();
    section = block.section;
    const file = /^\/\/ (\S+\.rhai)/.exec(block.lines[0] ?? '')?.[1];
    if (block.language === 'console') await reader.follow(block);
    else if (file !== undefined) writeFileSync(join(tree, file), block.lines.join('\n'));
  }
});

test('tutorial - two nodes and an own script are five commands away', () => {
  const blocks = blocksOf(readFileSync(join(ROOT, 'docs', 'tutorial.md'), 'utf8'));
  const commands = blocks
    .filter(({ language }) => language === 'console')
    .flatMap((block) => stepsOf(block))
    .flatMap(({ command }) => command ?? []);
  const first = commands.slice(0, 5);
  assert.match(first[0] ?? '', /^git clone /);
  assert.match(first[1] ?? '', /^npm run demo$/);
  assert.equal(first.filter((command) => command.includes(' up ')).length, 2);
  assert.match(first[3] ?? '', / --join /);
  assert.match(first[4] ?? '', / deploy fifty\.rhai$/);
});
