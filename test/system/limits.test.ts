/** Scripts that would hold or fill the node: stopped within limits, while the heartbeat goes on. */
import assert from 'node:assert/strict';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { connect, credsAuthenticator } from '@nats-io/transport-node';
import { parseAddress } from '../../schemas/ids.ts';
import { DEPLOY, deployment, makeKey, seal, seedOf } from './foreign-client.ts';
import { herobus, type Node, type Ran, startNode } from './nodes.ts';

/** Beats come every second; a second and a half of jitter is what a busy machine of two cores may add. */
const GAP_MAX_MS = 2500;

const deep = (depth: number): string => `${'('.repeat(depth)}1${')'.repeat(depth)}`;

const CASES: [what: string, script: string, code: string][] = [
  ['an endless loop', 'loop { }', 'script_limit'],
  ['an endless recursion', 'fn f(x) { f(x + 1) } f(0)', 'script_limit'],
  [
    'ten million elements',
    'let a = []; for i in 0..10000000 { a.push(i); } a.len()',
    'script_limit',
  ],
  ['a string that doubles', 'let s = "x"; loop { s += s; }', 'script_limit'],
  ['nested ten thousand deep', deep(10_000), 'script_limit'],
  ['arrays in arrays without end', 'let a = []; loop { let b = [a, a]; a = b; }', 'script_limit'],
  [
    'a large string in many jobs',
    'let s = ""; s.pad(2000000, "x"); for i in 0..2500 { process(#{ cmd: "true", stdin: s }); }',
    'script_limit',
  ],
  [
    'small strings in very many jobs',
    'let s = ""; s.pad(100000, "x"); for i in 0..2500 { process(#{ cmd: "true", stdin: s }); }',
    'script_limit',
  ],
  ['a value too large to be kept', 'let s = ""; s.pad(300000, "x"); kv_set("k", s);', 'too_large'],
  ['no script at all', 'let = ;', 'script_syntax'],
];

/**
 * Deploys what the CLI itself would refuse to seal: sealed in the home's own name as a stranger would.
 */
async function deployUnchecked(node: Node, server: string, script: string): Promise<Ran> {
  const key = makeKey(seedOf(readFileSync(join(node.home, 'key.nk'), 'utf8')));
  const file = join(node.data, 'sealed');
  writeFileSync(
    file,
    seal(
      Buffer.from(JSON.stringify(deployment(script, { grants: ['process', 'kv:write'] }))),
      DEPLOY,
      key,
    ),
  );
  return herobus(node.home, ['--server', server, '--json', 'publish', file]);
}

test('scripts beyond every limit fail by themselves, and the node beats on', async (t) => {
  const node = await startNode(t);
  const { server = '', address = '' } = node.ready ?? {};
  const creds = readFileSync(join(node.data, 'node.creds'));
  const nats = await connect({ servers: server, authenticator: credsAuthenticator(creds) });
  t.after(() => nats.close());
  const beats: number[] = [performance.now()];
  nats.subscribe(`hb.beat.${parseAddress(address)}`, {
    callback: (_error, message) => {
      if (message.json<{ role: string }>().role === 'node') beats.push(performance.now());
    },
  });
  for (const [what, script, code] of CASES) {
    const ran = await deployUnchecked(node, server, script);
    const flow = JSON.parse(ran.stdout.trim().split('\n').at(-1) ?? '{}') as {
      status: string;
      error: { code: string; message: string };
    };
    assert.match(flow.status, /^(failed|refused)$/, `${what}: ${ran.stdout}${ran.stderr}`);
    assert.equal(flow.error.code, code, `${what}: ${flow.error.message}`);
    assert.ok(ran.code === 1 || ran.code === 2, `${what}: exit code ${ran.code}`);
  }
  beats.push(performance.now());
  const gaps = beats.slice(1).map((at, i) => at - (beats[i] ?? 0));
  t.diagnostic(`${beats.length} beats, the longest gap ${Math.round(Math.max(...gaps))} ms`);
  assert.ok(
    Math.max(...gaps) < GAP_MAX_MS,
    `a gap of ${Math.round(Math.max(...gaps))} ms between beats`,
  );
});
