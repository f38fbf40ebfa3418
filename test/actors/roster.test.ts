/** The roster: nobody dies of its watcher's troubles, everybody who is gone is seen to be. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { listNodes, startRosterView } from '../../actors/roster/view.ts';
import { startRoster } from '../../actors/roster/roster.ts';
import { Watch, type RosterChange } from '../../actors/roster/watch.ts';
import type { Incoming } from '../../bus/bus.ts';
import { newIdentity, type Identity } from '../../bus/identity.ts';
import { bucketCopies } from '../../bus/streams.ts';
import { DEAD_MS, SUSPECT_MS, type NodeBeat, type RosterNode } from '../../schemas/node.ts';
import { MemoryBus, MemoryNet } from './memory-bus.ts';
import { startTestLedger } from './test-ledger.ts';

const TICK = 500;
const INC = 'inc000000001';

function beatOf(principal: string, seq: number, over: Partial<NodeBeat> = {}): NodeBeat {
  return {
    v: 1,
    role: 'node',
    inc: INC,
    seq,
    principal,
    name: 'node',
    groups: ['edge'],
    offers: ['process'],
    state: 'ready',
    runners: [{ runner: 'r1', inc: INC, class: 'process', slots: 4, busy: 0, contexts: [] }],
    flows: 0,
    version: '0.1.0',
    cpus: 2,
    memory_mib: 2048,
    load1: 0.5,
    ...over,
  };
}

const addressOfIndex = (i: number) => i.toString(16).padStart(32, '0');
const ALPHABET = 'ABCDEFGHIJKLMNOPQRSTUVWXYZ234567';
const principalOfIndex = (i: number) =>
  `U${'A'.repeat(51)}${[15, 10, 5, 0].map((shift) => ALPHABET[(i >> shift) & 31]).join('')}`;

type Told = { at: number; node: string; what: RosterChange; liveness: string };

/** A watch over `count` nodes under a clock that only moves when told. */
class Simulation {
  nowMs = 0;
  readonly told: Told[] = [];
  readonly seqs: number[];
  readonly incs: string[];
  readonly down = new Set<number>();
  readonly watch: Watch;

  constructor(count: number) {
    this.seqs = Array.from({ length: count }, () => 0);
    this.incs = Array.from({ length: count }, () => INC);
    this.watch = new Watch({
      nowMs: 0,
      linkUp: true,
      principalAt: (address) => principalOfIndex(Number.parseInt(address.slice(-4), 16)),
      busNow: () => this.nowMs,
      onChange: ({ address, liveness }, what) =>
        this.told.push({ at: this.nowMs, node: address, what, liveness }),
    });
  }

  beat(i: number, over: Partial<NodeBeat> = {}): boolean {
    const seq = (this.seqs[i] = (this.seqs[i] ?? 0) + 1);
    const beat = beatOf(principalOfIndex(i), seq, { inc: this.incs[i] ?? INC, ...over });
    return this.watch.beat(addressOfIndex(i), beat, this.nowMs);
  }

  /** Runs on; every node that is not down beats once a second at its own phase, when it can be heard. */
  run(forMs: number, heard = true, ticks = true): void {
    const until = this.nowMs + forMs;
    for (; this.nowMs < until; this.nowMs += 50) {
      for (const [i] of this.seqs.entries()) {
        if (!heard || this.down.has(i) || (this.nowMs + i * 150) % 1000 !== 0) continue;
        this.beat(i);
      }
      if (ticks && this.nowMs % TICK === 0) this.watch.tick(this.nowMs);
    }
  }

  link(up: boolean): void {
    this.watch.link(up, this.nowMs);
  }

  liveness(i: number): string | undefined {
    return this.watch.node(addressOfIndex(i))?.liveness;
  }

  losses(): Told[] {
    return this.told.filter(({ liveness }) => liveness === 'suspect' || liveness === 'dead');
  }
}

