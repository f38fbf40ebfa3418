/**
 * The ledger's verbs (`hb.ledger.<verb>`), each with who may ask, what it takes and what it answers.
 *
 * The table is the whole surface: a verb without an auth class cannot be written down. Classes:
 *   join       whoever reaches the bus, the holder of the join credentials too; proves itself in the body
 *   signed     an envelope with the valid signature of a registered principal, whoever carries it
 *   principal  a caller that is registered, as a user or as a node
 *   node       a caller that is registered as a node
 *   reader     a caller with a role in the context the request names, or a node (it serves every context)
 *   admin      a caller with the role admin
 * What a signed change may do in its context is contexts.ts; the loop around the table is ledger.ts.
 */
import { addressOf } from '../../bus/identity.ts';
import { HeroError } from '../../schemas/errors.ts';
import type { ContextName, Principal } from '../../schemas/ids.ts';
import {
  ChallengeRequest,
  ContextRequest,
  FlowsRequest,
  FollowRequest,
  LEDGER_PAYLOAD_TYPE,
  LedgerChangePayload,
  PageRequest,
  QueueRequest,
  ReadRequest,
  type LogPage,
  RefusalsRequest,
  type FlowsReply,
  type RefusalsReply,
  RenewRequest,
  type ContextRecord,
} from '../../schemas/ledger.ts';
import { z } from 'zod';
import type { AskedChange } from './changes.ts';
import { changeContext, mayRead } from './contexts.ts';
import { principalKey, type Directory } from './directory.ts';
import type { Followers } from './followers.ts';
import { pageOf } from './pages.ts';
import { NONCE_TTL_MS, openSigned, strictJson, type Proofs } from './proofs.ts';
import type { Provisions } from './provisions.ts';
import type { Records } from './records.ts';
import type { Registrations } from './registrations.ts';
import type { TokenCreate, Tokens } from './tokens.ts';

export type HandlerDeps = {
  directory: Directory;
  records: Records;
  registrations: Registrations;
  provisions: Provisions;
  proofs: Proofs;
  followers: Followers;
  readLog: ReadLog;
  tokens: Tokens;
  /** Nodes as the roster sees them, a page at a time; undefined until a roster runs here. */
  nodes: (page: PageRequest) => object | undefined;
  /** The coord's overview, where one runs beside this ledger. */
  flows: () => FlowsSource | undefined;
  now: () => number;
};

/** What a flow's log holds from a sequence on, as much as a reply may carry. */
export type ReadLog = (request: ReadRequest) => Promise<LogPage>;

export type AuthClass = 'join' | 'signed' | 'principal' | 'node' | 'reader' | 'admin';
export type LedgerRequest = { data: Uint8Array; caller: Principal | undefined };

export type Verb = {
  auth: AuthClass;
  handle: (deps: HandlerDeps, request: LedgerRequest) => Promise<object>;
};

/** A verb that vouched callers ask with a JSON body: the class is checked before the body is looked at. */
function asked<S extends z.ZodType>(
  auth: 'principal' | 'node' | 'reader' | 'admin',
  schema: S,
  answer: (deps: HandlerDeps, body: z.infer<S>, caller: Principal) => object | Promise<object>,
): Verb {
  return {
    auth,
    handle: async (deps, { data, caller }) => {
      const known = allow(auth, deps.directory, caller);
      const body = parse(schema, data);
      if (auth === 'reader') readable(deps.directory, contextIn(body), known);
      return answer(deps, body, known);
    },
  };
}

export type FlowsSource = {
  flows: (request: FlowsRequest) => Promise<FlowsReply>;
  refusals: (request: RefusalsRequest) => Promise<RefusalsReply>;
};

function flowsOf(source: FlowsSource | undefined): FlowsSource {
  if (source !== undefined) return source;
  throw new HeroError('unreachable', 'no coord runs beside this ledger', {
    fix: 'Start it: `herobus up --roles ledger,roster,coord`.',
  });
}

export const VERBS: Readonly<Record<string, Verb>> = {
  challenge: {
    auth: 'join',
    handle: async ({ proofs, now }, { data }) => {
      const { principal } = parse(ChallengeRequest, data);
      if (addressOf(principal) === undefined) {
        throw new HeroError('bad_request', `${principal} is no nkey: its check digits are wrong`);
      }
      const nonce = proofs.issue(principal);
      return { nonce, expires_at: new Date(now() + NONCE_TTL_MS).toISOString() };
    },
  },
  register: {
    auth: 'join',
    handle: async ({ proofs, registrations }, { data }) =>
      registrations.register(proofs.check(data)),
  },
  change: { auth: 'signed', handle: change },
  renew: asked('principal', RenewRequest, ({ registrations }, { kind }, caller) =>
    registrations.renew(caller, kind),
  ),
  follow: asked('reader', FollowRequest, ({ followers, directory }, body, caller) =>
    followers.follow(body, caller, directory.isRegistered(caller, 'node')),
  ),
  read: asked('reader', ReadRequest, ({ readLog }, request) => readLog(request)),
  queue: asked('node', QueueRequest, ({ followers, directory }, body, caller) => {
    if (body.queue === 'jobs') existing(directory, body.context);
    return followers.queue(body, nodeAddress(directory, caller));
  }),
  contexts: asked('principal', z.object({}), ({ directory, registrations }, _, caller) => {
    const kind = directory.isRegistered(caller, 'node') ? 'node' : 'user';
    return {
      contexts: registrations.contextsOf({ principal: caller, kind }),
      coords: directory.coords(),
      revision: directory.revision(),
    };
  }),
  context: asked('reader', ContextRequest, ({ directory }, { context }) =>
    existing(directory, context),
  ),
  principals: asked('admin', PageRequest, ({ directory }, page) => {
    const keyed = directory
      .principals()
      .map((record) => ({ key: principalKey(record.kind, record.principal), record }));
    const { items, next } = pageOf(keyed, ({ key }) => key, page);
    return { principals: items.map(({ record }) => record), next };
  }),
  flows: asked('reader', FlowsRequest, ({ flows }, request) => flowsOf(flows()).flows(request)),
  refusals: asked('reader', RefusalsRequest, ({ flows }, request) =>
    flowsOf(flows()).refusals(request),
  ),
  nodes: asked('principal', PageRequest, ({ nodes }, page) => {
    const answer = nodes(page);
    if (answer !== undefined) return answer;
    throw new HeroError('unreachable', 'no roster runs beside this ledger', {
      fix: 'Start it: `herobus up --roles ledger,roster,…`.',
    });
  }),
};

