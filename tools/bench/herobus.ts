/**
 * herobus as it is measured: a real `up` in a process of its own, and a client that publishes sealed bytes.
 *
 * What runs is a copy of the built product, so that a build made meanwhile changes nothing that is measured.
 */
import { once } from 'node:events';
import { cp } from 'node:fs/promises';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { newIncarnation } from '../../actors/incarnation.ts';
import { loadOrMakeKey } from '../../actors/identity/key-file.ts';
import { openJoinLink, register } from '../../actors/identity/register.ts';
import { readIfThere } from '../../bus/atomic-file.ts';
import { open } from '../../bus/envelope.ts';
import type { Identity } from '../../bus/identity.ts';
import { type NatsBus, openNatsBus } from '../../bus/nats.ts';
import { findServerBinary } from '../../bus/server-binary.ts';
import { parseFlowSubject, subjects } from '../../bus/subjects.ts';
import type { Durability } from '../../schemas/config.ts';
import { sealDeployment } from '../cli/seal.ts';
import { ROOT, type Child, type Workspace } from './workspace.ts';

const CONTEXT = 'default';
const READY_WITHIN_MS = 60_000;
/** Longer than any workload takes; one that hangs is a finding, not a wait for ever. */
const ENDS_WITHIN_MS = 300_000;
const LIFETIME_MS = 3_600_000;

export type Sealed = { flow: string; bytes: Uint8Array };

export type HerobusOptions = {
  name: string;
  durability: Durability;
  /** As `up --runners`; the product's default when it is left out. */
  runners?: string;
  env?: Record<string, string>;
  /** Options of Node itself, for all processes of the node. */
  nodeOptions?: string[];
};

type End = { status: string; error: { code: string; message: string } | null };

export class Herobus {
  readonly #child: Child;
  readonly #begin: () => Promise<Herobus>;
  readonly #identity: Identity;
  readonly #bus: NatsBus;
  readonly #waiting = new Map<string, (end: End) => void>();
  readonly #seen = { jobs: 0, timers: 0 };

  private constructor(
    child: Child,
    identity: Identity,
    bus: NatsBus,
    begin: () => Promise<Herobus>,
  ) {
    this.#child = child;
    this.#begin = begin;
    this.#identity = identity;
    this.#bus = bus;
    bus.subscribe(
      subjects.stored({ context: CONTEXT, flow: '*' }).replace(/>$/, 'main.*.end'),
      (message) => {
        const flow = parseFlowSubject(message.subject)?.flow ?? '';
        const ended = this.#waiting.get(flow);
        this.#waiting.delete(flow);
        ended?.(JSON.parse(Buffer.from(message.data).toString('utf8')) as End);
      },
    );
    const decided = (kind: string): string =>
      subjects.stored({ context: CONTEXT, flow: '*' }).replace(/>$/, `main.*.${kind}`);
    bus.subscribe(decided('plan'), ({ data }) => {
      const plan = JSON.parse(Buffer.from(data).toString('utf8')) as { jobs?: unknown[] };
      this.#seen.jobs += plan.jobs?.length ?? 0;
    });
    bus.subscribe(decided('timer'), () => {
      this.#seen.timers += 1;
    });
  }

  static async start(workspace: Workspace, options: HerobusOptions): Promise<Herobus> {
    const program = await productCopy(await workspace.subfolder(`${options.name}-product`));
    const home = await workspace.subfolder(`${options.name}-home`);
    const data = await workspace.subfolder(`${options.name}-data`);
    const { file } = await findServerBinary();
    const { nodeOptions = [] } = options;
    const begin = async (): Promise<Herobus> => {
      const child = workspace.spawn(
        options.name,
        process.execPath,
        [
          program,
          '--home',
          home,
          '--json',
          'up',
          '--name=bench',
          `--data=${data}`,
          `--durability=${options.durability}`,
          ...(options.runners === undefined ? [] : [`--runners=${options.runners}`]),
        ],
        {
          pipeStdout: true,
          env: { HEROBUS_NATS_SERVER: file, NODE_OPTIONS: nodeOptions.join(' '), ...options.env },
        },
      );
      const server = await child.until(readyServer(child), READY_WITHIN_MS);
      const { identity } = await loadOrMakeKey(home);
      const bus = await openClient(server, join(data, 'join.creds'), identity);
      workspace.atEnd(() => bus.close());
      return new Herobus(child, identity, bus, begin);
    };
    return begin();
  }

