/**
 * `herobus logs` on a real node: complete and in order, in bounded memory, through kills of the client and
 * of the server; and what jobs used.
 */
import assert from 'node:assert/strict';
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { test, type TestContext } from 'node:test';
import { OutputLine } from '../../schemas/job.ts';
import { HEROBUS, herobus, type Node, startNode, until } from './nodes.ts';

const LINES = 200_000;
const WITHIN_MS = 120_000;
const MIB = 1024 * 1024;
/** Node itself with the CLI loaded takes about 100 MiB; the job's output as JSON lines has 26 MiB. */
const RSS_MAX = 220 * MIB;

type Line = { seq: number; line: string };

/** One `herobus logs`, read as it comes, or when the test says so. */
class Client {
  readonly lines: Line[] = [];
  readonly child: ChildProcess;
  readonly ended: Promise<number | null>;
  /** The most resident memory it was seen with. */
  peak = 0;
  stderr = '';
  #rest = '';

  constructor(t: TestContext, node: Node, args: string[]) {
    const all = [HEROBUS, '--home', node.home, '--server', node.ready?.server ?? '', ...args];
    this.child = spawn(process.execPath, all, { stdio: ['ignore', 'pipe', 'pipe'] });
    this.child.stderr?.setEncoding('utf8').on('data', (text: string) => {
      this.stderr += text;
    });
    // `close`: when all that it had written was read, also after a kill.
    this.ended = once(this.child, 'close').then(([code]) => code as number | null);
    const timer = setInterval(() => this.#measure(), 20);
    void this.ended.then(() => clearInterval(timer));
    t.after(() => this.child.kill('SIGKILL'));
  }

  read(): this {
    this.child.stdout?.setEncoding('utf8').on('data', (text: string) => {
      const parts = (this.#rest + text).split('\n');
      // What a killed client had not written to its end is no line.
      this.#rest = parts.pop() ?? '';
      for (const part of parts) this.lines.push(JSON.parse(part) as Line);
    });
    return this;
  }

  #measure(): void {
    try {
      const status = readFileSync(`/proc/${this.child.pid}/status`, 'utf8');
      const kib = Number(/^VmHWM:\s*(\d+)/m.exec(status)?.[1] ?? 0);
      this.peak = Math.max(this.peak, kib * 1024);
    } catch {
      // It has ended.
    }
  }
}

async function deploy(node: Node, script: string): Promise<string> {
  const { server = '' } = node.ready ?? {};
  const ran = await herobus(node.home, ['--server', server, 'deploy', '-', '--detach'], script);
  assert.equal(ran.code, 0, ran.stderr);
  return ran.stdout.trim();
}

async function logs(node: Node, ...args: string[]): Promise<Line[]> {
  const { server = '' } = node.ready ?? {};
  const ran = await herobus(node.home, ['--server', server, '--json', 'logs', ...args]);
  assert.equal(ran.code, 0, ran.stderr);
  return ran.stdout.split('\n').flatMap((line) => (line === '' ? [] : [JSON.parse(line) as Line]));
}

const counting = (count: number): string => `
  let h = process("seq", ["-f", "line %.0f", "1", "${count}"]);
  join(h).code`;

function assertCounts(lines: readonly Line[], count: number, what: string): void {
  const wrong = lines.findIndex(({ line }, i) => line !== `line ${i + 1}`);
  assert.equal(wrong, -1, `${what}: line ${wrong} is ${lines[wrong]?.line}`);
  assert.equal(lines.length, count, what);
  assertRising(lines, what);
}

function assertRising(lines: readonly Line[], what: string): void {
  const back = lines.findIndex(({ seq }, i) => i > 0 && seq <= (lines[i - 1]?.seq ?? 0));
  assert.equal(back, -1, `${what}: seq ${lines[back]?.seq} comes after ${lines[back - 1]?.seq}`);
}

test(`logs -f of ${LINES} lines: complete, in order, in bounded memory; a killed client resumed misses none`, async (t) => {
  const node = await startNode(t);
  const flow = await deploy(node, counting(LINES));
  const begunMs = performance.now();
  const slow = new Client(t, node, ['--json', 'logs', flow, '-f']);
  const fast = new Client(t, node, ['--json', 'logs', `${flow}.0`, '-f']).read();

  // Killed again and again, each time in the middle of a page, and resumed behind the last whole line.
  const got: Line[] = [];
  let kills = 0;
  for (let done = false; !done; ) {
    const last = got.at(-1)?.seq;
    const from = last === undefined ? [] : ['--from', String(last + 1)];
    const client = new Client(t, node, ['--json', 'logs', flow, '-f', ...from]).read();
    const wanted = 37_123;
    if (got.length + wanted < LINES) {
      await until(
        'the middle',
        () => Promise.resolve(client.lines.length >= wanted || undefined),
        WITHIN_MS,
      );
      client.child.kill('SIGKILL');
      kills++;
      await client.ended;
    } else {
      assert.equal(await client.ended, 0, client.stderr);
      done = true;
    }
    for (const line of client.lines) got.push(line);
  }
  assert.ok(kills >= 3, `only ${kills} kills`);
  assertCounts(got, LINES, 'killed and resumed');

  assert.equal(await fast.ended, 0, fast.stderr);
  assertCounts(fast.lines, LINES, 'followed');
  // Nobody has read a byte of its output so far: it holds a page, not the flow's output.
  const unread = slow.peak;
  assert.equal(slow.child.exitCode, null, 'it ended though nobody had read its output');
  slow.read();
  assert.equal(await slow.ended, 0, slow.stderr);
  assertCounts(slow.lines, LINES, 'read late');
  const mib = [fast.peak, unread, slow.peak].map((bytes) => (bytes / MIB).toFixed(0));
  t.diagnostic(
    `${Math.round(performance.now() - begunMs)} ms, ${kills} kills; resident at most ${mib[0]} MiB followed, ${mib[1]} MiB unread, ${mib[2]} MiB read late`,
  );
  assert.ok(Math.max(fast.peak, slow.peak) < RSS_MAX, `${mib.join(', ')} MiB resident`);

  const { server = '' } = node.ready ?? {};
  const raw = await herobus(node.home, ['--server', server, 'logs', `${flow}.0`]);
  assert.equal(raw.stdout.split('\n')[LINES - 1], `line ${LINES}`);
  assert.equal(raw.stderr, '');
});

test('logs -f through kills of the server: what is stored is shown, none twice', async (t) => {
  const node = await startNode(t);
  const count = 1500;
  const script = `
    let h = process("sh", ["-c", "i=0; while [ $i -lt ${count} ]; do i=$((i+1)); echo line $i; sleep 0.005; done"]);
    join(h).code`;
  const flow = await deploy(node, script);
  const client = new Client(t, node, ['--json', 'logs', flow, '-f']).read();
  for (const share of [0.2, 0.5]) {
    const seen = () => Promise.resolve(client.lines.length >= count * share || undefined);
    await until(`${share} of the lines`, seen, WITHIN_MS);
    process.kill(serverOf(node), 'SIGKILL');
  }
  assert.equal(await client.ended, 0, client.stderr);
  assert.match(client.stderr, /bus +is away/);
  const stored = await logs(node, flow);
  assert.equal(new Set(client.lines.map(({ line }) => line)).size, client.lines.length, 'doubled');
  const shown = new Set(client.lines.map(({ line }) => line));
  const missed = stored.filter(({ line }) => !shown.has(line));
  assert.deepEqual(missed, [], `${client.stderr}`);
  t.diagnostic(`${client.lines.length} shown, ${stored.length} of ${count} stored`);
  assert.equal(client.lines.at(-1)?.line, `line ${count}`);
});

function serverOf(node: Node): number {
  const children = readFileSync(`/proc/${node.pid}/task/${node.pid}/children`, 'utf8').split(' ');
  const found = children.find(
    (pid) => pid !== '' && readFileSync(`/proc/${pid}/cmdline`, 'utf8').includes('nats-server'),
  );
  assert.ok(found !== undefined, 'no nats-server');
  return Number(found);
}

test('logs: whole flow, one job, since, SIGINT; usage in the flow object and in a time-out', async (t) => {
  const node = await startNode(t);
  const { server = '' } = node.ready ?? {};
  const burn = `const held = Buffer.alloc(64 * 1024 * 1024, 1); while (process.cpuUsage().user < 300000); console.log(held.length)`;
  const flow = await deploy(
    node,
    `log("begin\\nsecond");
     let talk = process("sh", ["-c", "echo out; echo err >&2; sleep 0.2; echo last"]);
     let burn = process("${process.execPath}", ["-e", "${burn}"]);
     let slow = process(#{ cmd: "sleep", args: ["60"], timeout: "700ms" });
     let seen = try_join(slow);
     join(burn);
     log("end");
     seen.error`,
  );
  const followed = await herobus(node.home, ['--server', server, 'logs', flow, '-f']);
  const texts = followed.stdout.trimEnd().split('\n');
  assert.equal(followed.code, 0, followed.stderr);
  assert.deepEqual(texts.slice(0, 2), ['script | begin', 'script | second']);
  assert.equal(texts.at(-1), 'script | end');
  assert.deepEqual(texts.filter((line) => line.startsWith('0 ')).sort(), [
    '0      | err',
    '0      | last',
    '0      | out',
  ]);
  const one = await herobus(node.home, ['--server', server, 'logs', `${flow}.0`]);
  assert.deepEqual([one.stdout, one.stderr], ['out\nlast\n', 'err\n']);

  const all = await logs(node, flow);
  for (const line of all) OutputLine.parse(line);
  const { at } = OutputLine.parse(all.find(({ line }) => line === 'last'));
  const late = await logs(node, flow, '--since', at);
  assert.ok(late.length >= 2 && late.length < all.length);
  assert.equal((await logs(node, flow, '--since', '1h')).length, all.length);
  assert.equal((await logs(node, flow, '--from', String((all.at(-1)?.seq ?? 0) + 1))).length, 0);
  const none = await herobus(node.home, ['--server', server, 'logs', `${flow}.7`]);
  assert.equal(none.code, 1);
  assert.match(none.stderr, /has no job 7/);

  const shown = await herobus(node.home, ['--server', server, '--json', 'flow', flow]);
  const { jobs } = JSON.parse(shown.stdout) as {
    jobs: {
      usage: { cpu_ms: number; memory_peak_bytes: number | null } | null;
      error: { message: string } | null;
    }[];
  };
  const used = jobs[1]?.usage;
  t.diagnostic(`burned 300 ms and held 64 MiB: ${JSON.stringify(used)}`);
  assert.ok((used?.cpu_ms ?? 0) >= 300 && (used?.cpu_ms ?? 0) < 1500);
  assert.ok((used?.memory_peak_bytes ?? 0) >= 64 * MIB);
  assert.match(
    jobs[2]?.error?.message ?? '',
    /did not end within 700 ms and was killed; it had used 0\.\d\d s of cpu, \d+\.\d MiB of memory at its peak(, \d+\.\d MiB (read|written))*$/,
  );

  const waiting = await deploy(
    node,
    'let h = process("sh", ["-c", "echo first; sleep 60"]); join(h)',
  );
  const client = new Client(t, node, ['--json', 'logs', waiting, '-f']).read();
  await until('a line', () => Promise.resolve(client.lines[0]), WITHIN_MS);
  client.child.kill('SIGINT');
  assert.equal(await client.ended, 130);
  const next = (client.lines[0]?.seq ?? 0) + 1;
  assert.match(
    client.stderr,
    new RegExp(
      `^interrupted go on with: herobus logs ${waiting} -f --from ${next} --home \\S+ --server \\S+\n$`,
    ),
  );
  await herobus(node.home, ['--server', server, 'cancel', waiting]);
});