const ms = (max: number) => fc.integer({ min: 1, max: max / 50 }).map((steps) => steps * 50);
const trouble = fc.oneof(
  fc.record({ kind: fc.constant('good' as const), ms: ms(20_000) }),
  fc.record({ kind: fc.constant('linkDown' as const), ms: ms(60_000) }),
  /** The link is dead for a while before the client notices. */
  fc.record({ kind: fc.constant('deafFirst' as const), ms: ms(30_000) }),
  fc.record({ kind: fc.constant('deaf' as const), ms: ms(60_000) }),
  fc.record({ kind: fc.constant('stall' as const), ms: ms(60_000) }),
);

test('no node that beats is ever suspect or dead, whatever happens to its watcher', () => {
  fc.assert(
    fc.property(
      fc.array(trouble, { maxLength: 12 }),
      fc.integer({ min: 2, max: 6 }),
      (list, count) => {
        const simulation = new Simulation(count);
        simulation.run(3000);
        for (const { kind, ms: lasting } of list) {
          if (kind === 'good') simulation.run(lasting);
          if (kind === 'deaf') simulation.run(lasting, false);
          if (kind === 'stall') simulation.run(lasting, false, false);
          if (kind === 'linkDown' || kind === 'deafFirst') {
            if (kind === 'deafFirst') simulation.run(lasting, false);
            simulation.link(false);
            simulation.run(lasting, false);
            simulation.link(true);
          }
        }
        simulation.run(20_000);
        assert.deepEqual(simulation.losses(), []);
      },
    ),
    { numRuns: 60 },
  );
});

test('a node that is gone is suspect and then dead on time, once the watcher can tell', () => {
  fc.assert(
    fc.property(
      fc.integer({ min: 2, max: 6 }),
      ms(30_000),
      fc.boolean(),
      (count, before, blink) => {
        const simulation = new Simulation(count);
        simulation.run(DEAD_MS + before);
        simulation.down.add(0);
        const from = simulation.nowMs;
        if (blink) {
          simulation.link(false);
          simulation.run(5000, false);
          simulation.link(true);
        }
        simulation.run(2 * DEAD_MS + 2000);
        assert.equal(simulation.liveness(0), 'dead');
        const died = simulation.losses().at(-1)?.at ?? Infinity;
        assert.ok(
          died - from <= DEAD_MS + (blink ? 5000 : 0) + 2 * TICK,
          `after ${died - from} ms`,
        );
        assert.ok(simulation.losses().every(({ node }) => node === addressOfIndex(0)));
        simulation.down.delete(0);
        simulation.run(1000);
        assert.equal(simulation.liveness(0), 'live');
      },
    ),
    { numRuns: 40 },
  );
});

test('a single node may be declared dead: there is nobody else to hear', () => {
  const simulation = new Simulation(1);
  simulation.run(2 * DEAD_MS);
  simulation.down.add(0);
  simulation.run(SUSPECT_MS + 2 * TICK);
  assert.equal(simulation.liveness(0), 'suspect');
  simulation.run(DEAD_MS);
  assert.equal(simulation.liveness(0), 'dead');
});

test('when all nodes fall silent at once nobody is declared anything until one is heard again', () => {
  const simulation = new Simulation(3);
  simulation.run(2 * DEAD_MS);
  simulation.run(60_000, false);
  assert.deepEqual(simulation.losses(), []);
  simulation.down.add(1);
  simulation.run(DEAD_MS - 1000);
  assert.deepEqual(simulation.losses(), []);
  simulation.run(3000);
  assert.deepEqual(
    simulation.losses().map(({ node }) => node),
    [addressOfIndex(1)],
  );
});

test('stored nodes make nobody dead before a full window, and keep what they were', () => {
  const source = new Simulation(3);
  source.run(1000);
  const stored = [0, 1, 2].map((i) => structuredClone(source.watch.node(addressOfIndex(i))));
  const simulation = new Simulation(3);
  simulation.nowMs = 1e9;
  simulation.watch.link(true, simulation.nowMs);
  simulation.watch.tick(simulation.nowMs);
  for (const [i, node] of stored.entries()) {
    assert.ok(node);
    simulation.seqs[i] = 10;
    simulation.watch.restore({ ...node, liveness: i === 2 ? 'dead' : 'live' }, simulation.nowMs);
  }
  simulation.down.add(1).add(2);
  simulation.run(DEAD_MS - TICK);
  assert.deepEqual(simulation.losses(), []);
  assert.equal(simulation.liveness(2), 'dead');
  simulation.run(DEAD_MS);
  assert.equal(simulation.liveness(1), 'dead');
  assert.equal(simulation.liveness(0), 'live');
});