async function change(deps: HandlerDeps, { data }: LedgerRequest): Promise<object> {
  const { payload, signers, digest } = openSigned(data, LEDGER_PAYLOAD_TYPE);
  const parsed = LedgerChangePayload.safeParse(payload);
  if (!parsed.success) throw badRequest(parsed.error);
  const by = signers.find((signer) => deps.directory.isRegistered(signer));
  if (by === undefined) {
    throw new HeroError('unknown_signer', `none of ${signers.join(', ')} is registered`, {
      fix: 'Register the key first, or sign with one that is.',
    });
  }
  if (signers.length > 1) {
    throw new HeroError('bad_request', 'a change of the ledger has one signature');
  }
  const { change: what, reason, issued_at } = parsed.data;
  const asking: AskedChange = { by, id: digest, issuedAt: issued_at, reason, atMs: deps.now() };
  if (what.change === 'token_create') return createToken(deps, what, asking);
  if ('kind' in what) return deps.registrations.change(what, asking);
  if ('principal' in what && addressOf(what.principal) === undefined) {
    throw new HeroError('bad_request', `${what.principal} is no nkey: its check digits are wrong`);
  }
  const changed = await deps.records.changeContext<ContextRecord>(what.context, (current) => {
    const admin = deps.directory.hasRole(by, 'admin');
    const { record, seen } = changeContext(current, what, asking, admin);
    return { write: seen ? undefined : record, answer: record };
  });
  await deps.provisions.context(changed.context);
  return changed;
}

async function createToken(
  { tokens, directory, records }: HandlerDeps,
  what: TokenCreate,
  asking: AskedChange,
): Promise<object> {
  if (!directory.hasRole(asking.by, 'admin')) {
    throw new HeroError('not_allowed', `${asking.by} is no admin of the ledger`, {
      fix: 'Ask an admin of the ledger: by default whoever started the control plane.',
    });
  }
  const record = await tokens.create(what, asking);
  if (record.last !== undefined) await records.remember(record.last);
  return record;
}

function allow(auth: AuthClass, directory: Directory, caller: Principal | undefined): Principal {
  if (caller === undefined) {
    throw new HeroError('not_allowed', 'the bus does not say who asks', {
      fix: 'Connect with the credentials that registering gave, not with the join credentials.',
    });
  }
  const kind = auth === 'node' ? 'node' : undefined;
  if (!directory.isRegistered(caller, kind)) {
    throw new HeroError('not_allowed', `${caller} is not registered${kind ? ' as a node' : ''}`, {
      fix: 'Register first: hb.ledger.challenge, then hb.ledger.register.',
    });
  }
  if (auth === 'admin' && !directory.hasRole(caller, 'admin')) {
    throw new HeroError('not_allowed', `${caller} is no admin of the ledger`, {
      fix: 'Ask an admin of the ledger: by default whoever started the control plane.',
    });
  }
  return caller;
}

function contextIn(body: unknown): ContextName {
  return ContextRequest.parse(body).context;
}

/** To who may not read it, a context that exists and one that does not look the same. */
function readable(directory: Directory, name: ContextName, caller: Principal): void {
  const record = directory.context(name);
  if (directory.isRegistered(caller, 'node') && record !== undefined) return;
  if (record !== undefined && mayRead(record, caller)) return;
  throw new HeroError('not_allowed', `${caller} has no role in a context ${name}`, {
    fix: `Ask an admin of the context: \`herobus context grant ${name} ${caller} reader\`.`,
  });
}

function existing(directory: Directory, name: ContextName): ContextRecord {
  const record = directory.context(name);
  if (record !== undefined) return record;
  throw new HeroError('not_found', `there is no context ${name}`);
}

function nodeAddress(directory: Directory, caller: Principal): string {
  const record = directory.principal(caller, 'node');
  if (record === undefined) throw new HeroError('not_allowed', `${caller} is no node`);
  return record.address;
}

function parse<S extends z.ZodType>(schema: S, data: Uint8Array): z.infer<S> {
  const parsed = schema.safeParse(strictJson(data, 'bad_request'));
  if (!parsed.success) throw badRequest(parsed.error);
  return parsed.data;
}

function badRequest(error: z.ZodError): HeroError {
  const issue = error.issues[0];
  const where = issue === undefined ? '' : `${issue.path.join('.')}: ${issue.message}`;
  return new HeroError('bad_request', `the request cannot be read: ${where.slice(0, 300)}`);
}
