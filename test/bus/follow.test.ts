/** What a follow makes of copies that come late, never, or with a gap: no server, the stream is an array. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { headers, type Msg, type NatsConnection } from '@nats-io/transport-node';
import type { Entry, Link } from '../../bus/bus.ts';
import { makeClock } from '../../bus/clock.ts';
import { startFollow } from '../../bus/follow.ts';
import type { Stored } from '../../bus/jetstream.ts';
import { subjects } from '../../bus/subjects.ts';

const ref = { context: 'acme', flow: 'f'.repeat(26) };
const ADDRESS = '04'.repeat(16);

function startWith(onMissed?: (entry: Entry) => void) {
  const stream: Stored[] = [];
  let deliver: (message: Msg) => void = () => assert.fail('nobody listens');
  const nats = {
    subscribe: (_: string, { callback }: { callback: (error: null, message: Msg) => void }) => {
      deliver = (message) => callback(null, message);
      return { unsubscribe: () => undefined };
    },
  } as unknown as NatsConnection;
  const link: Link = {
    state: () => ({ up: true, sinceMs: 0 }),
    onChange: () => ({ stop: () => undefined }),
  };
  const seen: number[] = [];
  const reads: number[] = [];
  const follow = startFollow({
    nats,
    link,
    clock: makeClock(() => performance.now(), Date.now),
    live: 'copies',
    range: async function* (from) {
      reads.push(from);
      yield stream.filter(({ seq }) => seq >= from);
    },
    from: 1,
    wanted: () => true,
    onEntry: ({ seq }) => seen.push(seq),
    onMissed,
  });
  const store = (seq: number, copied: boolean): void => {
    const subject = subjects.run(ref, ADDRESS, `p${seq}`);
    const data = Buffer.from('{}');
    stream.push({ subject, seq, at: Date.now(), data, header: () => undefined });
    if (!copied) return;
    const said = headers();
    said.set('Nats-Sequence', String(seq));
    said.set('Nats-Subject', subject);
    said.set('Nats-Time-Stamp', new Date().toISOString());
    deliver({ data, headers: said } as unknown as Msg);
  };
  return { follow, seen, reads, store };
}

test('follow - a lost copy at the end is found by a check, and told in order', async () => {
  const { follow, seen, store } = startWith(() => assert.fail('nothing was passed over'));
  await follow.caughtUp;
  store(3, true);
  store(5, false);
  assert.deepEqual(seen, [3]);
  await follow.check();
  assert.deepEqual(seen, [3, 5]);
  follow.stop();
});

test('follow - a lost copy between others is told as missed, once (F4)', async () => {
  const missed: number[] = [];
  const { follow, seen, reads, store } = startWith(({ seq }) => missed.push(seq));
  await follow.caughtUp;
  for (const seq of [2, 3, 4, 7]) store(seq, seq !== 3);
  assert.deepEqual(seen, [2, 4, 7]);
  await follow.check();
  assert.deepEqual(missed, [3]);
  store(9, true);
  await follow.check();
  assert.deepEqual([seen, missed], [[2, 4, 7, 9], [3]]);
  // What was read is not read again.
  assert.deepEqual(reads, [1, 1, 8]);
  follow.stop();
});

test('follow - a check settles when the follow is stopped meanwhile', async () => {
  const { follow } = startWith();
  const checked = follow.check();
  follow.stop();
  await checked;
});
