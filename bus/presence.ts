/**
 * Whether a connection is there at this moment, for whoever waits for an answer on it.
 *
 * The client keeps a request waiting when its connection is lost, and throws away what is published while
 * there is none. So a request learns at once that its answer will not come, and one that is made meanwhile
 * waits until the connection is back. bus/connect.ts tells; bus/jetstream.ts asks.
 */
import type { NatsConnection } from '@nats-io/transport-node';

type Presence = { up: boolean; drops: Set<() => void>; returns: Set<() => void> };

const presences = new WeakMap<NatsConnection, Presence>();

function presenceOf(nats: NatsConnection): Presence {
  const known = presences.get(nats);
  if (known !== undefined) return known;
  const presence: Presence = { up: true, drops: new Set(), returns: new Set() };
  presences.set(nats, presence);
  return presence;
}

export function connectionLost(nats: NatsConnection): void {
  const presence = presenceOf(nats);
  presence.up = false;
  for (const drop of presence.drops) drop();
}

export function connectionBack(nats: NatsConnection): void {
  const presence = presenceOf(nats);
  presence.up = true;
  for (const back of presence.returns) back();
  presence.returns.clear();
}

/** Calls `drop` when the connection is lost, until the returned function is called. */
export function whenLost(nats: NatsConnection, drop: () => void): () => void {
  const { drops } = presenceOf(nats);
  drops.add(drop);
  return () => void drops.delete(drop);
}

/** Resolves when the connection is there, or with false when the time is up. */
export function whenThere(nats: NatsConnection, timeoutMs: number): Promise<boolean> | true {
  const presence = presenceOf(nats);
  if (presence.up) return true;
  return new Promise((resolve) => {
    const back = () => {
      clearTimeout(timer);
      resolve(true);
    };
    const timer = setTimeout(() => {
      presence.returns.delete(back);
      resolve(false);
    }, timeoutMs);
    presence.returns.add(back);
  });
}
