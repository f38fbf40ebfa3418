/**
 * Cuts the power of a server at an acknowledgement, again and again, and counts what was acknowledged and is
 * gone.
 *
 * Deployments are published as any client publishes them, several in flight; at the drawn acknowledgement the
 * guest is killed before anything else is done. The next start on the same disk is read: it ends one cut and
 * begins the next. `fsync` has to lose nothing; `relaxed` has to lose something, or what is cut is no power.
 */
import { createHash } from 'node:crypto';
import { makeIssuer, openKeys, type BusKeys } from '../../bus/credentials.ts';
import { newIdentity, type Identity } from '../../bus/identity.ts';
import { callApi, publishAcked, ServerRefusal } from '../../bus/jetstream.ts';
import { type NatsBus, openNatsBus } from '../../bus/nats.ts';
import type { Random } from '../../bus/simulated/random.ts';
import { streams, subjects } from '../../bus/subjects.ts';
import { newIncarnation } from '../../actors/incarnation.ts';
import type { Kernel } from '../../efi/kernel.ts';
import { sealDeployment } from '../cli/seal.ts';
import { boot, DURABILITIES, type Guest, type GuestDurability, makeMachine } from './guest.ts';

export type PowerLossOptions = {
  folder: string;
  kernel: Kernel;
  /** Of each durability. */
  cuts: number;
  random: Random;
  say: (line: string) => void;
};

export type Losses = { cuts: number; acked: number; lost: number };
export type PowerLoss = Record<GuestDurability, Losses>;

const CONTEXT = 'main';
const IN_FLIGHT = 4;
const ACKS_MAX = 24;
const ANSWER_MS = 30_000;
const LIFETIME_MS = 600_000;
const MESSAGE_NOT_FOUND = 10037;
const STREAM_NOT_FOUND = 10059;

/** Acknowledged: sequence -> digest of what was published. */
type Acked = Map<number, string>;
type Keys = { bus: BusKeys; identity: Identity };

export async function losePower(options: PowerLossOptions): Promise<PowerLoss> {
  const { folder, kernel, cuts, random, say } = options;
  const keys = { bus: await openKeys(folder), identity: newIdentity() };
  const machine = await makeMachine(folder, kernel, keys.bus);
  const losses = (): Losses => ({ cuts: 0, acked: 0, lost: 0 });
  const result: PowerLoss = { fsync: losses(), relaxed: losses() };
  const kept: Acked = new Map();
  let guest: Guest | undefined;
  try {
    for (const durability of DURABILITIES) {
      for (let cut = 0; cut < cuts; cut++) {
        guest ??= await boot(machine, durability);
        const acked = await cutAtAck(guest, keys, random.whole(1, ACKS_MAX));
        guest = await boot(machine, nextOf(durability, cut + 1 === cuts));
        for (const [seq, digest] of acked) kept.set(seq, digest);
        const gone = await missing(guest, keys, kept);
        for (const seq of gone) kept.delete(seq);
        const { [durability]: counts } = result;
        counts.cuts++;
        counts.acked += acked.size;
        counts.lost += gone.length;
        say(`${durability}: cut at acknowledgement ${acked.size}, ${gone.length} lost`);
      }
    }
    return result;
  } finally {
    await guest?.cutPower();
  }
}

/** What the next cut needs: all of `fsync` come before all of `relaxed`. */
const nextOf = (durability: GuestDurability, isLast: boolean): GuestDurability =>
  isLast ? 'relaxed' : durability;

async function withBus<T>(
  { url }: Guest,
  { bus: keys, identity }: Keys,
  act: (bus: NatsBus) => Promise<T>,
): Promise<T> {
  const issuer = makeIssuer(keys);
  const jwt = await issuer.control(identity.principal);
  const ledgerJwt = await issuer.ledgerService(identity.principal);
  const bus = await openNatsBus({
    kind: 'control',
    server: url,
    identity,
    incarnation: newIncarnation(),
    jwt: () => jwt,
    ledgerJwt: () => ledgerJwt,
  });
  try {
    return await act(bus);
  } finally {
    await bus.close();
  }
}

/** Publishes until so many are acknowledged; what was, when the power went. */
function cutAtAck(guest: Guest, keys: Keys, acks: number): Promise<Acked> {
  return withBus(guest, keys, async (bus) => {
    await bus.admin.ensureBus();
    const acked: Acked = new Map();
    let cut: Promise<void> | undefined;
    const publish = async (): Promise<void> => {
      while (cut === undefined) {
        const bytes = deployment(keys.identity, bus.now());
        const options = { timeoutMs: ANSWER_MS };
        const ack = await publishAcked(bus.nats, subjects.deploy(CONTEXT), bytes, options).catch(
          () => undefined,
        );
        if (cut !== undefined) return;
        if (ack === undefined) throw new Error('the guest acknowledged nothing more');
        acked.set(ack.seq, digestOf(bytes));
        if (acked.size === acks) cut = guest.cutPower();
      }
    };
    const publishing = Array.from({ length: IN_FLIGHT }, publish);
    await Promise.race(publishing);
    await cut;
    // What is still in flight ends with the connection.
    void Promise.allSettled(publishing);
    return acked;
  });
}

function deployment(identity: Identity, nowMs: number): Uint8Array {
  const draft = { context: CONTEXT, script: 'spawn_noop().join()', args: {}, grants: [], on: null };
  return sealDeployment({ ...draft, lifetimeMs: LIFETIME_MS }, [identity], nowMs);
}

const digestOf = (bytes: Uint8Array): string => createHash('sha256').update(bytes).digest('hex');

/** Sequences that were acknowledged and hold something else now, or nothing. */
function missing(guest: Guest, keys: Keys, acked: Acked): Promise<number[]> {
  return withBus(guest, keys, async (bus) => {
    const gone: number[] = [];
    for (const [seq, digest] of acked) {
      if ((await stored(bus, seq)) !== digest) gone.push(seq);
    }
    return gone;
  });
}

async function stored({ nats }: NatsBus, seq: number): Promise<string | undefined> {
  try {
    const answer = await callApi(nats, `STREAM.MSG.GET.${streams.deploy}`, { seq }, ANSWER_MS);
    const { data } = answer['message'] as { data: string };
    return digestOf(Buffer.from(data, 'base64'));
  } catch (error) {
    if (!(error instanceof ServerRefusal)) throw error;
    if (error.code === MESSAGE_NOT_FOUND || error.code === STREAM_NOT_FOUND) return undefined;
    throw error;
  }
}