test('a changed incarnation is one restart, and the old one never comes back', () => {
  fc.assert(
    fc.property(fc.array(fc.integer({ min: 0, max: 4 }), { maxLength: 40 }), (steps) => {
      const simulation = new Simulation(2);
      simulation.run(2000);
      const known = [INC];
      for (const step of steps) {
        const old = known[step];
        if (step === 0) {
          known.push(`new${String(known.length).padStart(9, '0')}`);
          simulation.incs[0] = known.at(-1) ?? INC;
          simulation.seqs[0] = 0;
          assert.equal(simulation.beat(0), true);
        } else if (old !== undefined && old !== known.at(-1)) {
          // Only the last few are kept; a process that old has long been replaced on the bus too.
          if (known.length - step > 8) continue;
          assert.equal(simulation.beat(0, { inc: old, seq: 9999 }), false);
        }
        simulation.run(1000);
      }
      const restarts = simulation.told.filter(({ what }) => what === 'restart');
      assert.equal(restarts.length, known.length - 1);
      assert.equal(simulation.watch.node(addressOfIndex(0))?.inc, known.at(-1));
    }),
    { numRuns: 40 },
  );
});

test('an orderly goodbye is known at once; a node that dies while it drains is dead', () => {
  const simulation = new Simulation(3);
  simulation.run(2 * DEAD_MS);
  simulation.down.add(0).add(1);
  simulation.beat(0, { state: 'stopped' });
  simulation.beat(1, { state: 'draining' });
  assert.deepEqual([simulation.liveness(0), simulation.liveness(1)], ['drained', 'drained']);
  simulation.run(2 * DEAD_MS);
  assert.deepEqual([simulation.liveness(0), simulation.liveness(1)], ['drained', 'dead']);
  assert.match(simulation.watch.node(addressOfIndex(1))?.reason ?? '', /no heartbeat for/);
});

test('an address belongs to its registered principal', () => {
  const simulation = new Simulation(2);
  simulation.run(2000);
  const thief = beatOf(principalOfIndex(1), 99_999, { inc: 'inc999999999' });
  assert.equal(simulation.watch.beat(addressOfIndex(0), thief, simulation.nowMs), false);
  assert.equal(simulation.watch.node(addressOfIndex(0))?.inc, INC);
});

test('what listeners are told: new, changed, and nothing for load', () => {
  const simulation = new Simulation(1);
  simulation.beat(0);
  simulation.beat(0, { load1: 3, flows: 7 });
  simulation.beat(0, { groups: ['core'] });
  simulation.beat(0, { groups: ['core'], state: 'saturated' });
  simulation.beat(0, { groups: ['core'], state: 'saturated', runners: [] });
  assert.deepEqual(
    simulation.told.map(({ what }) => what),
    ['new', 'changed', 'changed', 'changed'],
  );
});

async function startRig() {
  const net = new MemoryNet();
  const ledger = await startTestLedger({}, net);
  const control = new MemoryBus(net, ledger.home, ledger.home.principal);
  const clock = { ms: 0 };
  const roster = await startRoster({
    bus: control.asBus(),
    directory: ledger.directory,
    monotonicMs: () => clock.ms,
    tickMs: 5,
  });
  ledger.serveNodes(roster.page);
  return { net, ledger, control, clock, roster };
}

const settle = (waitMs = 30) => new Promise((resolve) => setTimeout(resolve, waitMs));
const send = (net: MemoryNet, { address, principal }: Identity, seq: number, over = {}) =>
  net.deliver(`hb.beat.${address}`, Buffer.from(JSON.stringify(beatOf(principal, seq, over))));

