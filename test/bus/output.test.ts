/**
 * Reading the output of flows on a real nats-server, as a user whose consumers the ledger makes. P1-P3 are the
 * invariants of `bus/output.ts`.
 */
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { Followers } from '../../actors/ledger/followers.ts';
import { newIdentity } from '../../bus/identity.ts';
import { callApi } from '../../bus/jetstream.ts';
import { openNatsBus, type NatsBus } from '../../bus/nats.ts';
import type { OutputMessage, OutputReader } from '../../bus/output.ts';
import { streams, subjects } from '../../bus/subjects.ts';
import type { FlowRef } from '../../schemas/ids.ts';
import { FollowRequest } from '../../schemas/ledger.ts';
import { CONTEXT, controlBus, newFlow, newIncarnation, nodeBus, until } from './fixtures.ts';
import { type RealBus, startRealBus } from './real-bus.ts';

let bus: RealBus;
let control: NatsBus;
let node: NatsBus;
let user: NatsBus;
let asked = 0;

before(async () => {
  bus = await startRealBus({ contexts: [CONTEXT] });
  control = await controlBus(bus);
  node = await nodeBus(bus);
  const { admin } = control;
  const followers = new Followers(
    { follower: (spec) => admin.follower(spec), queue: (spec) => admin.queue(spec) },
    () => performance.now(),
  );
  control.subscribe('hb.ledger.follow', ({ data, caller = '', reply }) => {
    asked++;
    const request = FollowRequest.parse(JSON.parse(Buffer.from(data).toString()));
    followers.follow(request, caller, true).then(
      (ok) => reply?.({ ok }),
      (error: Error) => reply?.({ error: { code: 'internal', message: error.message, fix: null } }),
    );
  });
  const identity = newIdentity();
  const jwt = await bus.issuer.user(identity.principal, { reads: [CONTEXT], executes: [] });
  user = await openNatsBus({
    kind: 'user',
    server: bus.server.url,
    identity,
    incarnation: newIncarnation(),
    jwt: () => jwt,
  });
  bus.onClose(() => user.close());
});
after(() => bus.close());

const everything = { job: null, from: null, since: null };
const text = ({ data }: OutputMessage): string =>
  (JSON.parse(Buffer.from(data).toString()) as { text: string }).text;

async function write(ref: FlowRef, n: number | 'main', from: number, count: number, pad = '') {
  const subject = n === 'main' ? subjects.scriptLog(ref) : subjects.logs(ref, n);
  for (let i = from; i < from + count; i++) {
    await node.queues.publish(subject, { text: `${n}:${i}`, pad });
  }
}

const numbered = (n: number | 'main', count: number): string[] =>
  Array.from({ length: count }, (_, i) => `${n}:${i}`);

/** All that is stored now. */
async function drain(reader: OutputReader): Promise<OutputMessage[]> {
  const all: OutputMessage[] = [];
  for (;;) {
    const page = await reader.next();
    if (page.length === 0) return all;
    all.push(...page);
  }
}

/** Waits for `count` messages. */
async function take(reader: OutputReader, count: number): Promise<string[]> {
  const signal = AbortSignal.timeout(60_000);
  const got: string[] = [];
  while (got.length < count) {
    got.push(...(await reader.next(signal)).map(text));
    assert.ok(!signal.aborted, `${got.length} of ${count} came`);
  }
  return got;
}

test('output - pages in order: of a flow, of one job, from a sequence on, since a time (P1)', async () => {
  const ref = newFlow();
  await write(ref, 0, 0, 100);
  await until(() => Date.now() % 20 === 0, 'another millisecond');
  const middle = Date.now();
  await write(ref, 'main', 0, 20);
  await write(newFlow(), 0, 0, 5);
  await write(ref, 1, 0, 80);
  const all = await drain(user.output({ ...everything, ref }));
  const expected = [...numbered(0, 100), ...numbered('main', 20), ...numbered(1, 80)];
  assert.deepEqual(all.map(text), expected);
  assert.deepEqual(all[100]?.job, 'main');
  const one = await drain(user.output({ ...everything, ref, job: 1 }));
  assert.deepEqual(one.map(text), numbered(1, 80));
  const rest = await drain(user.output({ ...everything, ref, from: all[150]?.seq ?? 0 }));
  assert.deepEqual(rest, all.slice(150));
  const late = await drain(user.output({ ...everything, ref, since: middle }));
  assert.ok(late.length >= 100 && late.length < 200, `${late.length} since the middle`);
  const never = await drain(user.output({ ...everything, ref, since: Date.now() + 3_600_000 }));
  assert.deepEqual(never, []);
});

test('output - a page has a size, whatever the messages have (P1)', async () => {
  const ref = newFlow();
  await write(ref, 0, 0, 30, 'x'.repeat(300 * 1024));
  const reader = user.output({ ...everything, ref });
  const sizes: number[] = [];
  for (;;) {
    const page = await reader.next();
    if (page.length === 0) break;
    sizes.push(page.reduce((sum, { data }) => sum + data.length, 0));
  }
  assert.ok(Math.max(...sizes) <= 2 * 1024 * 1024, `a page of ${Math.max(...sizes)} bytes`);
  assert.ok(sizes.length >= 4);
});

test('output - waits that are ended lose nothing and repeat nothing (P2)', async () => {
  const ref = newFlow();
  const reader = user.output({ ...everything, ref });
  const writing = write(ref, 0, 0, 400);
  const got: string[] = [];
  let ended = 0;
  while (got.length < 400 && ended < 2000) {
    const stop = new AbortController();
    // Ended at any moment: while it is asked for a consumer, while messages are on their way.
    setTimeout(() => stop.abort(), ended++ % 7);
    got.push(...(await reader.next(stop.signal)).map(text));
    if (ended % 20 === 0) got.push(...(await reader.next()).map(text));
  }
  await writing;
  got.push(...(await drain(reader)).map(text));
  assert.deepEqual(got, numbered(0, 400));
});

test('output - goes on through kills of the server, which takes its consumers along (P2)', async () => {
  const ref = newFlow();
  const reader = user.output({ ...everything, ref });
  await write(ref, 0, 0, 70);
  const got = await take(reader, 70);
  for (const round of [1, 2]) {
    const before = asked;
    const waiting = take(reader, 30);
    const pid = bus.server.pid();
    assert.ok(pid !== undefined, 'the server runs');
    process.kill(pid, 'SIGKILL');
    await until(() => bus.server.restarts() >= round, 'the restart');
    await write(ref, 0, 40 + 30 * round, 30);
    got.push(...(await waiting));
    assert.ok(asked > before, 'the old consumer was asked again');
  }
  assert.deepEqual(await drain(reader), []);
  assert.deepEqual(got, numbered(0, 130));
});

test('output - what has the sequences of lost messages is news (P3)', async () => {
  const ref = newFlow();
  const recreate = async () => {
    await callApi(control.nats, `STREAM.DELETE.${streams.logs}`, {}, 5_000);
    await control.admin.ensureBus();
  };
  await recreate();
  const reader = user.output({ ...everything, ref });
  await write(ref, 0, 0, 10);
  assert.deepEqual(await take(reader, 10), numbered(0, 10));
  // A server that came back without its last messages, and gives their sequences to others.
  await recreate();
  await write(ref, 1, 0, 6);
  assert.deepEqual(await take(reader, 6), numbered(1, 6));
  await write(ref, 1, 6, 6);
  const rest = await take(reader, 6);
  assert.deepEqual(rest, ['1:6', '1:7', '1:8', '1:9', '1:10', '1:11']);
  assert.deepEqual(await drain(reader), []);
});
