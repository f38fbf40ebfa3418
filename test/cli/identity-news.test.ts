/** What an operator hears of a node's link: nothing of moments, one line when it goes, one when it is back. */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { identityNews } from '../../tools/up/identity-news.ts';

const JOINED = { state: 'joined', reason: 'joined' };
const OFFLINE = { state: 'offline', reason: 'the link to the bus is down' };
const JOINING = { state: 'joining', reason: 'registering with the ledger' };

describe('up - news of the identity', () => {
  it('does not tell a link that is back within moments', (t) => {
    t.mock.timers.enable({ apis: ['setTimeout'] });
    const told: string[] = [];
    const hear = identityNews((text) => told.push(text), 1000);
    for (const now of [JOINED, OFFLINE, JOINED, OFFLINE]) hear(now);
    t.mock.timers.tick(999);
    hear(JOINED);
    t.mock.timers.tick(10_000);
    assert.deepEqual(told, []);
  });

  it('tells once that the link is down, and that it is back', (t) => {
    t.mock.timers.enable({ apis: ['setTimeout'] });
    const told: string[] = [];
    const hear = identityNews((text) => told.push(text), 1000);
    for (const now of [JOINED, OFFLINE, JOINING, OFFLINE]) hear(now);
    t.mock.timers.tick(1000);
    for (const now of [JOINING, OFFLINE, JOINED, JOINED]) hear(now);
    assert.equal(told.length, 2);
    assert.equal(told[0], 'off the bus: the link to the bus is down');
    assert.match(told[1] ?? '', /^on the bus, after /);
  });

  it('tells at once what waits for an admin', (t) => {
    t.mock.timers.enable({ apis: ['setTimeout'] });
    const told: string[] = [];
    const hear = identityNews((text) => told.push(text), 1000);
    const waits = { state: 'awaitingApproval', reason: 'an admin has to approve it' };
    for (const now of [JOINING, waits, JOINING, waits]) hear(now);
    assert.deepEqual(told, ['waits to be let in: an admin has to approve it']);
    hear(JOINED);
    assert.match(told[1] ?? '', /^on the bus, after /);
  });
});
