import assert from 'node:assert/strict';
import { test } from 'node:test';
import { transition } from 'xstate';
import { type CoordTrack, coordMachine } from '../../actors/coord/coord.machine.ts';
import {
  checkOthersStay,
  checkRestores,
  checkTable,
  recorded,
  type Row,
  snapshotIn,
} from './machine-table.ts';

const input = { context: 'acme', flow: 'f'.repeat(26) };
const NODE = 'a'.repeat(32);
const log = (track: Partial<CoordTrack>): Row[1] => ({
  type: 'LOG',
  track: { term: null, cancelled: false, end: null, ...track },
});
const term = { seq: 5, node: NODE, decided: false };
const decided = { ...term, decided: true };
const withTerm = () => ({ track: { term, cancelled: false, end: null } });

const LIVE = ['received', 'placing', 'unplaced', 'assigned', 'running', 'cancelling', 'relocating'];

const rows: Row[] = [
  ...LIVE.flatMap((from): Row[] => [
    [from, log({}), 'placing'],
    [from, log({ term }), 'assigned'],
    [from, log({ term: decided }), 'running'],
    [from, log({ term: decided, cancelled: true }), 'cancelling'],
    [from, log({ term, cancelled: true }), 'assigned'],
    [from, log({ term, end: { status: 'completed' } }), 'completed'],
    [from, log({ term, end: { status: 'failed' } }), 'failed'],
    [from, log({ term, end: { status: 'refused' } }), 'refused'],
    [from, log({ end: { status: 'cancelled' } }), 'cancelled'],
    [from, { type: 'NODE_LOST', node: NODE, reason: 'is dead' }, 'relocating'],
  ]),
  ['placing', { type: 'UNPLACED', reason: 'none' }, 'unplaced'],
  ['placing', { type: 'DUE' }, 'placing'],
  ['unplaced', { type: 'ROSTER_CHANGED' }, 'placing'],
  ['unplaced', { type: 'NODE_BACK', node: NODE }, 'assigned'],
  ['unplaced', { type: 'DUE' }, 'placing'],
  ['assigned', { type: 'NODE_BACK', node: NODE }, 'assigned'],
  ['assigned', { type: 'DUE' }, 'assigned'],
  ['running', { type: 'NODE_BACK', node: NODE }, 'running'],
  ['cancelling', { type: 'NODE_BACK', node: NODE }, 'cancelling'],
  ['relocating', { type: 'UNPLACED', reason: 'none' }, 'unplaced'],
  ['relocating', { type: 'NODE_BACK', node: NODE }, 'assigned'],
  ['relocating', { type: 'DUE' }, 'relocating'],
];

const events: Row[1][] = [
  log({}),
  { type: 'UNPLACED', reason: 'none' },
  { type: 'NODE_LOST', node: NODE, reason: 'is dead' },
  { type: 'NODE_BACK', node: NODE },
  { type: 'ROSTER_CHANGED' },
  { type: 'DUE' },
  { type: 'NEVER_HEARD_OF' },
];

test('coord machine - every transition', () => {
  const { machine } = recorded(coordMachine);
  checkTable(machine, input, rows, withTerm);
});

test('coord machine - all other events change nothing', () => {
  const { machine } = recorded(coordMachine);
  const transient = { ...machine.root.states };
  assert.ok(transient);
  assert.ok(checkOthersStay(machine, input, [...rows, ...followingRows()], events, withTerm) > 10);
});

/** `following` only passes through: it has no stay of its own. */
function followingRows(): Row[] {
  return events.map((event): Row => ['following', event, 'following']);
}

test('coord machine - the death of another node moves nothing', () => {
  const { machine } = recorded(coordMachine);
  const before = snapshotIn(machine, 'running', input, withTerm());
  const [after] = transition(machine, before, {
    type: 'NODE_LOST',
    node: 'b'.repeat(32),
    reason: 'is dead',
  });
  assert.equal(after.value, 'running');
});

test('coord machine - a state orders its effects on entry', () => {
  const { machine } = recorded(coordMachine);
  const from = snapshotIn(machine, 'received', input);
  const ordered = (event: Row[1]): string[] =>
    transition(machine, from, event as never)[1].map((action) => action.type);
  assert.deepEqual(
    ordered(log({})).filter((name) => !name.startsWith('xstate')),
    ['placeFlow', 'armDeadline'],
  );
  assert.ok(ordered(log({ term })).includes('wakeAssignee'));
  assert.ok(ordered(log({ term, end: { status: 'completed' } })).includes('closeFlow'));
  assert.ok(!ordered(log({ term: decided })).includes('wakeAssignee'));
});

test('coord machine - restores from JSON in every state', () => {
  checkRestores(recorded(coordMachine).machine, input);
});
