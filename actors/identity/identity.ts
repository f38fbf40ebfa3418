/**
 * A node's identity: its key, its registration, its connection and its credentials, kept up for ever.
 *
 * `startIdentity` runs the machine (identity.machine.ts) and hands out what it reached: the first `joined`,
 * and at any time the state with its reason, for the console and the roster. It needs no clock that is
 * right. How a connection is made is given to it, so it runs on any bus.
 */
import { join } from 'node:path';
import { createActor } from 'xstate';
import type { Subscription } from '../../bus/bus.ts';
import type { Identity } from '../../bus/identity.ts';
import { HeroError } from '../../schemas/errors.ts';
import { provideIdentity, type IdentityDeps, type SessionBus } from './identity.effects.ts';

export type IdentityOptions<B extends SessionBus> = Omit<
  IdentityDeps<B>,
  'credsFile' | 'network' | 'random'
> &
  Partial<Pick<IdentityDeps<B>, 'credsFile' | 'network' | 'random'>>;

export type Joined<B extends SessionBus> = { identity: Identity; bus: B };
export type IdentityState = { state: string; reason: string };

export type NodeIdentity<B extends SessionBus> = {
  /** Resolves at the first `joined`; the bus in it lasts until `stop`, through every renewal. */
  joined: () => Promise<Joined<B>>;
  state: () => IdentityState;
  onState: (listener: (state: IdentityState) => void) => Subscription;
  /** The rights of this principal have changed (a new context): fetches credentials and connects anew. */
  rightsChanged: () => void;
  stop: () => Promise<void>;
};

export function startIdentity<B extends SessionBus>(options: IdentityOptions<B>): NodeIdentity<B> {
  const { machine, session } = provideIdentity<B>({
    credsFile: join(options.home, 'bus.creds'),
    network: async () => undefined,
    random: Math.random,
    ...options,
  });
  const first = Promise.withResolvers<Joined<B>>();
  first.promise.catch(() => undefined);
  const listeners = new Set<(state: IdentityState) => void>();
  const actor = createActor(machine);
  const state = (): IdentityState => {
    const { value, context } = actor.getSnapshot();
    return { state: String(value), reason: context.reason };
  };
  let told = state();
  actor.subscribe({
    next: ({ value }) => {
      const { identity, bus } = session;
      if (value === 'joined' && identity !== undefined && bus !== undefined) {
        first.resolve({ identity, bus });
      }
      const now = state();
      if (now.state === told.state && now.reason === told.reason) return;
      told = now;
      for (const listener of listeners) listener(now);
    },
    error: (error) => first.reject(error),
  });
  actor.start();
  actor.send({ type: 'BEGIN' });
  return {
    joined: () => first.promise,
    state,
    onState: (listener) => {
      listeners.add(listener);
      return { stop: () => listeners.delete(listener) };
    },
    rightsChanged: () => {
      if (!session.stopped) actor.send({ type: 'RIGHTS_CHANGED' });
    },
    stop: async () => {
      actor.stop();
      first.reject(new HeroError('cancelled', 'stopped before it had joined'));
      await session.stop();
    },
  };
}
