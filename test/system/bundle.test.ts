/**
 * Deployments of several files, files sent along, and values too large for the log: through the whole
 * system, over a kill of the node in the middle.
 */
import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { test } from 'node:test';
import { connectAs } from './evidence.ts';
import { DEPLOY, deployment, makeKey, seal, seedOf } from './foreign-client.ts';
import {
  flowOf,
  herobus,
  type Node,
  type Ran,
  startNode,
  temporaryFolder,
  until,
} from './nodes.ts';

const MIB = 1024 * 1024;
const RUNNERS = ['--runners', 'process=2,sal=1'];
const sha256 = (bytes: string | Uint8Array): string =>
  createHash('sha256').update(bytes).digest('hex');

/** Two modules, one of which imports the other; a file placed twice, before and after the kill. */
const BUNDLE: Record<string, string> = {
  'main.rhai': `
    import "parts/jobs" as jobs;
    let before = jobs::greet("before");
    let big = jobs::big(${MIB});
    let length = big.len();
    log("the large value is read");
    sleep("4s");
    let after = jobs::greet("after");
    #{ before: before, after: after, length: length, again: jobs::big(${MIB}).len(), big: big }
  `,
  'parts/jobs.rhai': `
    import "text" as text;
    fn greet(name) {
      let job = process(#{
        cmd: "./run.sh", args: [name],
        files: #{ "run.sh": "run", "data/greeting.txt": "greeting" }
      });
      text::tidy(job.value.stdout)
    }
    fn big(size) {
      join(process("sh", ["-c", "head -c " + size + " /dev/zero | tr '\\\\0' x > big.txt"]));
      join(sal("file.read", #{ path: "big.txt" }))
    }
  `,
  'parts/text.rhai': 'fn tidy(line) { line.trim(); line }',
  'run.sh': '#!/bin/sh\necho "$1: $(cat data/greeting.txt) in $(basename "$PWD")"\n',
  'greeting.txt': 'hello',
};

function write(folder: string, files: Record<string, string>): void {
  for (const [path, text] of Object.entries(files)) {
    mkdirSync(dirname(join(folder, path)), { recursive: true });
    writeFileSync(join(folder, path), text);
  }
}

const cli = (node: Node, ...args: string[]): Promise<Ran> =>
  herobus(node.home, ['--server', node.ready?.server ?? '', '--json', ...args]);

const lastLine = ({
  stdout,
  stderr,
}: Ran): { flow: string; status: string; error: { code: string; message: string } } => {
  assert.notEqual(stdout, '', stderr);
  return JSON.parse(stdout.trim().split('\n').at(-1) ?? '');
};

test('a bundle with files and large values ends as if its node had not been killed', async (t) => {
  const folder = temporaryFolder(t);
  write(folder, BUNDLE);
  const node = await startNode(t, RUNNERS);
  const { server = '' } = node.ready ?? {};
  const ran = await cli(
    node,
    ...`deploy ${folder}/main.rhai --detach --grant file`.split(' '),
    ...`--file run=${folder}/run.sh --file greeting=${folder}/greeting.txt`.split(' '),
  );
  assert.equal(ran.code, 0, ran.stderr);
  const { flow } = lastLine(ran);
  const work = join(node.data, 'jobs');
  await until(
    'the large value',
    async () => {
      const { jobs } = await flowOf(node.home, server, flow);
      return jobs[2]?.status === 'completed' || undefined;
    },
    60_000,
  );
  await node.kill('SIGKILL');
  await node.start();
  const shown = await until(
    'the end',
    async () => {
      const seen = await flowOf(node.home, server, flow);
      return ['completed', 'failed'].includes(seen.status) ? seen : undefined;
    },
    90_000,
  );
  assert.equal(shown.status, 'completed', JSON.stringify(shown.error));
  const value = shown.value as {
    before: string;
    after: string;
    length: number;
    again: number;
    big: string;
  };
  assert.match(value.before, new RegExp(`^before: hello in ${flow}\\.0\\.1-`));
  assert.match(value.after, new RegExp(`^after: hello in ${flow}\\.\\d+\\.1-`));
  assert.deepEqual([value.length, value.again, value.big], [MIB, MIB, 'x'.repeat(MIB)]);
  const large = shown.jobs.filter(({ name }) => name === 'file.read') as { value?: unknown }[];
  assert.deepEqual(
    large.map((job) => job.value === value.big),
    [true, true],
  );
  assert.ok(
    shown.jobs.every(({ attempt }) => attempt === 1),
    'no job ran twice',
  );
  assert.deepEqual(
    readdirSync(work).flatMap((runner) => readdirSync(join(work, runner))),
    [],
    'the folders of the jobs are gone',
  );

  await t.test('a value whose blob was altered is named instead of shown', async () => {
    const nats = await connectAs(node.home, node.data, server);
    t.after(() => nats.close());
    const digest = sha256(JSON.stringify(value.big));
    await nats.request(`hb.blobs.default.${digest}.0`, 'not what it was');
    const job = await cli(node, 'flow', `${flow}.2`);
    const { value: none, value_error: error } = JSON.parse(job.stdout) as {
      value: unknown;
      value_error: { code: string; message: string };
    };
    assert.equal(none, null);
    assert.equal(error.code, 'unverifiable');
    assert.match(error.message, /^the value of 10485\d\d bytes was altered/);
  });
});

