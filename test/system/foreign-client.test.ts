/**
 * The wire as strangers use it: register, deploy, follow with a NATS client and node:crypto alone, and every
 * way a message can be wrong.
 */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test, type TestContext } from 'node:test';
import type { NatsConnection } from '@nats-io/transport-node';
import {
  DEPLOY,
  deployment,
  flowId,
  follow,
  join as joinBus,
  type Key,
  makeKey,
  publish,
  seal,
} from './foreign-client.ts';
import { flowOf, herobus, type Node, startNode, until } from './nodes.ts';

const HELLO = 'let h = process("sh", ["-c", "echo hello $HEROBUS_JOB"]); h.value.stdout';

type World = {
  node: Node;
  server: string;
  key: Key;
  nats: NatsConnection;
  connect: (key: Key) => Promise<NatsConnection>;
};

async function world(t: TestContext, role = 'executor'): Promise<World> {
  const node = await startNode(t);
  const server = node.ready?.server ?? '';
  const creds = readFileSync(join(node.data, 'join.creds'));
  const connect = async (key: Key): Promise<NatsConnection> => {
    const nats = await joinBus(server, creds, key);
    t.after(() => nats.close());
    return nats;
  };
  const key = makeKey();
  await (await connect(key)).close();
  const granted = await herobus(node.home, [
    '--server',
    server,
    'context',
    'grant',
    'default',
    key.principal,
    role,
  ]);
  assert.equal(granted.code, 0, granted.stderr);
  return { node, server, key, nats: await connect(key), connect };
}

const payloadBytes = (payload: object): Buffer => Buffer.from(JSON.stringify(payload));

/** Waits for the refusal of a message and returns its code. */
async function refusal({ node, server }: World, id: string): Promise<string> {
  const flow = await until(
    `the refusal ${id}`,
    async () => {
      const seen = await flowOf(node.home, server, id);
      return seen.status === 'refused' ? seen : undefined;
    },
    20_000,
  );
  return flow.error?.code ?? '';
}

test('a stranger registers, deploys and follows', async (t) => {
  const { nats, key } = await world(t);
  const payload = payloadBytes(deployment(HELLO));
  const receipt = await publish(nats, 'default', seal(payload, DEPLOY, key));
  assert.equal(receipt.stream, 'HB_DEPLOY');
  const entries = await follow(nats, 'default', flowId(payload));
  const kinds = entries.map(({ subject }) =>
    subject.split('.')[4] === 'main' ? subject.split('.').at(-1) : subject.split('.')[4],
  );
  assert.deepEqual(kinds.slice(0, 3), ['deploy', 'assign', 'plan']);
  const end = entries.at(-1)?.body as unknown as {
    v: number;
    status: string;
    value: string;
    error: null;
  };
  assert.deepEqual([end.v, end.status, end.error], [1, 'completed', null]);
  assert.match(end.value, /^hello [a-z2-7]{26}\.0\n$/);
});

test('the same bytes five times are one flow, and its jobs run once', async (t) => {
  const { nats, key, node, server } = await world(t);
  const payload = payloadBytes(
    deployment(`process("sh", ["-c", "echo x >> ${node.data}/lines"]).value.code`),
  );
  const sealed = seal(payload, DEPLOY, key);
  for (let i = 0; i < 5; i++) await publish(nats, 'default', sealed);
  await follow(nats, 'default', flowId(payload));
  await publish(nats, 'default', sealed);
  const marker = payloadBytes(deployment('1'));
  await publish(nats, 'default', seal(marker, DEPLOY, key));
  await follow(nats, 'default', flowId(marker));
  assert.equal(readFileSync(join(node.data, 'lines'), 'utf8'), 'x\n');
  assert.equal((await flowOf(node.home, server, flowId(payload))).status, 'completed');
});

