/**
 * Who may do what on the bus: the keys of the operator and the accounts, and the user JWTs the ledger
 * issues with them (DESIGN 3, reference/bus.md 1-3).
 *
 * Accounts: `SYS`; `HB`, where everything lives; `LEDGER`, where only the control plane is: its buckets,
 * and the answers to `hb.ledger.*`, imported into HB. The import is what lets the server vouch for the
 * caller (`callerOf`).
 *
 * K1 A principal publishes only where its own address, context or bucket stands in the subject.
 * K2 Nobody but the control plane may create a consumer: its deliver subject would be a way around K1.
 * K3 Who answers requests may publish only to inboxes and its own subjects: a reply subject is the
 *    caller's choice. So the control connection, which may do all, answers nothing in HB.
 */
import { join } from 'node:path';
import {
  encodeAccount,
  encodeOperator,
  encodeUser,
  type Account,
  type Permissions,
} from '@nats-io/jwt';
import type { ContextName, Principal } from '../schemas/ids.ts';
import type { JobKind } from '../schemas/job.ts';
import { readIfThere, SECRET_MODE, writeAtomic } from './atomic-file.ts';
import { credsText } from './connect.ts';
import { addressOf, signingKey, signingKeyFromText, type NkeyRole } from './identity.ts';
import type { SigningKey } from './identity.ts';
import type { ServerTrust } from './server-config.ts';
import {
  blobSubjects,
  bucketCopies,
  bucketStream,
  PROTECTED_BUCKETS,
  userBucket,
} from './streams.ts';
import { consumers, streams, subjects } from './subjects.ts';

/** The secrets of a bus; each is a file of its own in `<data>/keys`, mode 0600. */
export type BusKeys = {
  operator: SigningKey;
  system: SigningKey;
  account: SigningKey;
  /** Signs users of HB; apart from the account's own key so that it can be replaced. */
  accountSigner: SigningKey;
  ledger: SigningKey;
  /** The key in the join credentials: anybody may have it. */
  join: SigningKey;
};

const KEY_FILES: Record<keyof BusKeys, NkeyRole> = {
  operator: 'O',
  system: 'A',
  account: 'A',
  accountSigner: 'A',
  ledger: 'A',
  join: 'U',
};

/** Reads the keys of a data folder; makes those that are missing. */
export async function openKeys(dataDir: string): Promise<BusKeys> {
  const open = async (name: keyof BusKeys) => {
    const path = join(dataDir, 'keys', `${name}.nk`);
    const text = await readIfThere(path);
    if (text !== undefined) return signingKeyFromText(KEY_FILES[name], text);
    const key = signingKey(KEY_FILES[name]);
    await writeAtomic(path, `${key.seedText()}\n`, SECRET_MODE);
    return key;
  };
  return {
    operator: await open('operator'),
    system: await open('system'),
    account: await open('account'),
    accountSigner: await open('accountSigner'),
    ledger: await open('ledger'),
    join: await open('join'),
  };
}

const UNLIMITED = -1;
/** The library adds no defaults: a field left out is a limit of zero (reference/bus.md 1). */
const ACCOUNT_LIMITS = {
  conn: UNLIMITED,
  leaf: 0,
  subs: UNLIMITED,
  data: UNLIMITED,
  payload: UNLIMITED,
  imports: UNLIMITED,
  exports: UNLIMITED,
  wildcards: true,
};
const JETSTREAM_LIMITS = {
  mem_storage: UNLIMITED,
  disk_storage: UNLIMITED,
  streams: UNLIMITED,
  consumer: UNLIMITED,
  mem_max_stream_bytes: UNLIMITED,
  disk_max_stream_bytes: UNLIMITED,
  max_bytes_required: false,
  max_ack_pending: UNLIMITED,
};

