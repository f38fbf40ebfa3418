/** Nodes and principals as people read them: no JSON, nothing twice, nothing wider than the terminal. */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { newIncarnation } from '../../actors/incarnation.ts';
import { drainReason } from '../../actors/roster/roster.ts';
import { newIdentity } from '../../bus/identity.ts';
import { addressText } from '../../schemas/ids.ts';
import type { PrincipalRecord } from '../../schemas/ledger.ts';
import type { RosterNode } from '../../schemas/node.ts';
import { nodeLines } from '../../tools/cli/node-view.ts';
import { nodeTable } from '../../tools/cli/nodes.ts';
import { principalTable } from '../../tools/cli/principal.ts';

const ATMS = Date.parse('2026-12-02T14:00:00.000Z');
const AT = '2026-12-02T14:00:00.000Z';
const key = newIdentity();
const admin = newIdentity();
const order = { by: admin.principal, at_ms: ATMS, reason: 'new disks are built in on Thursday' };

function rosterNode(change: Partial<RosterNode> = {}): RosterNode {
  const runner = { inc: newIncarnation(), contexts: ['acme', 'default'] };
  return {
    v: 1,
    address: key.address,
    principal: key.principal,
    name: 'first',
    groups: [],
    offers: ['process', 'kv:*'],
    liveness: 'live',
    reason: null,
    state: 'ready',
    inc: newIncarnation(),
    runners: [
      { ...runner, runner: 'process-0', class: 'process', slots: 8, busy: 3 },
      { ...runner, runner: 'sal-1', class: 'sal', slots: 64, busy: 0, contexts: [] },
    ],
    flows: 2,
    version: '0.1.0',
    cpus: 2,
    memory_mib: 3584,
    load1: 0.25,
    since_ms: ATMS,
    beat_ms: ATMS,
    ...change,
  };
}

function record(change: Partial<PrincipalRecord> = {}): PrincipalRecord {
  return {
    v: 1,
    principal: key.principal,
    kind: 'node',
    address: key.address,
    name: 'first',
    status: 'registered',
    roles: [],
    created_ms: ATMS,
    by: 'open',
    drain: null,
    ...change,
  };
}

describe('cli - nodes for people', () => {
  it('tells a node once, in words', () => {
    assert.deepEqual(nodeLines(rosterNode(), record()), [
      'node        first',
      `address     ${addressText(key.address)}`,
      `principal   ${key.principal}`,
      `state       ready since ${AT}`,
      `last beat   ${AT}`,
      'groups      -',
      'offers      process, kv:*',
      'runners     process-0: 3 of 8 slots busy, for acme, default',
      '            sal-1: 0 of 64 slots busy, for every context',
      'flows       2',
      'machine     2 cpus, 3.5 GiB of memory, load 0.3',
      'version     0.1.0',
      `registered  since ${AT}, while the ledger was open`,
      'roles       -',
    ]);
  });

  it('says who drained it and why, and why once', () => {
    const drained = rosterNode({ liveness: 'drained', reason: drainReason(order) });
    const said = nodeLines(drained, record({ drain: order }));
    assert.ok(said.includes(`state       drained since ${AT}`));
    assert.equal(said.at(-1), `drained     ${AT} by ${admin.principal}: ${order.reason}`);
    assert.ok(nodeLines(drained, undefined).some((line) => line.endsWith(`${drained.reason}`)));
  });

  it('says how one is let in that waits', () => {
    const said = nodeLines(undefined, record({ status: 'pending', by: '' }));
    assert.ok(said.includes('state       not on the bus'));
    assert.ok(said.some((line) => line.endsWith('let it in with `herobus node approve first`')));
  });

  it('cuts the reasons of a table to the width of the terminal', () => {
    const drained = rosterNode({ liveness: 'drained', reason: drainReason(order) });
    const whole = nodeTable([rosterNode(), drained], undefined);
    const by = `${admin.principal.slice(0, 8)}…`;
    assert.match(whole, new RegExp(`drained .* ${order.reason}, by order of ${by}$`, 'm'));
    const lines = nodeTable([rosterNode(), drained], 140).split('\n');
    assert.equal(Math.max(...lines.map((line) => line.length)), 140);
    assert.ok(lines.at(-1)?.endsWith('…'));
    assert.doesNotMatch(nodeTable([rosterNode()], undefined), /WHY/);
  });

  it('lists a key that is a user and a node in one row', () => {
    const user = record({ kind: 'user', name: 'ada@desk', roles: ['admin'] });
    const other = record({ principal: admin.principal, address: admin.address, name: 'second' });
    const [, both, node, ...rest] = principalTable([record(), other, user]).split('\n');
    assert.match(both ?? '', /^U\w+ +node, user +first, ada@desk +registered +-, admin +\S+$/);
    assert.match(node ?? '', /^U\w+ +node +second +registered +- +\S+$/);
    assert.deepEqual(rest, []);
  });
});
