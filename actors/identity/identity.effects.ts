/**
 * What the identity's machine asks for: network, key, registration, renewal, timers, the link's state.
 *
 * Each effect answers its machine with exactly one event; one that was overtaken by another (a slow answer
 * to an earlier try) says nothing. The session keeps one connection for good: it asks for the newest token
 * at each connect, so renewing is only a matter of having the next one in time.
 */
import { setTimeout as delay } from 'node:timers/promises';
import type { Bus } from '../../bus/bus.ts';
import { writeCreds } from '../../bus/connect.ts';
import type { Identity } from '../../bus/identity.ts';
import { subjects } from '../../bus/subjects.ts';
import { HeroError, ensureError, type ErrorCode } from '../../schemas/errors.ts';
import { LedgerReply, RegisterReply } from '../../schemas/ledger.ts';
import { backoffMs } from '../supervise.ts';
import { identityMachine, type IdentityEvent, type WaitKind } from './identity.machine.ts';
import { loadOrMakeKey } from './key-file.ts';
import { lifetimeMs, register, type JoinLink, type Registrant } from './register.ts';

export type SessionBus = Pick<Bus, 'request' | 'link' | 'close'>;

export type IdentityDeps<B extends SessionBus> = {
  home: string;
  /** Where the credentials are written for others of this home; by default `<home>/bus.creds`. */
  credsFile: string;
  registrant: Registrant;
  /** Resolves when there is a way to the bus; rejects with what is missing. */
  network: () => Promise<void>;
  /** Connects with the join credentials. */
  connectJoin: (identity: Identity) => Promise<JoinLink>;
  /** Connects as this principal; `jwt` gives the newest token whenever it is asked. */
  connect: (identity: Identity, jwt: () => string) => Promise<B>;
  /** Makes the connection take the newest token now; without it, it does at its next connect. */
  reconnect?: (bus: B) => Promise<void>;
  random: () => number;
};

/** What was reached so far. One session for a process: its bus outlives every token. */
export type Session<B extends SessionBus> = {
  identity: Identity | undefined;
  jwt: string | undefined;
  /** When the token came, by the monotonic clock: its end is counted from here. */
  jwtAtMs: number;
  bus: B | undefined;
  stopped: boolean;
  /** Ends what the effects keep: timer, connection. */
  stop: () => Promise<void>;
};

const RETRY = { firstMs: 500, maxMs: 5_000 };
/** About as long as the bus has been away so far: one that was only started again is found at once. */
const REJOIN = { firstMs: 250, maxMs: 10_000 };
const POLL = { firstMs: 2_000, maxMs: 15_000 };
/** Credentials without an end are still renewed: what they allow may have changed. */
const RENEW_MAX_MS = 12 * 3600 * 1000;
const RENEW_MIN_MS = 1_000;
const EFFECT_MAX_MS = 30_000;

type Self = { send: (event: IdentityEvent) => void };
type Facts = { failures: number; lifetimeMs: number | null; ageMs: number };

export function provideIdentity<B extends SessionBus>(
  deps: IdentityDeps<B>,
): { machine: typeof identityMachine; session: Session<B> } {
  let timer: NodeJS.Timeout | undefined;
  let turn = 0;
  const session: Session<B> = {
    identity: undefined,
    jwt: undefined,
    jwtAtMs: 0,
    bus: undefined,
    stopped: false,
    stop: async () => {
      session.stopped = true;
      clearTimeout(timer);
      await session.bus?.close();
    },
  };
  const work = (self: Self, act: () => Promise<IdentityEvent>) => {
    const mine = ++turn;
    inTime(act())
      .catch(eventOf)
      .then((event) => {
        if (mine === turn && !session.stopped) self.send(event);
      })
      .catch(() => undefined);
  };
  const link = (self: Self) => (state: { up: boolean }) => {
    if (!session.stopped) self.send({ type: state.up ? 'LINK_UP' : 'LINK_DOWN' });
  };
  const machine = identityMachine.provide({
    actions: {
      awaitNetwork: ({ self }) =>
        work(self, async () => {
          await deps.network();
          return { type: 'NETWORK_UP' };
        }),
      loadKey: ({ self }) =>
        work(self, async () => {
          session.identity = (await loadOrMakeKey(deps.home)).identity;
          return { type: 'KEY_LOADED' };
        }),
      join: ({ self }) => work(self, () => join(deps, session, link(self))),
      renew: ({ self }) => work(self, () => renew(deps, session)),
      reconnect: () => {
        if (session.bus !== undefined) void deps.reconnect?.(session.bus).catch(() => undefined);
      },
      noteLink: ({ self }) => {
        if (session.bus !== undefined) link(self)(session.bus.link.state());
      },
      arm: ({ self, context }, { wait }) => {
        clearTimeout(timer);
        const ageMs = performance.now() - session.jwtAtMs;
        const afterMs = waitMs(wait, { ...context, ageMs }, deps.random);
        timer = setTimeout(() => self.send({ type: 'TIMER' }), afterMs);
      },
      disarm: () => clearTimeout(timer),
    },
  });
  return { machine, session };
}