/** A key as the JWT library takes it. It signs through node:crypto; the library never sees the seed. */
function jwtKey(key: SigningKey) {
  return {
    getPublicKey: () => key.public,
    // Asked for only to see that there is one.
    getPrivateKey: () => new Uint8Array(0),
    getSeed: () => new Uint8Array(0),
    sign: (input: Uint8Array) => key.sign(input),
    verify: () => false,
    clear: () => undefined,
    seal: () => new Uint8Array(0),
    open: () => null,
  };
}

/** What the server must trust for these keys. */
export async function makeTrust(keys: BusKeys): Promise<ServerTrust> {
  const signer = jwtKey(keys.operator);
  const account = (name: string, key: SigningKey, claims: Partial<Account>) =>
    encodeAccount(name, jwtKey(key), claims, { signer });
  const service = { name: 'ledger', subject: subjects.ledgerAll, type: 'service' as const };
  const system = await account('SYS', keys.system, { limits: ACCOUNT_LIMITS });
  const ledger = await account('LEDGER', keys.ledger, {
    limits: { ...ACCOUNT_LIMITS, ...JETSTREAM_LIMITS },
    exports: [{ ...service, response_type: 'Singleton' }],
  });
  const main = await account('HB', keys.account, {
    limits: { ...ACCOUNT_LIMITS, ...JETSTREAM_LIMITS },
    signing_keys: [keys.accountSigner.public],
    imports: [
      // `share` makes the server add Nats-Request-Info to every request that crosses over.
      { ...service, account: keys.ledger.public, local_subject: service.subject, share: true },
    ],
  });
  return {
    operatorJwt: await encodeOperator('herobus', signer, { system_account: keys.system.public }),
    systemAccount: keys.system.public,
    accounts: new Map([
      [keys.system.public, system],
      [keys.ledger.public, ledger],
      [keys.account.public, main],
    ]),
    guestJwt: await makeIssuer(keys).guest(),
  };
}

/** The header the server adds to a request that comes through the import of `hb.ledger.*`. */
export const REQUEST_INFO_HEADER = 'Nats-Request-Info';

/**
 * Who sent a request to the ledger, as the server vouches for it.
 *
 * Tried on 2.15.1: the header is replaced by the server whatever the caller sends under that name. But its
 * `user` field is NOT to be trusted: in JWT mode a caller that names a foreign `nkey` in CONNECT is listed
 * as that one. Its `jwt` field is the user JWT the server admitted the connection by (its signature, and
 * the seed's over the nonce), so the caller is that token's subject; nothing in it has to be checked again.
 * With the join credentials the caller is the join key, which everybody has.
 */
export function callerOf(headerValues: readonly string[]): Principal | undefined {
  if (headerValues.length !== 1) return undefined;
  try {
    const { jwt } = JSON.parse(headerValues[0] ?? '') as { jwt?: unknown };
    if (typeof jwt !== 'string') return undefined;
    const claims = Buffer.from(jwt.split('.')[1] ?? '', 'base64url').toString();
    const { sub } = JSON.parse(claims) as { sub?: unknown };
    return typeof sub === 'string' && addressOf(sub) !== undefined ? sub : undefined;
  } catch {
    return undefined;
  }
}

/**
 * Where a connection gets its replies. Nobody else may listen there. The control plane's own root lets a
 * node answer it without a right to write into the inboxes of users.
 */
export const CONTROL_INBOX = '_INBOX_C';
/** Of the connection to the ledger's account. */
export const LEDGER_INBOX = '_INBOX_L';
export function inboxPrefix(kind: 'control' | 'node' | 'user', principal: Principal): string {
  return kind === 'control' ? `${CONTROL_INBOX}.${principal}` : `_INBOX_${principal}`;
}

export type UserRights = { executes: readonly ContextName[]; reads: readonly ContextName[] };
export type NodeRights = { contexts: readonly ContextName[]; classes: readonly JobKind[] };
/** `expiresAt`: Unix seconds; none: the token does not expire. */
export type Issue = { expiresAt?: number };

