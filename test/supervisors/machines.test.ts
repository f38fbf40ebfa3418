import assert from 'node:assert/strict';
import { test } from 'node:test';
import { scriptHostMachine } from '../../supervisors/script-host.machine.ts';
import { supervisorMachine } from '../../supervisors/supervisor.machine.ts';
import {
  checkOthersStay,
  checkRestores,
  checkTable,
  recorded,
  type Row,
} from '../actors/machine-table.ts';

const flow = { context: 'acme', flow: 'f'.repeat(26) };
const LIVE = ['admitting', 'running', 'waiting', 'paused', 'troubled'];

const scriptRows: Row[] = [
  ...LIVE.flatMap((from): Row[] => [
    [from, { type: 'ENDED', status: 'completed' }, 'done'],
    [from, { type: 'ENDED', status: 'failed' }, 'failed'],
    [from, { type: 'ENDED', status: 'cancelled' }, 'failed'],
    [from, { type: 'ENDED', status: 'refused' }, 'failed'],
    [from, { type: 'MOVED' }, 'moved'],
    [from, { type: 'TROUBLE', reason: 'the bus is away' }, 'troubled'],
  ]),
  ['admitting', { type: 'ADMITTED' }, 'running'],
  ['running', { type: 'FACTS' }, 'running'],
  ['running', { type: 'WAITS', dueMs: null }, 'waiting'],
  ['running', { type: 'PAUSES' }, 'paused'],
  ['waiting', { type: 'FACTS' }, 'running'],
  ['waiting', { type: 'DUE' }, 'running'],
  ['paused', { type: 'FACTS' }, 'running'],
  ['troubled', { type: 'DUE' }, 'admitting'],
  ['troubled', { type: 'LINK_UP' }, 'admitting'],
];
const scriptEvents: Row[1][] = [
  { type: 'ADMITTED' },
  { type: 'FACTS' },
  { type: 'WAITS', dueMs: null },
  { type: 'PAUSES' },
  { type: 'DUE' },
  { type: 'LINK_UP' },
  { type: 'NEVER_HEARD_OF' },
];

test('script host machine - every transition', () => {
  checkTable(recorded(scriptHostMachine).machine, flow, scriptRows);
});

test('script host machine - all other events change nothing', () => {
  const { machine } = recorded(scriptHostMachine);
  assert.ok(checkOthersStay(machine, flow, scriptRows, scriptEvents) > 10);
});

test('script host machine - restores from JSON in every state', () => {
  checkRestores(recorded(scriptHostMachine).machine, flow);
});

const limits = { flowsMax: 2 };
const supervisorRows: Row[] = [
  ['starting', { type: 'STARTED' }, 'ready'],
  ['starting', { type: 'DRAIN', reason: 'asked' }, 'draining'],
  ['ready', { type: 'LOAD', flows: 1 }, 'ready'],
  ['ready', { type: 'LOAD', flows: 2 }, 'saturated'],
  ['ready', { type: 'DRAIN', reason: 'asked' }, 'draining'],
  ['saturated', { type: 'LOAD', flows: 3 }, 'saturated'],
  ['saturated', { type: 'LOAD', flows: 1 }, 'ready'],
  ['saturated', { type: 'DRAIN', reason: 'asked' }, 'draining'],
  ['draining', { type: 'IDLE' }, 'stopped'],
  ['draining', { type: 'DEADLINE' }, 'stopped'],
];
const supervisorEvents: Row[1][] = [
  { type: 'STARTED' },
  { type: 'LOAD', flows: 9 },
  { type: 'DRAIN', reason: 'asked' },
  { type: 'IDLE' },
  { type: 'DEADLINE' },
  { type: 'NEVER_HEARD_OF' },
];

test('supervisor machine - every transition', () => {
  checkTable(recorded(supervisorMachine).machine, limits, supervisorRows);
});

test('supervisor machine - all other events change nothing', () => {
  const { machine } = recorded(supervisorMachine);
  assert.ok(checkOthersStay(machine, limits, supervisorRows, supervisorEvents) > 10);
});

test('supervisor machine - restores from JSON in every state', () => {
  checkRestores(recorded(supervisorMachine).machine, limits);
});