test('wrong messages are refused, each with its own code, and burn no flow', async (t) => {
  const w = await world(t);
  const { nats, key, node, server } = w;
  const payload = payloadBytes(deployment(HELLO));
  const sealed = seal(payload, DEPLOY, key);
  const flow = flowId(payload);

  const altered = (
    change: (envelope: {
      payload: string;
      payloadType: string;
      signatures: { keyid: string; sig: string }[];
    }) => void,
  ): Buffer => {
    const envelope = JSON.parse(sealed.toString());
    change(envelope);
    return Buffer.from(JSON.stringify(envelope));
  };
  const flip = (base64: string, at: number): string => {
    const bytes = Buffer.from(base64, 'base64');
    bytes[at] = (bytes[at] ?? 0) ^ 1;
    return bytes.toString('base64');
  };
  const stranger = makeKey();
  const expired = deployment(HELLO, {
    issued_at: new Date(Date.now() - 7200_000).toISOString(),
    expires_at: new Date(Date.now() - 3600_000).toISOString(),
  });
  const early = deployment(HELLO, {
    issued_at: new Date(Date.now() + 3600_000).toISOString(),
    expires_at: new Date(Date.now() + 7200_000).toISOString(),
  });
  const cases: [string, Buffer, string][] = [
    [
      'a byte of the signature',
      altered((e) => {
        if (e.signatures[0]) e.signatures[0].sig = flip(e.signatures[0].sig, 3);
      }),
      'bad_signature',
    ],
    [
      'a byte of the payload',
      altered((e) => {
        e.payload = flip(e.payload, 40);
      }),
      'bad_signature',
    ],
    [
      'the payload type',
      altered((e) => {
        e.payloadType = 'application/vnd.herobus.command+json';
      }),
      'bad_signature',
    ],
    [
      'an unknown field',
      altered((e) => {
        Object.assign(e, { extra: 1 });
      }),
      'bad_envelope',
    ],
    [
      'a duplicate key',
      Buffer.from(sealed.toString().replace('{"payload"', '{"payload":"","payload"')),
      'duplicate_key',
    ],
    ['an expired one', seal(payloadBytes(expired), DEPLOY, key), 'expired'],
    ['one from the future', seal(payloadBytes(early), DEPLOY, key), 'not_yet_valid'],
    [
      'another context',
      seal(payloadBytes(deployment(HELLO, { context: 'other' })), DEPLOY, key),
      'context_mismatch',
    ],
    ['an unknown signer', seal(payload, DEPLOY, stranger), 'unknown_signer'],
    ['no JSON at all', Buffer.from('deploy this, please'), 'bad_envelope'],
  ];
  const { createHash } = await import('node:crypto');
  for (const [what, bytes, code] of cases) {
    await publish(nats, 'default', bytes);
    const hex = createHash('sha256').update(bytes).digest('hex');
    assert.equal(await refusal(w, hex), code, what);
  }
  // The unknown signer's message had the true payload: the true message still makes its flow.
  await publish(nats, 'default', sealed);
  await follow(nats, 'default', flow);
  const shown = await flowOf(node.home, server, flow);
  assert.equal(shown.status, 'completed');
});

test('a policy of two: one signature stripped is refused, both make the flow', async (t) => {
  const w = await world(t);
  const { nats, key, node, server, connect } = w;
  const second = makeKey();
  await connect(second);
  const cli = (...args: string[]) => herobus(node.home, ['--server', server, ...args]);
  assert.equal((await cli('context', 'grant', 'default', second.principal, 'executor')).code, 0);
  assert.equal((await cli('context', 'policy', 'default', '--m', '2')).code, 0);
  const payload = payloadBytes(deployment(HELLO));
  await publish(nats, 'default', seal(payload, DEPLOY, key));
  assert.equal(await refusal(w, flowId(payload)), 'policy_unmet');
  await publish(nats, 'default', seal(payload, DEPLOY, key, second));
  const entries = await follow(nats, 'default', flowId(payload));
  assert.equal((entries.at(-1)?.body as { status?: string } | undefined)?.status, 'completed');
});
