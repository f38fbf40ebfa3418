/** A store that a test fills, ends and damages: the server of a data folder with a control bus and its watermarks. */
import assert from 'node:assert/strict';
import { globSync, statSync } from 'node:fs';
import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { TestContext } from 'node:test';
import { makeIssuer, makeTrust, openKeys } from '../../bus/credentials.ts';
import { newIdentity } from '../../bus/identity.ts';
import { publishAcked } from '../../bus/jetstream.ts';
import { type NatsBus, openNatsBus } from '../../bus/nats.ts';
import { type EmbeddedServer, startServer } from '../../bus/server.ts';
import { openWatermarks, type WatermarkKeeper } from '../../bus/watermark.ts';
import type { HeroError } from '../../schemas/errors.ts';
import { temporaryFolder } from '../cli/cli.ts';
import { CONTEXT, newIncarnation } from './fixtures.ts';

export const ENDS = ['stopped', 'killed'] as const;
export type End = (typeof ENDS)[number];

/** What a test started, ended in the reverse order: folders last. */
export function cleanups(t: TestContext): (act: () => unknown) => void {
  const known = undoing.get(t);
  if (known !== undefined) return known;
  const acts: (() => unknown)[] = [];
  t.after(async () => {
    for (const act of acts.toReversed()) await act();
  });
  const add = (act: () => unknown): void => void acts.push(act);
  undoing.set(t, add);
  return add;
}
const undoing = new WeakMap<TestContext, (act: () => unknown) => void>();

export const folder = (t: TestContext): string => temporaryFolder({ after: cleanups(t) });

export type Store = { server: EmbeddedServer; bus: NatsBus; end: (how: End) => Promise<void> };

/** The server of a data folder with a control bus on it, as the control plane has them. */
export async function openStore(t: TestContext, dataDir: string): Promise<Store> {
  const keys = await openKeys(dataDir);
  const server = await startServer({
    dataDir,
    trust: await makeTrust(keys),
    durability: 'fsync',
  });
  cleanups(t)(() => server.stop());
  const identity = newIdentity();
  const issuer = makeIssuer(keys);
  const jwt = await issuer.control(identity.principal);
  const ledgerJwt = await issuer.ledgerService(identity.principal);
  const bus = await openNatsBus({
    kind: 'control',
    server: server.url,
    identity,
    incarnation: newIncarnation(),
    jwt: () => jwt,
    ledgerJwt: () => ledgerJwt,
  });
  cleanups(t)(() => bus.close());
  const end = async (how: End): Promise<void> => {
    if (how === 'killed') process.kill(server.pid() ?? 0, 'SIGKILL');
    else await bus.close();
    await server.stop();
    await bus.close();
  };
  return { server, bus, end };
}

/** Who accepts losses. */
export const OWNER = newIdentity();

export type Kept = { keeper: WatermarkKeeper; alarms: string[]; regressed: HeroError[] };

export async function openMarks(
  t: TestContext,
  { bus }: Store,
  dataDir: string,
  acceptLoss = false,
): Promise<Kept> {
  const alarms: string[] = [];
  const regressed: HeroError[] = [];
  const keeper = await openWatermarks({
    dataDir,
    tails: bus.admin.tails(),
    link: bus.link,
    identity: OWNER,
    acceptLoss,
    alarm: (message) => alarms.push(message),
    onRegressed: (error) => regressed.push(error),
  });
  cleanups(t)(() => keeper.stop());
  return { keeper, alarms, regressed };
}

export async function append(
  { bus }: Store,
  count: number,
  subject = `hb.flow.${CONTEXT}.f.x`,
): Promise<void> {
  for (let i = 0; i < count; i++) {
    const data = Buffer.alloc(300, `${subject} ${i} `);
    await publishAcked(bus.nats, subject, data, { headers: { n: `${i}` }, timeoutMs: 5_000 });
  }
}

export function newestBlock(dataDir: string, stream: string): string {
  const blocks = globSync(join(dataDir, `nats/jetstream/**/streams/${stream}/msgs/*.blk`));
  const number = (path: string): number => Number(/(\d+)\.blk$/.exec(path)?.[1]);
  const newest = blocks.toSorted((a, b) => number(a) - number(b)).at(-1);
  assert.ok(newest !== undefined && statSync(newest).size > 0, `${stream} has a block with data`);
  return newest;
}

export async function flipBit(path: string, at: (size: number) => number): Promise<void> {
  const bytes = await readFile(path);
  const offset = at(bytes.length);
  bytes[offset] = (bytes[offset] ?? 0) ^ 1;
  await writeFile(path, bytes);
}
