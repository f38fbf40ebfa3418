/** Which part of which stream a request to follow is for. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Followers, type FollowerSpec } from '../../actors/ledger/followers.ts';
import { FLOWS_FOLLOWED_MAX, FollowRequest } from '../../schemas/ledger.ts';

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
    assert.deepEqual([spec?.filters, spec?.from, spec?.since], [[filter], from, since]);
  }
  for (const wrong of [{ job: -1 }, { job: 'all' }, { job: '*' }, { since: -1 }, { since: 9e15 }]) {
    assert.equal(FollowRequest.safeParse({ ...output, ...wrong }).success, false);
  }
});

test('followers - several flows of one context, each once, and no more than that', async () => {
  const made: FollowerSpec[] = [];
  const maker = {
    follower: (spec: FollowerSpec) => Promise.resolve(void made.push(spec)),
    queue: () => Promise.resolve(),
  };
  const other = 'b'.repeat(26);
  const followers = new Followers(maker, () => 0);
  const asked = { context: 'acme', flows: [flow, other, flow], from: 9 };
  await followers.follow(FollowRequest.parse(asked), 'U', false);
  const filters = [flow, other].map((id) => `hb.flow.acme.${id}.>`);
  assert.deepEqual([made[0]?.filters, made[0]?.from], [filters, 9]);
  const many = Array<string>(FLOWS_FOLLOWED_MAX + 1).fill(flow);
  for (const flows of [[], many, ['*'], [`${flow}.>`]]) {
    assert.equal(FollowRequest.safeParse({ context: 'acme', flows }).success, false);
  }
});
