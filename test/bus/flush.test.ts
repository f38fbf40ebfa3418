/**
 * What is acknowledged was flushed: the server that the product starts, watched from outside while it stores
 * one deployment. Power that is really cut is test/system/power-loss.test.ts.
 *
 * Method: strace follows the server's threads. A call of theirs may stand in two lines, `unfinished` where it
 * began and `resumed` where it ended, with others between; only a flush that began after the write ended, and
 * ended before the acknowledgement began to leave, counts.
 */
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { test, type TestContext } from 'node:test';
import { publishAcked } from '../../bus/jetstream.ts';
import type { Durability } from '../../schemas/config.ts';
import { onPath } from '../../tools/bench/workspace.ts';
import { CONTEXT } from './fixtures.ts';
import { startRealBus } from './real-bus.ts';

const TRACED = 'write,writev,pwrite64,pwritev,sendto,sendmsg,fsync,fdatasync,sync_file_range,msync';
const BLOCK = /\/streams\/HB_DEPLOY\/msgs\/\d+\.blk>/;

/** One system call: what was called on what, and the lines of the trace where it began and ended. */
type Call = { name: string; text: string; began: number; ended: number };

function callsIn(trace: string): Call[] {
  const open = new Map<string, Call>();
  const calls: Call[] = [];
  for (const [at, line] of trace.split('\n').entries()) {
    const [, pid = '', text = ''] = /^(\d+) +(.*)$/.exec(line) ?? [];
    const resumed = /^<\.\.\. \w+ resumed>/.test(text) ? open.get(pid) : undefined;
    if (resumed !== undefined) {
      resumed.ended = at;
      open.delete(pid);
      continue;
    }
    const name = /^(\w+)\(/.exec(text)?.[1];
    if (name === undefined) continue;
    const unfinished = text.endsWith('<unfinished ...>');
    const call = { name, text, began: at, ended: unfinished ? Infinity : at };
    if (unfinished) open.set(pid, call);
    calls.push(call);
  }
  return calls;
}

type Followed = { calls: () => Promise<Call[]> } | { refused: string };

/** Follows the server from when it is attached to; `calls` ends that. Not everywhere may it be attached to. */
async function follow(t: TestContext, pid: number, file: string): Promise<Followed> {
  const strace = onPath('strace');
  if (strace === null) return { refused: 'missing: strace (npm run setup -- --system)' };
  const args = ['-f', '-y', '-s', '2048', '-e', `trace=${TRACED}`, '-o', file, '-p', String(pid)];
  const tracer = spawn(strace, args, { stdio: ['ignore', 'ignore', 'pipe'] });
  const gone = once(tracer, 'close');
  t.after(async () => {
    tracer.kill('SIGINT');
    await gone;
  });
  let said = '';
  const attached = Promise.withResolvers<void>();
  tracer.stderr.setEncoding('utf8').on('data', (text: string) => {
    said += text;
    if (said.includes(' attached')) attached.resolve();
  });
  await Promise.race([attached.promise, gone]);
  if (said.includes('not permitted')) return { refused: said.trim() };
  assert.match(said, / attached/, `strace follows the server: ${said}`);
  return {
    calls: async () => {
      tracer.kill('SIGINT');
      await gone;
      return callsIn(await readFile(file, 'utf8'));
    },
  };
}

/** What the server did from the publish to the acknowledgement, which has come; undefined: skipped. */
async function whileDeploying(t: TestContext, durability: Durability): Promise<Call[] | undefined> {
  const bus = await startRealBus({ durability });
  t.after(() => bus.close());
  const { nats } = bus.controlConnection;
  const followed = await follow(t, bus.server.pid() ?? 0, join(bus.dataDir, 'trace'));
  if ('refused' in followed) {
    t.skip(followed.refused);
    return undefined;
  }
  const data = Buffer.from('a sealed deployment');
  const ack = await publishAcked(nats, `hb.deploy.${CONTEXT}`, data, { timeoutMs: 20_000 });
  assert.equal(ack.stream, 'HB_DEPLOY');
  return followed.calls();
}

const isAck = ({ text }: Call): boolean => text.includes('\\"stream\\":\\"HB_DEPLOY\\"');
const isFlush = ({ name, text }: Call): boolean => /^f(data)?sync$/.test(name) && BLOCK.test(text);

function leaving(calls: Call[]): Call {
  const ack = calls.find(isAck);
  assert.ok(ack !== undefined, 'the acknowledgement was seen to leave');
  return ack;
}

test('flush - with fsync a deployment is on the disk before its acknowledgement leaves', async (t) => {
  const calls = await whileDeploying(t, 'fsync');
  if (calls === undefined) return;
  const ack = leaving(calls);
  const writes = calls.filter(({ name, text }) => /^pwrite|^write/.test(name) && BLOCK.test(text));
  const stored = writes.find(({ text }) => text.includes('a sealed deployment'));
  assert.ok(stored !== undefined, 'the block was written');
  const flush = calls.find((call) => isFlush(call) && call.began > stored.ended);
  assert.ok(flush !== undefined && flush.ended < ack.began, JSON.stringify({ stored, flush, ack }));
});

test('flush - relaxed acknowledges without waiting for the disk', async (t) => {
  const calls = await whileDeploying(t, 'relaxed');
  if (calls === undefined) return;
  const ack = leaving(calls);
  assert.deepEqual(
    calls.filter((call) => isFlush(call) && call.began < ack.began),
    [],
  );
});
