/** What the simulated server promises of its streams and its time: S1-S4, T1-T3 (`bus/simulated/`). */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { type Party, Scheduler } from '../../bus/simulated/scheduler.ts';
import { Stream } from '../../bus/simulated/stream.ts';

const message = (subject: string, headers: Record<string, string> = {}) => ({
  subject,
  data: new Uint8Array(0),
  headers: new Map(Object.entries(headers)),
});

const fenced = (subject: string, filter: string, expected: number) =>
  message(subject, {
    'Nats-Expected-Last-Subject-Sequence': String(expected),
    'Nats-Expected-Last-Subject-Sequence-Subject': filter,
  });

const codeOf = (verdict: ReturnType<Stream['store']>) =>
  'refused' in verdict ? verdict.refused.err_code : null;

test('simulated - a fence lets one in, over a wildcard too, and a batch is all or nothing', () => {
  const stream = new Stream({ name: 'S', subjects: ['a.>'] });
  assert.equal(codeOf(stream.store([fenced('a.f.x', 'a.f.>', 0)], 0)), null);
  assert.equal(codeOf(stream.store([fenced('a.f.y', 'a.f.>', 0)], 0)), 10071);
  assert.equal(codeOf(stream.store([fenced('a.f.y', 'a.f.>', 1)], 0)), null);
  const batch = [fenced('a.g.x', 'a.g.*', 0), fenced('a.f.z', 'a.f.>', 1)];
  assert.equal(codeOf(stream.store(batch, 0)), 10071);
  const twice = [fenced('a.g.x', 'a.g.*', 0), fenced('a.g.y', 'a.g.*', 0)];
  assert.equal(codeOf(stream.store(twice, 0)), 10164);
  assert.equal(stream.lastSeq, 2);
});

test('simulated - the same id is stored once, and a sequence is never given twice', () => {
  const stream = new Stream({ name: 'S', subjects: ['a'], retention: 'workqueue' });
  const first = stream.store([message('a', { 'Nats-Msg-Id': 'one' })], 0);
  const again = stream.store([message('a', { 'Nats-Msg-Id': 'one' })], 1000);
  assert.deepEqual('seq' in again && [again.seq, again.duplicate], [1, true]);
  assert.ok('seq' in first && first.seq === 1);
  stream.remove(1);
  assert.equal(stream.count, 0);
  const next = stream.store([message('a')], 2000);
  assert.ok('seq' in next && next.seq === 2);
});

test('simulated - nothing happens to who is gone, and later to who is paused', () => {
  const seen: string[] = [];
  const scheduler = new Scheduler({
    enter: (_, act) => act(),
    onError: (_, error) => assert.fail(String(error)),
  });
  const gone: Party = { name: 'gone', alive: false, pausedUntilMs: 0 };
  const paused: Party = { name: 'paused', alive: true, pausedUntilMs: 50 };
  const note = (what: string) => () => seen.push(`${what} ${scheduler.nowMs}`);
  scheduler.after(10, gone, note('gone'));
  scheduler.after(10, paused, note('message'), 'message');
  scheduler.after(20, paused, note('timer'));
  scheduler.after(30, undefined, note('world'));
  while (scheduler.step());
  assert.deepEqual(seen, ['world 30', 'timer 50', 'message 50']);
});