/** Everything waits with jitter: ten thousand nodes that lost one ledger come back one by one. */
export function waitMs(
  wait: WaitKind,
  { failures, lifetimeMs: lifetime, ageMs }: Facts,
  random: () => number,
): number {
  const tried = Math.max(0, failures - 1);
  switch (wait) {
    case 'retry':
      return backoffMs(tried, RETRY, random);
    case 'poll':
      return backoffMs(tried, POLL, random);
    case 'rejoin':
      return backoffMs(tried, REJOIN, random);
    case 'renew': {
      if (failures > 0) return backoffMs(tried, RETRY, random);
      const due = (lifetime ?? RENEW_MAX_MS) * (0.6 + 0.2 * random()) - ageMs;
      return Math.min(RENEW_MAX_MS, Math.max(RENEW_MIN_MS, Math.round(due)));
    }
  }
}

async function join<B extends SessionBus>(
  deps: IdentityDeps<B>,
  session: Session<B>,
  onLink: (state: { up: boolean }) => void,
): Promise<IdentityEvent> {
  const { identity } = session;
  if (identity === undefined) throw new HeroError('internal', 'joining without a key');
  const link = await deps.connectJoin(identity);
  let reply: RegisterReply;
  try {
    reply = await register(link.ask, identity, deps.registrant);
  } finally {
    await link.close().catch(() => undefined);
  }
  if (reply.status === 'pending') {
    return { type: 'PENDING', reason: pendingReason(deps.registrant, identity) };
  }
  await keep(deps, session, identity, reply.jwt);
  if (session.bus === undefined) {
    const bus = await deps.connect(identity, () => session.jwt ?? reply.jwt);
    if (session.stopped || session.bus !== undefined) await bus.close();
    else {
      session.bus = bus;
      bus.link.onChange(onLink);
    }
  }
  return { type: 'JOINED', lifetimeMs: lifetimeMs(reply.jwt) };
}

function pendingReason({ kind, token }: Registrant, { principal }: Identity): string {
  const command = `herobus ${kind === 'node' ? 'node' : 'principal'} approve ${principal}`;
  const spent = token === null ? '' : 'its token is spent, expired or unknown; ';
  return `${spent}an admin can approve it: \`${command}\``;
}

async function renew<B extends SessionBus>(
  deps: IdentityDeps<B>,
  session: Session<B>,
): Promise<IdentityEvent> {
  const { identity, bus } = session;
  if (identity === undefined || bus === undefined) {
    throw new HeroError('internal', 'renewing before joining');
  }
  const { kind } = deps.registrant;
  const reply = LedgerReply.parse(await bus.request(subjects.ledger('renew'), { kind }));
  if ('error' in reply) {
    throw new HeroError(reply.error.code as ErrorCode, reply.error.message);
  }
  const renewed = RegisterReply.parse(reply.ok);
  if (renewed.status === 'pending')
    return { type: 'REFUSED', reason: 'the approval was withdrawn' };
  await keep(deps, session, identity, renewed.jwt);
  return { type: 'RENEWED', lifetimeMs: lifetimeMs(renewed.jwt) };
}

async function keep<B extends SessionBus>(
  deps: IdentityDeps<B>,
  session: Session<B>,
  identity: Identity,
  jwt: string,
): Promise<void> {
  session.jwt = jwt;
  session.jwtAtMs = performance.now();
  await writeCreds(deps.credsFile, jwt, identity.seedText());
}

/** An effect that hangs is one that failed: its state must not wait for ever. */
async function inTime(event: Promise<IdentityEvent>): Promise<IdentityEvent> {
  const late = new AbortController();
  try {
    return await Promise.race([
      event,
      delay(EFFECT_MAX_MS, undefined, { signal: late.signal }).then((): IdentityEvent => {
        throw new HeroError('unreachable', `no answer within ${EFFECT_MAX_MS / 1000} s`);
      }),
    ]);
  } finally {
    late.abort();
  }
}

/** Refusals that another try would not change by itself; all else is tried again. */
const REFUSALS: readonly string[] = ['not_allowed', 'unknown_signer', 'bad_signature'];

function eventOf(thrown: unknown): IdentityEvent {
  const error = ensureError(thrown);
  const fix = error instanceof HeroError && error.fix !== undefined ? ` (${error.fix})` : '';
  const reason = `${error.message}${fix}`;
  const refused = error instanceof HeroError && REFUSALS.includes(error.code);
  return { type: refused ? 'REFUSED' : 'FAILED', reason };
}
