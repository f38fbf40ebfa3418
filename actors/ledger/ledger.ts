/**
 * The ledger: the one authority over principals and contexts, single writer of its buckets.
 *
 * Starts the loop on `hb.ledger.*`: a request, one verb of the table (handlers.ts), one reply
 * `{"ok":…}` or `{"error":{code,message,fix}}`. Invariants:
 *   L1 no message ends the loop, whatever is in it;
 *   L2 a request without a reply subject does nothing, except that a signed change is still a change;
 *   L3 work at once is bounded: beyond `IN_FLIGHT_MAX` requests are refused as `quota`, not queued.
 * It holds no keys: credentials, consumers and the cutting of connections are given to it by who starts it.
 */
import type { Bus, Incoming } from '../../bus/bus.ts';
import { subjects } from '../../bus/subjects.ts';
import { HeroError, ensureError } from '../../schemas/errors.ts';
import type { Principal } from '../../schemas/ids.ts';
import type { PageRequest, PrincipalRecord } from '../../schemas/ledger.ts';
import { newContext } from './contexts.ts';
import { openDirectory, type Directory } from './directory.ts';
import { Followers, type ConsumerMaker } from './followers.ts';
import { VERBS, type FlowsSource, type HandlerDeps, type ReadLog } from './handlers.ts';
import { Proofs } from './proofs.ts';
import { Records } from './records.ts';
import { Provisions, type Provision } from './provisions.ts';
import { Registrations, type Admission, type Issue } from './registrations.ts';
import { Tokens } from './tokens.ts';

export type LedgerOptions = {
  /** The control plane's bus, opened with the right to answer `hb.ledger.*`. */
  bus: Pick<Bus, 'kv' | 'subscribe' | 'now'>;
  issue: Issue;
  makeConsumer: ConsumerMaker;
  readLog: ReadLog;
  /** Makes the streams of a context and the bucket of a user, before anybody is told to use them. */
  provision?: Provision;
  /** In place of what the ledger keeps: its tokens, and whether it is open. */
  admission?: Admission;
  /** Keeps from now on whether whoever proves a key gets in; by default as it was kept, at first open. */
  open?: boolean | undefined;
  /** Ends the credentials of a revoked principal on the bus; without it they end by their expiry. */
  cut?: (record: PrincipalRecord) => void | Promise<void>;
  monotonicMs?: () => number;
  /** Told of faults that are ours or the bus's, not the caller's. */
  onFault?: (message: string) => void;
};

export type Ledger = {
  /** The read model, for coord and roster in the same process. */
  directory: Directory;
  /** First start: the home's principal as admin and coord, and the context `default`. Idempotent. */
  bootstrap: (principal: Principal, name: string) => Promise<void>;
  /** Lets `hb.ledger.nodes` answer: the roster's list, a page at a time. */
  serveNodes: (nodes: (page: PageRequest) => object) => void;
  /** Lets `hb.ledger.flows` and `hb.ledger.refusals` answer. */
  serveFlows: (flows: FlowsSource) => void;
  stop: () => void;
};

const IN_FLIGHT_MAX = 1000;
const VERB_SUBJECT = /^hb\.ledger\.([a-z_]+)$/;

export async function startLedger(options: LedgerOptions): Promise<Ledger> {
  const { bus } = options;
  const onFault = options.onFault ?? (() => undefined);
  const monotonicMs = options.monotonicMs ?? (() => performance.now());
  const now = () => Math.round(bus.now());
  const { directory, stop } = await openDirectory(bus, onFault);
  const records = new Records(bus, directory);
  await records.settleHistory();
  const provisions = new Provisions(options.provision);
  for (const { context } of directory.contexts()) await provisions.context(context);
  const tokens = new Tokens(bus, now);
  await tokens.settle(options.open);
  const registrations = new Registrations({
    directory,
    records,
    admission: options.admission ?? tokens,
    issue: async (record, contexts) => {
      if (record.kind === 'user') await provisions.user(record.address);
      return options.issue(record, contexts);
    },
    cut: options.cut ?? (() => undefined),
    now,
  });
  let nodes: ((page: PageRequest) => object) | undefined;
  let flows: FlowsSource | undefined;
  const deps: HandlerDeps = {
    directory,
    records,
    registrations,
    provisions,
    tokens,
    proofs: new Proofs(monotonicMs),
    followers: new Followers(options.makeConsumer, monotonicMs),
    readLog: options.readLog,
    nodes: (page) => nodes?.(page),
    flows: () => flows,
    now,
  };
  const subscription = bus.subscribe(subjects.ledgerAll, serve(deps, onFault));
  return {
    directory,
    bootstrap: (principal, name) => bootstrap(deps, principal, name),
    serveNodes: (answer) => {
      nodes = answer;
    },
    serveFlows: (source) => {
      flows = source;
    },
    stop: () => {
      subscription.stop();
      stop();
    },
  };
}

function serve(deps: HandlerDeps, onFault: (message: string) => void): (message: Incoming) => void {
  let inFlight = 0;
  return (message) => {
    if (inFlight >= IN_FLIGHT_MAX) {
      const busy = new HeroError('quota', 'the ledger is busy', { fix: 'Try again soon.' });
      message.reply?.(refusal(busy, onFault));
      return;
    }
    inFlight++;
    void answer(deps, message)
      .catch((error: unknown) => refusal(error, onFault))
      .then((body) => message.reply?.(body))
      .catch((error: unknown) => onFault(`a reply was not sent: ${ensureError(error).message}`))
      .finally(() => inFlight--);
  };
}

async function answer(deps: HandlerDeps, message: Incoming): Promise<object> {
  const name = VERB_SUBJECT.exec(message.subject)?.[1] ?? '';
  const verb = Object.hasOwn(VERBS, name) ? VERBS[name] : undefined;
  if (verb === undefined) {
    throw new HeroError('bad_request', `the ledger has no verb ${name}`, {
      fix: `It has ${Object.keys(VERBS).join(', ')}.`,
    });
  }
  if (message.reply === undefined && verb.auth !== 'signed') return {};
  return { ok: await verb.handle(deps, message) };
}

/** Only our own words leave: an unexpected error says that it was one, its details stay here. */
function refusal(thrown: unknown, onFault: (message: string) => void): object {
  if (thrown instanceof HeroError) {
    const { code, message, fix } = thrown;
    return { error: { code, message, fix: fix ?? null } };
  }
  const error = ensureError(thrown);
  onFault(error.stack ?? error.message);
  return {
    error: {
      code: 'internal',
      message: 'the ledger failed at this request',
      fix: 'Try again; the reason is in the log of the control plane.',
    },
  };
}

/** `up` without `--join`: who starts a control plane on an empty store owns it. */
async function bootstrap(deps: HandlerDeps, principal: Principal, name: string): Promise<void> {
  for (const kind of ['user', 'node'] as const) {
    await deps.registrations.bootstrap(principal, kind, name, ['coord', 'admin']);
  }
  await deps.records.changeContext('default', (current) => ({
    write: current === undefined ? newContext('default', principal, deps.now()) : undefined,
    answer: undefined,
  }));
  await deps.provisions.context('default');
}