test('on the bus: beats in, the bucket and the list out; load is written seldom', async () => {
  const { net, ledger, clock, roster } = await startRig();
  const nodes = [newIdentity(), newIdentity()];
  const stranger = newIdentity();
  for (const node of nodes) await ledger.register(node, 'node');
  for (const node of [...nodes, stranger]) send(net, node, 1);
  net.deliver(`hb.beat.${nodes[0]?.address}`, Buffer.from('{"role":"runner"}'));
  for (const junk of ['', '[', 'null', '{"role":"node"}', '7']) {
    net.deliver(`hb.beat.${nodes[0]?.address}`, Buffer.from(junk));
  }
  await settle();
  assert.deepEqual(
    roster
      .nodes()
      .map(({ address }) => address)
      .sort(),
    nodes.map(({ address }) => address).sort(),
  );
  assert.equal(net.bucket('roster').entries.size, 2);
  assert.ok(roster.refused() >= 2);
  const before = net.puts;
  for (let seq = 2; seq < 12; seq++) {
    clock.ms += 100;
    for (const node of nodes) send(net, node, seq, { load1: seq });
    await settle(8);
  }
  assert.equal(net.puts, before, 'load alone is not written within ten seconds');
  clock.ms += 10_000;
  for (const node of nodes) send(net, node, 100, { load1: 9 });
  await settle();
  assert.equal(net.puts, before + 2);
  const client = new MemoryBus(net, ledger.home, nodes[0]?.principal);
  assert.equal((await listNodes(client.asBus())).length, 2);
  await roster.stop();
  ledger.stop();
});

test('the bucket ends up right when the bus was away while it changed', async () => {
  const { net, ledger, roster } = await startRig();
  const node = newIdentity();
  await ledger.register(node, 'node');
  net.kvFails = 3;
  send(net, node, 1);
  await settle(60);
  assert.equal(net.bucket('roster').entries.size, 1);
  await roster.stop();
  ledger.stop();
});

test('a roster that starts anew takes the stored nodes up, and sees a restart meanwhile', async () => {
  const first = await startRig();
  const node = newIdentity();
  await first.ledger.register(node, 'node');
  send(first.net, node, 1);
  await settle();
  await first.roster.stop();
  const told: string[] = [];
  const second = await startRoster({
    bus: first.control.asBus(),
    directory: first.ledger.directory,
    monotonicMs: () => first.clock.ms,
    tickMs: 5,
  });
  second.onChange((_, what) => told.push(what));
  assert.equal(second.nodes().length, 1);
  send(first.net, node, 1, { inc: 'inc000000002' });
  assert.deepEqual(told, ['restart']);
  await second.stop();
  first.ledger.stop();
});

test('a node follows the roster from afar, through lost deltas and a list that fails', async () => {
  const { net, ledger, roster } = await startRig();
  const nodes = Array.from({ length: 5 }, () => newIdentity());
  for (const node of nodes) await ledger.register(node, 'node');
  send(net, nodes[0] ?? ledger.home, 1);
  await settle();
  const far = new MemoryBus(net, newIdentity(), nodes[0]?.principal);
  const faults: string[] = [];
  const view = startRosterView({ bus: far.asBus(), onFault: (message) => faults.push(message) });
  const told: [string, string][] = [];
  view.onChange(({ address }, what) => told.push([address, what]));
  await view.ready;
  assert.equal(view.nodes().length, 1);
  send(net, nodes[1] ?? ledger.home, 1);
  await settle();
  assert.equal(view.nodes().length, 2, 'by a delta');
  const heard = [...net.listeners];
  net.listeners.clear();
  for (const listener of heard) {
    if (!listener.pattern.test('hb.kv.roster.x')) net.listeners.add(listener);
  }
  send(net, nodes[2] ?? ledger.home, 1);
  await settle();
  assert.equal(view.nodes().length, 2, 'the delta was lost');
  far.setLink(false);
  far.setLink(true);
  await settle();
  assert.equal(view.nodes().length, 3, 'by the list after the reconnect');
  assert.ok(told.every(([, what]) => what === 'new'));
  view.stop();
  await roster.stop();
  ledger.stop();
});