export type Issuer = {
  /** Public key of the account all but the ledger's service live in. */
  readonly account: string;
  user(principal: Principal, rights: UserRights, issue?: Issue): Promise<string>;
  node(principal: Principal, rights: NodeRights, issue?: Issue): Promise<string>;
  /** Everything: coord, ledger and roster. Such a connection answers no request (K3). */
  control(principal: Principal, issue?: Issue): Promise<string>;
  /** The control plane's second connection, in its own account: its buckets, and `hb.ledger.*`. */
  ledgerService(principal: Principal, issue?: Issue): Promise<string>;
  /** A bearer token for who has no registration yet: challenge and register only. */
  guest(): Promise<string>;
  /** The same as a creds file. */
  joinCreds(): Promise<string>;
};

export function makeIssuer(keys: BusKeys): Issuer {
  const issueIn =
    (account: SigningKey, signer: SigningKey) =>
    (principal: Principal, rights: Permissions, issue: Issue = {}, bearer = false) =>
      encodeUser(
        principal,
        principal,
        jwtKey(account),
        {
          ...rights,
          subs: UNLIMITED,
          data: UNLIMITED,
          payload: UNLIMITED,
          ...(bearer ? { bearer_token: true } : {}),
        },
        {
          signer: jwtKey(signer),
          ...(issue.expiresAt === undefined ? {} : { exp: issue.expiresAt }),
        },
      );
  const inMain = issueIn(keys.account, keys.accountSigner);
  const inLedger = issueIn(keys.ledger, keys.ledger);
  const guest = () => inMain(keys.join.public, joinRights(keys.join.public), {}, true);
  return {
    account: keys.account.public,
    user: (principal, rights, issue) => inMain(principal, userRights(principal, rights), issue),
    node: (principal, rights, issue) => inMain(principal, nodeRights(principal, rights), issue),
    control: (principal, issue) => inMain(principal, controlRights(), issue),
    ledgerService: (principal, issue) => inLedger(principal, ledgerRights(), issue),
    guest,
    joinCreds: async () => credsText(await guest(), keys.join.seedText()),
  };
}

/**
 * A client with default settings asks from `_INBOX.<random>`; herobus itself from an inbox of its own.
 * Whoever uses the default shares it with all others that do: they can read each other's replies.
 */
function inboxes(principal: Principal): string[] {
  return ['_INBOX.>', `${inboxPrefix('user', principal)}.>`];
}

const pull = (stream: string, consumer: string) =>
  `$JS.API.CONSUMER.MSG.NEXT.${stream}.${consumer}`;
const acks = (stream: string, consumer: string) => `$JS.ACK.${stream}.${consumer}.>`;
const directGet = (stream: string, subject: string) => `$JS.API.DIRECT.GET.${stream}.${subject}`;

/** Reading a whole bucket: what nobody gets for a stream that is shared. */
function readBucket(bucket: string): string[] {
  const stream = bucketStream(bucket);
  return [`$JS.API.STREAM.INFO.${stream}`, `$JS.API.DIRECT.GET.${stream}`, directGet(stream, '>')];
}

function addressOrThrow(principal: Principal): string {
  const address = addressOf(principal);
  if (address === undefined) throw new TypeError(`${principal} is no principal`);
  return address;
}

function userRights(principal: Principal, { executes, reads }: UserRights): Permissions {
  const bucket = userBucket(addressOrThrow(principal));
  const seen = [...new Set([...reads, ...executes])];
  return {
    pub: {
      allow: [
        ...executes.map(subjects.deploy),
        ...executes.map(blobSubjects),
        subjects.ledgerAll,
        // Consumers have names that only the ledger and who asked for them know.
        pull(streams.flow, '*'),
        pull(streams.logs, '*'),
        pull(streams.refused, '*'),
        ...seen.flatMap((context) => [
          directGet(streams.flow, subjects.flowsOf(context)),
          directGet(streams.refused, subjects.refusedOf(context)),
          directGet(streams.blobs(context), blobSubjects(context)),
        ]),
        `$KV.${bucket}.>`,
        ...readBucket(bucket),
        ...readBucket('roster'),
      ],
    },
    sub: {
      allow: [
        ...inboxes(principal),
        ...seen.flatMap((context) => [
          `hb.stored.${context}.>`,
          subjects.refusedOf(context),
          `hb.logs.${context}.>`,
        ]),
      ],
    },
  };
}

