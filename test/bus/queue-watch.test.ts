/**
 * A consumer that stands still is made again; one that is only slow, or that nobody asks, is not. A paused
 * consumer stands for a stuck one: its pulls wait in the server, its messages too.
 */
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import type { QueueMessage } from '../../bus/bus.ts';
import { callApi } from '../../bus/jetstream.ts';
import type { NatsBus } from '../../bus/nats.ts';
import { subjects } from '../../bus/subjects.ts';
import { CONTEXT, controlBus, nodeBus, serveConsumers, until } from './fixtures.ts';
import { type RealBus, startRealBus } from './real-bus.ts';

const STUCK_MS = 400;

let bus: RealBus;
let control: NatsBus;
let node: NatsBus;
const said: string[] = [];

before(async () => {
  bus = await startRealBus({ contexts: [CONTEXT] });
  control = await controlBus(bus);
  await control.admin.ensureBus();
  serveConsumers(control);
  node = await nodeBus(bus);
  const alarm = (message: string) => void said.push(message);
  const watch = control.admin.watchQueues({ alarm, lookEveryMs: 50, stuckMs: STUCK_MS });
  bus.onClose(async () => watch.stop());
});
after(() => bus.close());

async function pause(stream: string, consumer: string): Promise<void> {
  const until = new Date(Date.now() + 3_600_000).toISOString();
  await callApi(control.nats, `CONSUMER.PAUSE.${stream}.${consumer}`, { pause_until: until }, 5000);
}

test('queue watch - a stuck consumer delivers again, what was acknowledged does not, and it is said', async () => {
  const subject = subjects.assign(node.address);
  const taken: number[] = [];
  const kept: QueueMessage[] = [];
  const consumption = await node.queues.consume(
    { queue: 'assign' },
    { inFlight: 8 },
    async (message) => {
      const { n } = JSON.parse(Buffer.from(message.data).toString()) as { n: number };
      taken.push(n);
      if (n === 2) kept.push(message);
      else message.ack();
    },
  );
  for (const n of [1, 2]) await control.queues.publish(subject, { n });
  await until(() => taken.length === 2, 'both were delivered');
  await pause('HB_ASSIGN', node.address);
  await control.queues.publish(subject, { n: 3 });
  await until(() => taken.includes(3), 'the consumer was made again');
  await until(
    () => taken.filter((n) => n === 2).length === 2,
    'what was not acknowledged comes again',
  );
  for (const message of kept) message.ack();
  assert.equal(taken.filter((n) => n === 1).length, 1);
  assert.equal(said.length, 1);
  assert.match(
    said[0] ?? '',
    /^queue hb\.assign\.[0-9a-f]{32} stood still for \d+ s with 1 messages waiting/,
  );
  await consumption.stop();
});

test('queue watch - a queue nobody asks is left alone, and so is one that is taken from', async () => {
  said.splice(0);
  const subject = subjects.jobs(CONTEXT, 'process', node.address);
  const queue = { queue: 'jobs', context: CONTEXT, class: 'process' } as const;
  // Made once, so that it is there; then nobody pulls.
  await (await node.queues.consume(queue, { inFlight: 1 }, async () => undefined)).stop();
  await control.queues.publish(subject, { n: 0 });
  let looks = 0;
  const counting = setInterval(() => looks++, STUCK_MS);
  await until(() => looks >= 3, 'longer than a stuck one is given');
  let taken = 0;
  const consumption = await node.queues.consume(queue, { inFlight: 1 }, async (message) => {
    taken++;
    message.ack();
  });
  for (let n = 1; n <= 5; n++) {
    const before = looks;
    await control.queues.publish(subject, { n });
    await until(() => taken > n && looks > before, 'it is taken');
  }
  clearInterval(counting);
  await consumption.stop();
  assert.deepEqual(said, []);
});