test('a node takes what a roster with another clock says: it is newer, whatever its times', async () => {
  const { net, ledger, roster } = await startRig();
  const node = newIdentity();
  await ledger.register(node, 'node');
  send(net, node, 1);
  await settle();
  const [known] = roster.nodes();
  assert.ok(known);
  await roster.stop();
  ledger.stop();
  // Told by a control plane whose clock was ahead; the one that follows it has the right time.
  const ahead = known.beat_ms + 40_000;
  const dead = { ...known, liveness: 'dead', beat_ms: ahead, since_ms: ahead + 8000 } as const;
  let tell: (message: Incoming) => void = () => undefined;
  const view = startRosterView({
    bus: {
      request: () => Promise.resolve({ ok: { nodes: [dead], next: null } }),
      subscribe: (_, onMessage) => {
        tell = onMessage;
        return { stop: () => undefined };
      },
      link: {
        state: () => ({ up: true, sinceMs: 0 }),
        onChange: () => ({ stop: () => undefined }),
      },
    },
  });
  await view.ready;
  const delta = (record: RosterNode): void => {
    const subject = `${bucketCopies('roster').slice(0, -1)}${record.address}`;
    tell({ subject, data: Buffer.from(JSON.stringify(record)), caller: undefined });
  };
  delta({ ...dead, liveness: 'live', beat_ms: ahead - 500 });
  assert.equal(view.nodes()[0]?.liveness, 'dead', 'a late delta');
  delta({ ...known, liveness: 'live', inc: 'inc000000002' });
  assert.equal(view.nodes()[0]?.liveness, 'live', 'a roster with the right time');
  view.stop();
});

test('ten thousand nodes: linear, in pages, in less than half a core', async () => {
  const net = new MemoryNet();
  const control = new MemoryBus(net);
  const clock = { ms: 0 };
  const roster = await startRoster({
    bus: control.asBus(),
    directory: {
      nodeAt: (address) => {
        const principal = principalOfIndex(Number.parseInt(address.slice(-4), 16));
        return { principal } as ReturnType<
          Parameters<typeof startRoster>[0]['directory']['nodeAt']
        >;
      },
    },
    monotonicMs: () => clock.ms,
    tickMs: 20,
  });
  const beats = (count: number, seq: number) => {
    const messages = Array.from({ length: count }, (_, i) => ({
      subject: `hb.beat.${addressOfIndex(i)}`,
      data: Buffer.from(JSON.stringify(beatOf(principalOfIndex(i), seq, { load1: seq % 7 }))),
    }));
    const before = process.cpuUsage();
    for (const { subject, data } of messages) net.deliver(subject, data);
    const { user, system } = process.cpuUsage(before);
    return (user + system) / 1000;
  };
  beats(10_000, 1);
  const rounds: number[] = [];
  const small: number[] = [];
  for (let seq = 2; seq < 7; seq++) {
    clock.ms += 1000;
    small.push(beats(1000, seq * 10));
    rounds.push(beats(10_000, seq * 10 + 1));
    await settle(1);
  }
  const median = (list: number[]) => list.sort((a, b) => a - b)[Math.floor(list.length / 2)] ?? 0;
  assert.equal(roster.nodes().length, 10_000);
  assert.ok(median(rounds) < 500, `${median(rounds)} ms of CPU for a second's beats`);
  assert.ok(
    median(rounds) < 30 * Math.max(1, median(small)),
    'ten times the nodes, ten times the work',
  );
  const seen = new Set<string>();
  for (let after: string | null = null; ; ) {
    const page: { nodes: RosterNode[]; next: string | null } = roster.page({ after, limit: 1000 });
    assert.ok(JSON.stringify(page).length < 1024 * 1024);
    for (const { address } of page.nodes) seen.add(address);
    if ((after = page.next) === null) break;
  }
  assert.equal(seen.size, 10_000);
  await roster.stop();
});
