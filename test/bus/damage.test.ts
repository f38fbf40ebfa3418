/**
 * Damage to the newest block of every stream that carries truth, and to the files beside it, drawn under a seed:
 * whatever the server makes of it, each stream is served whole and right, or named and refused.
 *
 * Method: one store is filled, all its messages are noted, and it is ended (in order, or killed). Each case
 * damages a copy, each stream in its own way, starts a server on it and compares. More:
 * `npm run test:soak -- damage`.
 */
import assert from 'node:assert/strict';
import { dirname, join } from 'node:path';
import { cp, readFile, rm, stat, truncate, writeFile } from 'node:fs/promises';
import { test, type TestContext } from 'node:test';
import { newIdentity } from '../../bus/identity.ts';
import { Random } from '../../bus/simulated/random.ts';
import type { StreamTails } from '../../bus/stream-tails.ts';
import { userBucket } from '../../bus/streams.ts';
import { HeroError } from '../../schemas/errors.ts';
import { CONTEXT } from './fixtures.ts';
import {
  append,
  type End,
  ENDS,
  flipBit,
  folder,
  newestBlock,
  openMarks,
  openStore,
  type Store,
} from './store.ts';

const CASES = Number(process.env['DAMAGE_CASES'] ?? 6);
const SEED = Number(process.env['DAMAGE_SEED'] ?? 1);
const USER = newIdentity();
const STREAMS = [
  'HB_FLOW',
  'HB_DEPLOY',
  'KV_ledger_meta',
  `KV_${userBucket(USER.address)}`,
] as const;

type Damage = (block: string, random: Random) => Promise<string>;

const sizeOf = async (path: string): Promise<number> => (await stat(path)).size;

async function cut(block: string, length: number): Promise<string> {
  await truncate(block, length);
  return `cut to ${length} bytes`;
}

/** Where records begin: each starts with its length, whose highest bit says that it has headers. */
async function borders(block: string): Promise<number[]> {
  const bytes = await readFile(block);
  const found: number[] = [];
  for (let at = 0; at + 4 <= bytes.length; at += bytes.readUInt32LE(at) & 0x7fff_ffff) {
    found.push(at);
  }
  return found;
}

const beside = (block: string, name: string): string => join(dirname(block), name);

async function flipped(path: string, random: Random): Promise<string> {
  const offset = random.whole(0, (await sizeOf(path)) - 1);
  await flipBit(path, () => offset);
  return `bit ${offset} of ${path}`;
}

const DAMAGES: Record<string, Damage> = {
  'a bit of the block': flipped,
  'a bit of its last record': async (block) => {
    const start = (await borders(block)).at(-1) ?? 0;
    await flipBit(block, (size) => start + ((size - start) >> 1));
    return `in the record at ${start}`;
  },
  'one byte cut off': async (block) => cut(block, (await sizeOf(block)) - 1),
  'cut anywhere': async (block, random) => cut(block, random.whole(0, (await sizeOf(block)) - 1)),
  'cut between two records': async (block, random) => cut(block, random.pick(await borders(block))),
  'zeros for its end': async (block, random) => {
    const bytes = await readFile(block);
    await writeFile(block, bytes.fill(0, random.whole(0, bytes.length - 1)));
    return 'zeros';
  },
  'the block removed': async (block) => {
    await rm(block);
    return block;
  },
  'a bit of the state': async (block, random) => {
    const state = beside(block, 'index.db');
    return (await sizeOf(state).catch(() => 0)) === 0 ? 'no state there' : flipped(state, random);
  },
  'the state removed': async (block) => {
    await rm(beside(block, 'index.db'), { force: true });
    return 'index.db';
  },
  'a bit of the description': (block, random) => flipped(beside(block, '../meta.inf'), random),
  'the description removed': async (block) => {
    await rm(beside(block, '../meta.inf'));
    return 'meta.inf';
  },
  'its checksum removed': async (block) => {
    await rm(beside(block, '../meta.sum'));
    return 'meta.sum';
  },
};

/** Sequence -> digest of what is stored there; undefined for what was superseded. */
type Content = (string | undefined)[];

async function contentOf(tails: StreamTails, stream: string, last: number): Promise<Content> {
  const sequences = Array.from({ length: last }, (_, i) => i + 1);
  return Promise.all(sequences.map((seq) => tails.digest(stream, seq)));
}