  /** Jobs in the plans seen so far, and timers. */
  jobsPlanned(): number {
    return this.#seen.jobs;
  }

  timers(): number {
    return this.#seen.timers;
  }

  /** Roots of all its processes: server and runners are their children. */
  get pids(): number[] {
    return [this.#child.pid];
  }

  stop(): Promise<void> {
    return this.#child.stop();
  }

  /** Kills it, and starts it again on what it left. */
  async again(): Promise<Herobus> {
    const gone = once(this.#child.process, 'exit');
    this.#child.process.kill('SIGKILL');
    await gone;
    return this.#begin();
  }

  seal(script: string, grants: string[] = ['noop']): Sealed {
    const draft = { context: CONTEXT, script, args: {}, grants, on: null };
    const bytes = sealDeployment(
      { ...draft, lifetimeMs: LIFETIME_MS },
      [this.#identity],
      this.#bus.now(),
    );
    return { flow: open(bytes).flow, bytes };
  }

  /** Resolves with the acknowledgement; `ended` when the client has seen the flow's end. */
  async publish({ flow, bytes }: Sealed): Promise<{ ended: Promise<void> }> {
    const end = Promise.withResolvers<End>();
    this.#waiting.set(flow, end.resolve);
    const late = setTimeout(() => {
      end.resolve({ status: `no end in ${ENDS_WITHIN_MS} ms`, error: null });
    }, ENDS_WITHIN_MS);
    const ended = end.promise.then(({ status, error }) => {
      clearTimeout(late);
      if (status === 'completed') return;
      throw new Error(`flow ${flow}: ${status} ${error?.code ?? ''} ${error?.message ?? ''}`);
    });
    ended.catch(() => undefined);
    await this.#bus.queues.publishBytes(subjects.deploy(CONTEXT), bytes);
    return { ended };
  }

  /** One deployment to its end. */
  async run(sealed: Sealed): Promise<void> {
    const { ended } = await this.publish(sealed);
    await ended;
  }
}

/** A copy of the built product in a folder; returns its program. */
export async function productCopy(folder: string): Promise<string> {
  await cp(join(ROOT, 'package.json'), join(folder, 'package.json'));
  await cp(join(ROOT, 'dist'), join(folder, 'dist'), { recursive: true });
  return join(folder, 'dist', 'cli.js');
}

async function readyServer(child: Child): Promise<string> {
  const { stdout } = child.process;
  if (stdout === null) throw new Error('the node has no output to read');
  for await (const line of createInterface({ input: stdout })) {
    const event = JSON.parse(line) as { event: string; server: string };
    if (event.event === 'ready') return event.server;
  }
  return new Promise(() => undefined);
}

/** The connection of a user with this key, who is registered first. */
export async function openClient(
  server: string,
  joinCreds: string,
  identity: Identity,
): Promise<NatsBus> {
  const link = await openJoinLink({ server, creds: await readIfThere(joinCreds) });
  try {
    const reply = await register(link.ask, identity, { kind: 'user', name: 'bench', token: null });
    if (reply.status !== 'registered') throw new Error('the bench was not let in');
    const { jwt } = reply;
    const incarnation = newIncarnation();
    return await openNatsBus({ kind: 'user', server, identity, incarnation, jwt: () => jwt });
  } finally {
    await link.close();
  }
}
