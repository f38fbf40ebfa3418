/** Which part of which stream a request to follow is for. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Followers, type FollowerSpec } from '../../actors/ledger/followers.ts';
import { FollowRequest } from '../../schemas/ledger.ts';

const flow = 'a'.repeat(26);
const output = { context: 'acme', flow, of: 'output' };

test('followers - the output of a flow, of one job or of the script, from a time on', async () => {
  const made: FollowerSpec[] = [];
  const maker = {
    follower: (spec: FollowerSpec) => Promise.resolve(void made.push(spec)),
    queue: () => Promise.resolve(),
  };
  const followers = new Followers(maker, () => 0);
  const cases = [
    [output, `hb.logs.acme.${flow}.*`, null, null],
    [{ ...output, job: 7 }, `hb.logs.acme.${flow}.7`, null, null],
    [{ ...output, job: 'main', since: 5 }, `hb.logs.acme.${flow}.main`, null, 5],
    [{ ...output, from: 3, since: 5 }, `hb.logs.acme.${flow}.*`, 3, 5],
    // What is only of output narrows nothing else.
    [{ context: 'acme', flow, job: 7 }, `hb.flow.acme.${flow}.>`, null, null],
  ] as const;
  for (const [request, filter, from, since] of cases) {
    await followers.follow(FollowRequest.parse(request), 'U', false);
    const spec = made.at(-1);
    assert.deepEqual([spec?.filter, spec?.from, spec?.since], [filter, from, since]);
  }
  for (const wrong of [{ job: -1 }, { job: 'all' }, { job: '*' }, { since: -1 }, { since: 9e15 }]) {
    assert.equal(FollowRequest.safeParse({ ...output, ...wrong }).success, false);
  }
});