test('files and imports that are not what they should be fail by name', async (t) => {
  const folder = temporaryFolder(t);
  const node = await startNode(t, RUNNERS);
  const { server = '' } = node.ready ?? {};
  write(folder, {
    'main.rhai': 'process(#{ cmd: "cat", args: ["f"], files: ["f"] }).value.stdout',
    f: 'as it was signed',
  });
  const sealed = join(folder, 'sealed');
  const main = join(folder, 'main.rhai');
  const out = await cli(node, 'deploy', main, '--file', join(folder, 'f'), '--out', sealed);
  assert.equal(out.code, 0, out.stderr);
  const nats = await connectAs(node.home, node.data, server);
  t.after(() => nats.close());
  await nats.request(`hb.blobs.default.${sha256('as it was signed')}.0`, 'as it was forged');
  const altered = await cli(node, 'publish', sealed);
  assert.equal(altered.code, 1, altered.stderr);
  assert.equal(lastLine(altered).error.code, 'unverifiable');
  assert.match(lastLine(altered).error.message, /the file f was altered/);

  // Who has the bytes mends the blob by sending them again.
  const again = await cli(node, 'deploy', main, '--file', `f=${join(folder, 'f')}`);
  assert.equal((lastLine(again) as { value?: string }).value, 'as it was signed', again.stderr);

  const key = makeKey(seedOf(readFileSync(join(node.home, 'key.nk'), 'utf8')));
  const foreign = {
    ...deployment('import "lib/cat" as c; c::cat("f")'),
    modules: { 'lib/cat': 'fn cat(f) { process(#{ cmd: "cat", args: [f], files: [f] }).value }' },
    files: { f: { sha256: sha256('never sent'), size: 10 } },
  };
  writeFileSync(sealed, seal(Buffer.from(JSON.stringify(foreign)), DEPLOY, key));
  const missing = await cli(node, 'publish', sealed);
  assert.equal(missing.code, 1, missing.stderr);
  assert.equal(lastLine(missing).error.code, 'not_found');
  assert.match(lastLine(missing).error.message, /^lib\/cat line 1: .*the file f is gone/);
  assert.ok(!existsSync(join(node.data, 'work', 'f')));
});

test('deployments up to the largest envelope go the whole way', async (t) => {
  const folder = temporaryFolder(t);
  const node = await startNode(t, RUNNERS);
  const filler = (bytes: number): string => `// ${'x'.repeat(97)}\n`.repeat(Math.ceil(bytes / 101));
  write(folder, {
    'large.rhai': `${filler(300 * 1024)}import "half" as h;\nh::hello(arg("text").len())`,
    'half.rhai': `${filler(180 * 1024)}fn hello(n) { process("echo", [\`\${n}\`]).value.stdout }`,
  });
  const ran = await cli(
    node,
    ...`deploy ${folder}/large.rhai --arg text=${'y'.repeat(120 * 1024)}`.split(' '),
    ...`--arg more=${'z'.repeat(120 * 1024)}`.split(' '),
  );
  const done = lastLine(ran) as { value?: string; status: string };
  assert.deepEqual([done.status, done.value], ['completed', `${120 * 1024}\n`], ran.stderr);
});
