/** Forgetting on a real server: only flows that ended long ago lose their log and their output. */
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { sweep } from '../../actors/coord/retention.ts';
import type { NatsBus } from '../../bus/nats.ts';
import { subjects } from '../../bus/subjects.ts';
import type { FlowRef } from '../../schemas/ids.ts';
import { CONTEXT, controlBus, newFlow } from '../bus/fixtures.ts';
import { type RealBus, startRealBus } from '../bus/real-bus.ts';

const DAY_MS = 24 * 3600_000;
let bus: RealBus;
let control: NatsBus;

before(async () => {
  bus = await startRealBus({ contexts: [CONTEXT] });
  control = await controlBus(bus);
  await control.admin.ensureBus();
});
after(() => bus.close());

async function decide(
  ref: FlowRef,
  kinds: ('deploy' | 'assign' | 'end' | 'retry')[],
): Promise<void> {
  const term = { v: 1, inc: 'incarnation1' };
  const command = { reason: null, by: [], envelope: '', digest: ref.flow };
  const bodies = {
    deploy: { ...term, envelope: '{}', engine: 'rhai-1', ledger_revision: 1, submitted_by: [] },
    assign: { ...term, node: control.address, reason: 'placed' },
    end: { ...term, term: 2, status: 'failed', value: null, error: null },
    retry: { ...term, verb: 'retry', job: null, ...command },
  };
  let last = 0;
  for (const kind of kinds) last = (await control.log.decide(ref, kind, bodies[kind], last)).seq;
  const lines = { v: 1, inc: 'incarnation1', lines: [] };
  await control.queues.publish(subjects.logs(ref, 0), lines);
}

async function entries(ref: FlowRef): Promise<number> {
  let count = 0;
  for await (const _ of control.log.read(ref)) count += 1;
  return count;
}

test('retention - a flow that ended long ago is gone; open, retried and newest ones stay', async () => {
  const [ended, open, retried, newest] = [newFlow(), newFlow(), newFlow(), newFlow()];
  await decide(ended, ['deploy', 'assign', 'end']);
  await decide(open, ['deploy', 'assign']);
  await decide(retried, ['deploy', 'assign', 'end', 'retry']);
  await decide(newest, ['deploy', 'assign', 'end']);
  const coords = [control.address];
  const options = {
    directory: { coords: () => coords, contexts: () => [{ context: CONTEXT }] as never },
    retention: { ageMs: DAY_MS, count: 100 },
    alarm: assert.fail,
  };
  assert.equal(await sweep({ ...options, bus: control }), 0, 'all of them ended just now');
  const later = { ...control, now: () => control.now() + 2 * DAY_MS };
  assert.equal(await sweep({ ...options, bus: later }), 1);
  assert.equal(await entries(ended), 0);
  assert.deepEqual([await entries(open), await entries(retried)], [2, 4]);
  assert.equal(await entries(newest), 3, 'the newest entry of all tells a log that went back');
  assert.equal(await sweep({ ...options, bus: later }), 0);
});