async function endOf(tails: StreamTails, stream: string): Promise<number> {
  return (await tails.tail(stream)).last;
}

async function fill(store: Store): Promise<void> {
  const { bus } = store;
  await bus.admin.ensureBus();
  await bus.admin.ensureUserBucket(USER.address);
  await append(store, 24);
  await append(store, 9, `hb.deploy.${CONTEXT}`);
  for (let n = 0; n < 60; n++) await bus.kv('ledger_meta').put(`k${n % 3}`, { n });
  const own = bus.kv(userBucket(USER.address));
  for (let n = 0; n < 20; n++) await own.put(`key${n % 7}`, { n, text: 'x'.repeat(n * 10) });
  await own.delete('key1');
}

type Filled = { dataDir: string; contents: Map<string, Content> };

async function filled(t: TestContext, how: End): Promise<Filled> {
  const dataDir = folder(t);
  const store = await openStore(t, dataDir);
  const { keeper } = await openMarks(t, store, dataDir);
  await fill(store);
  await keeper.refresh();
  const tails = store.bus.admin.tails();
  const contents = new Map<string, Content>();
  for (const stream of STREAMS) {
    contents.set(stream, await contentOf(tails, stream, await endOf(tails, stream)));
  }
  if (how === 'stopped') await keeper.stop();
  await store.end(how);
  return { dataDir, contents };
}

/** The streams that the start named, with what it said; none where it went on. */
async function named(t: TestContext, store: Store, dataDir: string): Promise<Map<string, string>> {
  try {
    const { keeper, alarms } = await openMarks(t, store, dataDir);
    await keeper.stop();
    assert.deepEqual(alarms, []);
    return new Map();
  } catch (error) {
    if (!(error instanceof HeroError)) throw error;
    assert.equal(error.code, 'log_regressed');
    assert.match(error.fix ?? '', /nats\/jetstream in place .*`herobus up --accept-loss`/);
    return new Map(error.message.split('; ').map((said) => [said.split(' ')[0] ?? '', said]));
  }
}

/** What became of the streams of one damaged copy. */
async function judge(
  t: TestContext,
  { dataDir, contents }: Filled,
  told: Record<string, string>,
): Promise<{ refused: string[]; whole: string[] }> {
  const store = await openStore(t, dataDir);
  const faults = await named(t, store, dataDir);
  const tails = store.bus.admin.tails();
  const whole: string[] = [];
  for (const [stream, content] of contents) {
    const said = faults.get(stream);
    if (said !== undefined) {
      assert.match(said, new RegExp(`\\b${content.length}\\b`), said);
      continue;
    }
    const there = await contentOf(tails, stream, content.length);
    assert.deepEqual(there, content, `${stream} is served, and is not whole: ${told[stream]}`);
    assert.equal(await endOf(tails, stream), content.length);
    whole.push(stream);
  }
  if (faults.size > 0) {
    assert.deepEqual(await named(t, store, dataDir), faults, 'said at each start');
    const { keeper, alarms } = await openMarks(t, store, dataDir, true);
    assert.equal(alarms.length, faults.size, 'each accepted loss is told');
    await store.bus.admin.ensureBus();
    await append(store, 1);
    await keeper.stop();
    assert.equal((await named(t, store, dataDir)).size, 0, 'what was accepted is marked');
  }
  await store.end('killed');
  return { refused: [...faults.keys()], whole };
}

for (const how of ENDS) {
  test(`damage - ${how}, then ${CASES} stores damaged (seed ${SEED})`, async (t) => {
    const random = new Random(SEED);
    const source = await filled(t, how);
    const counts = { refused: 0, whole: 0 };
    for (let number = 0; number < CASES; number++) {
      const dataDir = join(folder(t), 'data');
      await cp(source.dataDir, dataDir, { recursive: true });
      const told: Record<string, string> = {};
      for (const stream of STREAMS) {
        const kind = random.pick(Object.keys(DAMAGES));
        const block = newestBlock(dataDir, stream);
        const detail = await DAMAGES[kind]?.(block, random);
        told[stream] = `${kind}, ${detail}`;
      }
      const { refused, whole } = await judge(t, { ...source, dataDir }, told);
      counts.refused += refused.length;
      counts.whole += whole.length;
    }
    assert.ok(counts.refused > 0 && counts.whole > 0, JSON.stringify(counts));
    t.diagnostic(`streams named: ${counts.refused}, served whole: ${counts.whole}`);
  });
}