function nodeRights(principal: Principal, { contexts, classes }: NodeRights): Permissions {
  const own = addressOrThrow(principal);
  const closed = [streams.deploy, streams.refused, streams.flow, streams.assign, streams.logs];
  const closedBuckets = PROTECTED_BUCKETS.filter((bucket) => bucket !== 'roster');
  return {
    pub: {
      allow: [
        subjects.beat(own),
        `hb.at.${own}.>`,
        `hb.inspect.${own}.>`,
        `hb.flow.*.*.main.${own}.>`,
        `hb.flow.*.*.claim.*.${own}`,
        `hb.flow.*.*.run.${own}.*`,
        // A supervisor hands packs to other nodes; what counts is the plan in the log.
        'hb.jobs.*.*.*',
        subjects.logsAll,
        subjects.ledgerAll,
        pull(streams.flow, '*'),
        directGet(streams.flow, subjects.flowAll),
        pull(streams.assign, consumers.assign(own)),
        acks(streams.assign, consumers.assign(own)),
        ...contexts.flatMap((context) => [
          ...classes.flatMap((kind) => [
            pull(streams.jobs(context), consumers.jobs(kind, own)),
            acks(streams.jobs(context), consumers.jobs(kind, own)),
          ]),
          blobSubjects(context),
        ]),
        // Scripts keep their signer's state, and a signer is known only when its flow comes: all user
        // buckets are open to nodes, the control plane's are denied by name below.
        '$KV.*.>',
        '$JS.API.STREAM.INFO.*',
        '$JS.API.DIRECT.GET.*',
        directGet('*', '$KV.*.>'),
        directGet('*', 'hb.blobs.>'),
        `${CONTROL_INBOX}.>`,
        `${inboxPrefix('node', principal)}.>`,
      ],
      deny: [
        '$KV.roster.>',
        ...closedBuckets.map((bucket) => `$KV.${bucket}.>`),
        ...[...closed, ...closedBuckets.map(bucketStream)].flatMap((stream) => [
          `$JS.API.STREAM.INFO.${stream}`,
          `$JS.API.DIRECT.GET.${stream}`,
        ]),
        ...closedBuckets.map((bucket) => directGet(bucketStream(bucket), '>')),
      ],
    },
    sub: {
      allow: [
        `${inboxPrefix('node', principal)}.>`,
        subjects.beat(own),
        `hb.at.${own}.>`,
        subjects.storedAll,
        // The stream's copies; the bucket's own subject also shows writes that lost.
        bucketCopies('roster'),
        '$KV.roster.>',
      ],
    },
  };
}

function controlRights(): Permissions {
  return { pub: { allow: ['>'] }, sub: { allow: ['>'] } };
}

/**
 * The control plane in its own account. `_R_` is where the server takes answers that go back over the
 * import: a request from outside can name no other reply here.
 */
function ledgerRights(): Permissions {
  return {
    pub: { allow: ['_R_.>', '$KV.>', '$JS.API.>'] },
    sub: { allow: [subjects.ledgerAll, 'hb.kv.>', `${LEDGER_INBOX}.>`] },
  };
}

function joinRights(principal: Principal): Permissions {
  return {
    pub: { allow: [subjects.ledger('challenge'), subjects.ledger('register')] },
    sub: { allow: inboxes(principal) },
  };
}
