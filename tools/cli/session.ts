/**
 * A user's connection to a bus: found, joined when the key is new to it, with rights that are up to date.
 *
 * Where the bus is: --server, $HEROBUS_SERVER, the home's config, else the one that `herobus up` runs on
 * this machine (`<data>/bus.json`). A key the bus does not know yet registers itself with the join
 * credentials beside it. Credentials name the contexts they are good for, so they are renewed as soon as
 * the ledger knows of one that they lack.
 */
import { readFile } from 'node:fs/promises';
import { hostname, userInfo } from 'node:os';
import { dirname } from 'node:path';
import type { Command } from 'commander';
import { newIncarnation } from '../../actors/incarnation.ts';
import { lifetimeMs, openJoinLink, register } from '../../actors/identity/register.ts';
import { readIfThere } from '../../bus/atomic-file.ts';
import { readBusFile, readCreds, writeCreds } from '../../bus/connect.ts';
import { askLedger, openNatsBus, type NatsBus } from '../../bus/nats.ts';
import { blobSubjects } from '../../bus/streams.ts';
import { subjects } from '../../bus/subjects.ts';
import type { BusFile } from '../../schemas/config.ts';
import { ensureError, HeroError } from '../../schemas/errors.ts';
import { ContextName, type Address, type Principal } from '../../schemas/ids.ts';
import { type ContextRecord, ContextsReply, RenewReply } from '../../schemas/ledger.ts';
import { usage } from './failure.ts';
import { homeFile, openHome, type Home } from './home.ts';
import { globals, say, type Globals } from './output.ts';

export type Session = {
  home: Home;
  /** The global options it was opened with, as the end of a command line: the next one comes to the same bus. */
  again: string;
  bus: NatsBus;
  /** The contexts in which this principal has a role. */
  contexts: readonly ContextRecord[];
  isCoord: (address: Address) => boolean;
  /** Asks a verb of the ledger; throws its refusal. */
  ask: (verb: string, body: object | Uint8Array) => Promise<unknown>;
};

type Place = { url: string; joinCreds: string; ca: string | undefined };

/** Opens a session for what a command does, and closes it whatever happens. */
export async function withSession<T>(
  command: Command,
  act: (session: Session) => Promise<T>,
): Promise<T> {
  const options = globals(command);
  const home = await openHome(options.home);
  const { session, close } = await openSession(home, await findBus(options, home));
  try {
    return await act({ ...session, again: saidAgain(options) });
  } finally {
    await close();
  }
}

function saidAgain({ home, server }: Globals): string {
  const given = Object.entries({ home, server }).flatMap(([name, value]) =>
    value === undefined ? [] : [`--${name}`, /^[\w@%+=:,./-]+$/.test(value) ? value : `'${value}'`],
  );
  return given.map((word) => ` ${word}`).join('');
}

/** `-c`, else the home's own choice, else `default`. */
export function contextOf(given: string | undefined, home: Home): ContextName {
  const name = given ?? home.config.context ?? 'default';
  const parsed = ContextName.safeParse(name);
  if (parsed.success) return parsed.data;
  throw usage(`"${name}" is no context: ${parsed.error.issues[0]?.message ?? ''}`);
}

export function mayExecute({ contexts, bus }: Session, name: string): boolean {
  return contexts.some(
    ({ context, executors }) => context === name && executors.includes(bus.principal),
  );
}

export async function findBus(options: Globals, home: Home): Promise<Place> {
  const local = await readBusFile(home.config.data ?? homeFile.data(home.dir));
  const named = options.server ?? process.env['HEROBUS_SERVER'] ?? home.config.server ?? undefined;
  if (named === undefined || named === '') {
    if (local !== undefined) return placeOf(local);
    throw new HeroError('unreachable', `no bus runs for ${home.dir}, and no server is named`, {
      fix: 'Start one with `herobus up`, or name one with --server nats://host:port.',
    });
  }
  if (named.endsWith('bus.json')) {
    const file = await readBusFile(dirname(named));
    if (file !== undefined) return placeOf(file);
    throw new HeroError('unreachable', `no bus runs there: ${named} is missing`);
  }
  if (!/^(nats|tls):\/\/[^\s/]+$/.test(named)) {
    throw usage(`"${named}" is no server`, 'Name it as nats://host:port.');
  }
  if (local !== undefined && local.url === named) return placeOf(local);
  const ca = await readIfThere(homeFile.ca(home.dir));
  return { url: named, joinCreds: homeFile.joinCreds(home.dir), ca };
}

async function placeOf(file: BusFile): Promise<Place> {
  const ca = file.ca === null ? undefined : await readFile(file.ca, 'utf8');
  return { url: file.url, joinCreds: file.join_creds, ca };
}

type Opened = { session: Omit<Session, 'again'>; close: () => Promise<void> };

