/**
 * Whatever reconnects, and however often: as many consumers as there are watchers, none left behind.
 * More rounds: `npm run test:soak -- reconnects`.
 */
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { callApi } from '../../bus/jetstream.ts';
import type { NatsBus } from '../../bus/nats.ts';
import { CONTEXT, controlBus, newFlow, nodeBus, serveConsumers, until } from './fixtures.ts';
import { type RealBus, startRealBus } from './real-bus.ts';

const ROUNDS = Number(process.env['HEROBUS_RECONNECTS'] ?? 6);

let bus: RealBus;
let control: NatsBus;
let nodes: NatsBus[];

before(async () => {
  bus = await startRealBus({ contexts: [CONTEXT] });
  control = await controlBus(bus);
  await control.admin.ensureBus();
  serveConsumers(control);
  nodes = await Promise.all(Array.from({ length: 4 }, () => nodeBus(bus)));
});
after(() => bus.close());

async function consumerCount(): Promise<number> {
  const answer = await callApi(control.nats, 'STREAM.LIST', {}, 10_000);
  const list = answer['streams'] as { state: { consumer_count: number } }[];
  return list.reduce((sum, { state }) => sum + state.consumer_count, 0);
}

/** The same number, seen by who asks until it is. */
async function untilCount(count: number, what: string): Promise<void> {
  const end = performance.now() + 60_000;
  for (;;) {
    const now = await consumerCount().catch(() => -1);
    if (now === count) return;
    assert.ok(performance.now() < end, `${what}: ${now} consumers instead of ${count}`);
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}

test(`reconnects - ${ROUNDS} restarts of the server and of every link leave as many consumers as watchers`, async (t) => {
  const ref = newFlow();
  const { seq } = await control.log.decide(ref, 'deploy', { v: 1 }, 0);
  const seen = new Map<string, number>();
  const stops: (() => unknown)[] = [];
  t.after(async () => {
    for (const stop of stops) await stop();
  });
  const taken: number[] = [];
  for (const [i, node] of nodes.entries()) {
    const follow = node.log.follow(ref, 1, (entry) => seen.set(`follow ${i}`, entry.seq));
    const watch = node.log.watchDecisions(ref, (entry) => seen.set(`watch ${i}`, entry.seq));
    for (const queue of [
      { queue: 'assign' },
      { queue: 'jobs', context: CONTEXT, class: 'process' },
    ] as const) {
      const consumption = await node.queues.consume(queue, { inFlight: 4 }, async (message) => {
        taken.push(message.seq);
        message.ack();
      });
      stops.push(() => consumption.stop());
    }
    stops.push(
      () => follow.stop(),
      () => watch.stop(),
    );
    await follow.caughtUp;
    await watch.caughtUp;
  }
  const changes = await control.kv('ledger_contexts').watch(() => undefined);
  stops.push(() => changes.stop());
  // Two queues for each node; a follow reads by pages, and its copies need no consumer.
  const watchers = await consumerCount();
  assert.ok(watchers >= nodes.length * 2, String(watchers));
  let last = seq;
  for (let round = 1; round <= ROUNDS; round++) {
    if (round % 2 === 0) {
      await Promise.all([control, ...nodes].map((each) => each.reconnect()));
    } else {
      const restarts = bus.server.restarts();
      const pid = bus.server.pid();
      if (pid !== undefined) process.kill(pid, 'SIGKILL');
      await until(() => bus.server.restarts() > restarts, 'the server was started again');
    }
    await until(() => [control, ...nodes].every(({ link }) => link.state().up), 'all are back');
    last = (await control.log.decide(ref, 'plan', { round }, last)).seq;
    const expected = last;
    await until(() => nodes.every((_, i) => seen.get(`follow ${i}`) === expected), 'all followed');
  }
  await untilCount(watchers, `after ${ROUNDS} rounds`);
  for (const node of nodes) {
    const before = taken.length;
    await control.queues.publish(`hb.assign.${node.address}`, { v: 1 });
    await until(() => taken.length > before, 'its queue still gives');
  }
});
