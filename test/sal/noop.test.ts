/** The noop SAL: whatever it is given, nothing happens and unit comes back, also when it is undone. */
import assert from 'node:assert/strict';
import { subscribe, unsubscribe } from 'node:diagnostics_channel';
import { test } from 'node:test';
import { Registry, type SalContext } from '../../sal/driver.ts';
import { noopFamily } from '../../sal/noop.ts';

const registry = new Registry([noopFamily()]);
const context: SalContext = {
  jobId: 'flow.0',
  attempt: 1,
  caller: 'U',
  deadlineMs: null,
  signal: new AbortController().signal,
  log: () => assert.fail('it has nothing to say'),
};

test('noop - takes nothing or any map, and gives unit', async () => {
  for (const args of [{}, { any: [1, { deep: 'text' }] }]) {
    const bound = registry.operation('noop.run').bind(args);
    assert.equal(await bound.run(context), null);
    await bound.inverse?.(context);
  }
});

test('noop - what is no map is named as a bad argument', () => {
  assert.throws(() => registry.operation('noop.run').bind('x'), /noop\.run/);
});

test('noop - is always there, under a capability of its own', async () => {
  assert.deepEqual(await registry.offers(), ['noop']);
});

test('noop - who listens learns when one begins', async () => {
  const seen: unknown[] = [];
  const listen = (message: unknown): void => void seen.push(message);
  subscribe('herobus:noop', listen);
  await registry.operation('noop.run').bind({}).run(context);
  unsubscribe('herobus:noop', listen);
  assert.deepEqual(seen, [{ jobId: 'flow.0' }]);
});
