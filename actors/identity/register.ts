/**
 * Registering a key with the ledger, as INTERFACES 4 says: challenge, sign the nonce, register.
 *
 * For nodes (identity.effects.ts) and for users (the CLI) alike. Nothing here looks at the wall clock: the
 * nonce is the ledger's, and how long a token lasts is the difference of two times in it.
 */
import { inboxPrefix } from '../../bus/credentials.ts';
import { connect, parseCreds } from '../../bus/connect.ts';
import { seal } from '../../bus/envelope.ts';
import { signingKeyFromText, type Identity } from '../../bus/identity.ts';
import { askLedger } from '../../bus/nats.ts';
import {
  Challenge,
  REGISTER_PAYLOAD_TYPE,
  RegisterReply,
  type PrincipalKind,
  type RegisterPayload,
} from '../../schemas/ledger.ts';

/** Asks a verb of the ledger: its answer, or its refusal as a HeroError with the ledger's code. */
export type AskLedger = (verb: string, body: object | Uint8Array) => Promise<unknown>;

export type Registrant = { kind: PrincipalKind; name: string; token: string | null };

export async function register(
  ask: AskLedger,
  identity: Identity,
  { kind, name, token }: Registrant,
): Promise<RegisterReply> {
  const { principal } = identity;
  const { nonce } = Challenge.parse(await ask('challenge', { principal }));
  const payload: RegisterPayload = { v: 1, principal, nonce, kind, name, token };
  const bytes = seal(Buffer.from(JSON.stringify(payload)), REGISTER_PAYLOAD_TYPE, [identity]);
  return RegisterReply.parse(await ask('register', bytes));
}

/** How long a token is good for from when it was issued; null: it does not say, or does not end. */
export function lifetimeMs(jwt: string): number | null {
  try {
    const text = Buffer.from(jwt.split('.')[1] ?? '', 'base64url').toString();
    const { exp, iat } = JSON.parse(text) as { exp?: unknown; iat?: unknown };
    return typeof exp === 'number' && typeof iat === 'number' ? (exp - iat) * 1000 : null;
  } catch {
    return null;
  }
}

export type JoinLink = { ask: AskLedger; close: () => Promise<void> };

/**
 * A connection that is good for challenge and register only: with the join credentials, or as a guest, whom
 * the server gives the same rights.
 */
export async function openJoinLink(options: {
  server: string | readonly string[];
  /** The text of `join.creds`, where there is one. */
  creds?: string | undefined;
  ca?: string;
}): Promise<JoinLink> {
  const joining = options.creds === undefined ? undefined : parseCreds(options.creds);
  const key = joining === undefined ? undefined : signingKeyFromText('U', joining.seed);
  const connection = await connect({
    server: options.server,
    inboxPrefix: key === undefined ? '_INBOX' : inboxPrefix('user', key.public),
    ...(joining === undefined || key === undefined ? {} : { as: { key, jwt: () => joining.jwt } }),
    ...(options.ca === undefined ? {} : { ca: options.ca }),
  });
  return {
    ask: (verb, body) => askLedger(connection.nats, verb, body),
    close: () => connection.close(),
  };
}