async function openSession(home: Home, place: Place): Promise<Opened> {
  const stored = (await readCreds(homeFile.creds(home.dir)))?.jwt;
  if (stored !== undefined && subjectOf(stored) === home.identity.principal) {
    try {
      return await connectWith(home, place, stored);
    } catch (error) {
      // Another bus, or one that was made anew: it does not know the token or the key.
      if (!(error instanceof HeroError) || error.code !== 'not_allowed') throw error;
    }
  }
  return connectWith(home, place, await joinBus(home, place));
}

async function connectWith(home: Home, place: Place, jwt: string): Promise<Opened> {
  let token = jwt;
  const open = () =>
    openNatsBus({
      kind: 'user',
      server: place.url,
      identity: home.identity,
      incarnation: newIncarnation(),
      jwt: () => token,
      name: `herobus ${home.config.name ?? ''}`.trim(),
      ...(place.ca === undefined ? {} : { ca: place.ca }),
    });
  let bus = await open();
  try {
    const reply = ContextsReply.parse(await askLedger(bus.nats, 'contexts', {}));
    if (lacks(token, reply.contexts, home.identity.principal)) {
      token = await renew(home, bus);
      await bus.close();
      bus = await open();
    }
    const timer = keepRenewed(token, async () => {
      token = await renew(home, bus);
    });
    const session = {
      home,
      bus,
      contexts: reply.contexts,
      isCoord: (address: Address) => reply.coords.includes(address),
      ask: (verb: string, body: object | Uint8Array) => askLedger(bus.nats, verb, body),
    };
    const close = async () => {
      clearInterval(timer);
      await bus.close();
    };
    return { session, close };
  } catch (error) {
    await bus.close();
    throw error;
  }
}

async function renew(home: Home, bus: NatsBus): Promise<string> {
  const { jwt } = RenewReply.parse(await askLedger(bus.nats, 'renew', { kind: 'user' }));
  await writeCreds(homeFile.creds(home.dir), jwt, home.identity.seedText());
  return jwt;
}

/** A follow may outlive its token: the next one is fetched well before, and used at the next connect. */
function keepRenewed(token: string, act: () => Promise<void>): NodeJS.Timeout | undefined {
  const lifetime = lifetimeMs(token);
  if (lifetime === null) return undefined;
  const everyMs = Math.min(Math.max(lifetime / 2, 1000), 2 ** 31 - 1);
  const timer = setInterval(() => {
    act().catch((error: unknown) => say(`credentials not renewed: ${ensureError(error).message}`));
  }, everyMs);
  timer.unref();
  return timer;
}

async function joinBus(home: Home, place: Place): Promise<string> {
  const creds = await readIfThere(place.joinCreds);
  const link = await openJoinLink({
    server: place.url,
    creds,
    ...(place.ca === undefined ? {} : { ca: place.ca }),
  });
  try {
    const name = home.config.name ?? `${userName()}@${hostname()}`.slice(0, 128);
    const token = process.env['HEROBUS_TOKEN'] ?? null;
    const reply = await register(link.ask, home.identity, { kind: 'user', name, token });
    if (reply.status === 'pending') {
      throw new HeroError('not_allowed', 'the registration of this key waits for approval', {
        fix: `Ask an admin to run \`herobus principal approve ${home.identity.principal}\`, or for a token and set HEROBUS_TOKEN to it; then try again.`,
      });
    }
    await writeCreds(homeFile.creds(home.dir), reply.jwt, home.identity.seedText());
    say(`joined      ${place.url} as ${name}`);
    return reply.jwt;
  } finally {
    await link.close();
  }
}

function userName(): string {
  try {
    return userInfo().username;
  } catch {
    return 'user';
  }
}

type Claims = {
  sub?: string;
  exp?: number;
  nats?: { pub?: { allow?: string[] }; sub?: { allow?: string[] } };
};

function claimsOf(jwt: string): Claims {
  try {
    return JSON.parse(Buffer.from(jwt.split('.')[1] ?? '', 'base64url').toString()) as Claims;
  } catch {
    return {};
  }
}

const subjectOf = (jwt: string): string | undefined => claimsOf(jwt).sub;

/** Does the token lack a right that the ledger has given since, or is it about to end? */
function lacks(jwt: string, contexts: readonly ContextRecord[], principal: Principal): boolean {
  const { exp, nats } = claimsOf(jwt);
  const lifetime = lifetimeMs(jwt);
  if (exp !== undefined && lifetime !== null && exp * 1000 - Date.now() < lifetime / 4) return true;
  return contexts.some(({ context, executors }) => {
    const reads = nats?.sub?.allow?.includes(`hb.stored.${context}.>`) ?? false;
    const may = nats?.pub?.allow ?? [];
    const executes = may.includes(subjects.deploy(context)) && may.includes(blobSubjects(context));
    return !reads || (executors.includes(principal) && !executes);
  });
}
