/** Flows that doze are woken by whatever may mean something to do, and by nothing else; few come up at a time. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Deadlines } from '../../actors/deadlines.ts';
import type { Bus } from '../../bus/bus.ts';
import type { FlowRef } from '../../schemas/ids.ts';
import { type Doze, Dormitory } from '../../supervisors/dormitory.ts';
import { type Lane, StartGate } from '../../supervisors/start-gate.ts';

const ref = (name: string): FlowRef => ({ context: 'acme', flow: name.repeat(26) });

/** Logs of flows, and who listens to them. */
class Logs {
  readonly last = new Map<string, number>();
  readonly listeners = new Map<string, () => void>();

  get bus(): Pick<Bus, 'log' | 'subscribe' | 'link'> {
    return {
      log: {
        lastEntry: async ({ flow }: FlowRef) => {
          await Promise.resolve();
          return this.last.get(flow) ?? 0;
        },
      },
      subscribe: (subject: string, heard: () => void) => {
        this.listeners.set(subject.split('.')[3] ?? '', heard);
        return { stop: () => this.listeners.delete(subject.split('.')[3] ?? '') };
      },
    } as unknown as Pick<Bus, 'log' | 'subscribe' | 'link'>;
  }

  append({ flow }: FlowRef): void {
    this.last.set(flow, (this.last.get(flow) ?? 0) + 1);
    this.listeners.get(flow)?.();
  }
}

function dormitory(now = { ms: 0 }) {
  const logs = new Logs();
  const woken: string[] = [];
  const deadlines = new Deadlines({ now: () => now.ms });
  const kept = new Dormitory({
    bus: logs.bus,
    deadlines,
    wake: ({ flow }) => {
      woken.push(flow[0] ?? '');
      kept.release(flow);
    },
  });
  const doze = (flow: FlowRef, more: Partial<Doze> = {}): Promise<void> =>
    kept.take(flow, confirmed, () => ({
      ref: flow,
      seq: logs.last.get(flow.flow) ?? 0,
      term: 1,
      dueMs: null,
      nodes: new Set(),
      queued: false,
      ...more,
    }));
  return { logs, woken, deadlines, kept, doze };
}

const confirmed = (): Promise<void> => Promise.resolve();
const settled = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

test('dormitory - an entry, a moment, a node, a link that was down wake whom they concern', async () => {
  const now = { ms: 1000 };
  const { logs, woken, kept, doze, deadlines } = dormitory(now);
  await doze(ref('a'));
  await doze(ref('b'), { nodes: new Set(['n1']) });
  await doze(ref('c'), { queued: true });
  await doze(ref('d'));
  logs.append(ref('a'));
  assert.deepEqual(woken.splice(0), ['a']);
  kept.nodeChanged('n2');
  assert.deepEqual(woken.splice(0), []);
  kept.nodeChanged('n1');
  assert.deepEqual(woken.splice(0), ['b']);
  kept.reconnected();
  await settled();
  assert.deepEqual(woken.splice(0), ['c'], 'what waited in a queue may be lost');
  logs.last.set(ref('d').flow, 7);
  kept.reconnected();
  await settled();
  assert.deepEqual(woken.splice(0), ['d'], 'its log went on while nobody heard');
  const due = Promise.withResolvers<void>();
  await doze(ref('e'), { dueMs: 900 });
  deadlines.arm('after', 900, due.resolve);
  await due.promise;
  assert.deepEqual(woken, ['e'], 'overdue: at once');
  assert.equal(kept.size, 0);
  assert.equal(logs.listeners.size, 0, 'nobody listens for a flow that was woken');
});

test('dormitory - a flow is not let go when something came meanwhile, or it has to act', async () => {
  const { logs, kept, doze } = dormitory();
  const taken = doze(ref('a'));
  logs.append(ref('a'));
  await taken;
  assert.equal(kept.size, 0);
  await kept.take(ref('b'), confirmed, () => undefined);
  assert.equal(kept.size, 0);
  assert.equal(logs.listeners.size, 0);
});

test('start gate - few come up at a time, what is new overtakes what returns, each once', (t) => {
  t.mock.timers.enable({ apis: ['setTimeout'] });
  const started: string[] = [];
  const gate = new StartGate({
    start: ({ flow }) => started.push(flow[0] ?? ''),
    atOnce: 3,
    returning: 2,
    patienceMs: 100,
  });
  const ask = (names: string, lane: Lane): void => {
    for (const name of names) gate.ask(ref(name), lane);
  };
  ask('abcdefabc', 'returning');
  assert.deepEqual(started.splice(0), ['a', 'b']);
  assert.equal(gate.waiting, 4);
  ask('xy', 'fresh');
  assert.deepEqual(started.splice(0), ['x'], 'a place that no returning flow takes');
  gate.isUp(ref('a'));
  assert.deepEqual(started.splice(0), ['y'], 'new ones first');
  gate.isUp(ref('x'));
  gate.isUp(ref('y'));
  assert.deepEqual(started.splice(0), ['c']);
  t.mock.timers.tick(100);
  assert.deepEqual(started.splice(0), ['d', 'e'], 'an endless script gives its place up');
  gate.ask(ref('f'), 'fresh');
  assert.equal(started.length, 1, 'asked for anew, it does not wait with those that return');
  gate.stop();
});
