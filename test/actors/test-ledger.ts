/** A ledger on a bus in memory, and a client that registers, signs changes and asks. */
import { seal } from '../../bus/envelope.ts';
import { newIdentity, type Identity } from '../../bus/identity.ts';
import { openDirectory, type Directory } from '../../actors/ledger/directory.ts';
import type { FollowerSpec, QueueSpec } from '../../actors/ledger/followers.ts';
import { startLedger } from '../../actors/ledger/ledger.ts';
import type { Admission } from '../../actors/ledger/registrations.ts';
import {
  LEDGER_PAYLOAD_TYPE,
  REGISTER_PAYLOAD_TYPE,
  type PrincipalKind,
} from '../../schemas/ledger.ts';
import { MemoryBus, MemoryNet } from './memory-bus.ts';

export type Answer = {
  ok?: Record<string, unknown>;
  error?: { code: string; message: string; fix: string | null };
};

export class TestLedger {
  readonly net: MemoryNet;
  readonly home: Identity;
  readonly faults: string[] = [];
  readonly cut: string[] = [];
  readonly provisioned: string[] = [];
  readonly followers: FollowerSpec[] = [];
  readonly queues: QueueSpec[] = [];
  monotonicMs = 1000;
  #issued = 0;
  #changes = 0;
  #ledger!: Awaited<ReturnType<typeof startLedger>>;

  constructor(net: MemoryNet, home: Identity) {
    this.net = net;
    this.home = home;
  }

  get directory(): Directory {
    return this.#ledger.directory;
  }

  async start(admission?: Admission, open?: boolean): Promise<void> {
    const bus = new MemoryBus(this.net, this.home, this.home.principal);
    this.#ledger = await startLedger({
      bus: bus.asBus(),
      issue: ({ kind, principal }) => `jwt.${kind}.${principal}.${++this.#issued}`,
      makeConsumer: {
        follower: async (spec) => void this.followers.push(spec),
        queue: async (spec) => void this.queues.push(spec),
      },
      readLog: async () => ({ entries: [], more: false }),
      provision: {
        context: async (context) => void this.provisioned.push(context),
        user: async (address) => void this.provisioned.push(address),
      },
      cut: ({ principal }) => void this.cut.push(principal),
      monotonicMs: () => this.monotonicMs,
      onFault: (message) => this.faults.push(message),
      ...(admission === undefined ? {} : { admission }),
      open,
    });
    await this.bootstrap();
  }

  bootstrap(): Promise<void> {
    return this.#ledger.bootstrap(this.home.principal, 'home');
  }

  serveNodes(nodes: Parameters<Awaited<ReturnType<typeof startLedger>>['serveNodes']>[0]): void {
    this.#ledger.serveNodes(nodes);
  }

  stop(): void {
    this.#ledger.stop();
  }

  async ask(verb: string, body: Uint8Array, caller: string | undefined): Promise<Answer> {
    const client = new MemoryBus(this.net, this.home, caller);
    return (await client.request(`hb.ledger.${verb}`, body)) as Answer;
  }

  async code(verb: string, body: Uint8Array, caller: string | undefined): Promise<string> {
    return (await this.ask(verb, body, caller)).error?.code ?? 'none';
  }

  async nonce(identity: Identity): Promise<string> {
    const body = Buffer.from(JSON.stringify({ principal: identity.principal }));
    return String((await this.ask('challenge', body, undefined)).ok?.['nonce']);
  }

  seal(identity: Identity, kind: PrincipalKind, nonce: string, token: string | null = null) {
    const { principal } = identity;
    const payload = { v: 1, principal, nonce, kind, name: 'test', token };
    return seal(Buffer.from(JSON.stringify(payload)), REGISTER_PAYLOAD_TYPE, [identity]);
  }

  async proof(identity: Identity, kind: PrincipalKind, token?: string): Promise<Uint8Array> {
    return this.seal(identity, kind, await this.nonce(identity), token);
  }

  async register(identity: Identity, kind: PrincipalKind, token?: string): Promise<Answer> {
    return this.ask('register', await this.proof(identity, kind, token), undefined);
  }

  sealChange(identity: Identity, change: object, issuedMs?: number): Uint8Array {
    const at = issuedMs ?? this.net.nowMs + ++this.#changes;
    const payload = {
      v: 1,
      change,
      reason: 'a test',
      nonce: `test-nonce-${this.#changes}`,
      issued_at: new Date(at).toISOString(),
    };
    return seal(Buffer.from(JSON.stringify(payload)), LEDGER_PAYLOAD_TYPE, [identity]);
  }

  change(identity: Identity, change: object): Promise<Answer> {
    return this.ask('change', this.sealChange(identity, change), undefined);
  }

  async changeCode(identity: Identity, change: object): Promise<string> {
    return (await this.change(identity, change)).error?.code ?? 'none';
  }
}

export async function startTestLedger(
  options: { admission?: Admission; open?: boolean } = {},
  net = new MemoryNet(),
  home = newIdentity(),
): Promise<TestLedger> {
  const ledger = new TestLedger(net, home);
  await ledger.start(options.admission, options.open);
  return ledger;
}

export async function directoryOf(net: MemoryNet): Promise<Directory> {
  const { directory } = await openDirectory(new MemoryBus(net).asBus(), () => undefined);
  return directory;
}
