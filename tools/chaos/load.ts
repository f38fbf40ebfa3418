/**
 * A steady load: so many flows are open at any time, each published until its receipt is there; some are
 * published twice, some cancelled by a command.
 */
import { once } from 'node:events';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import type { Bus } from '../../bus/bus.ts';
import { open } from '../../bus/envelope.ts';
import type { Identity } from '../../bus/identity.ts';
import type { Random } from '../../bus/simulated/random.ts';
import { parseFlowSubject, subjects } from '../../bus/subjects.ts';
import type { FlowId } from '../../schemas/ids.ts';
import { sealCommand, sealDeployment } from '../cli/seal.ts';
import { makeScript, type Script } from './scripts.ts';

export const CONTEXT = 'default';

export type Submitted = {
  flow: FlowId;
  script: Script;
  trace: string;
  publishedMs: number;
  /** Milliseconds from the publishing until the end was seen. */
  tookMs: number | undefined;
  /** The receipt is there: from then on it must not be lost. */
  accepted: boolean;
  /** A cancel was published. */
  cancelled: boolean;
};

export type LoadOptions = { bus: Bus; identity: Identity; random: Random; traces: string };

const OPEN_MAX = 16;
/** Deployments come one by one, so that each moment has flows of all ages. */
const BETWEEN_MS = 250;
const LIFETIME_MS = 12 * 3_600_000;
const AGAIN_MS = 200;
/** An end whose copy was lost with a connection is looked for in the log. */
const LOOK_AFTER_MS = 8_000;
const LOOK_EVERY_MS = 1_000;
const GRANTS = ['process', 'kv:read', 'kv:write', 'noop'];

export class Load {
  readonly flows: Submitted[] = [];
  /** Entries of logs seen so far: while there are none, there is no load to hit. */
  entries = 0;
  readonly #options: LoadOptions;
  readonly #open = new Map<string, Submitted>();
  readonly #changed = new EventTarget();
  readonly #closing = new AbortController();
  readonly #pending = new Set<Promise<void>>();
  readonly #looking: Promise<void>;

  constructor(options: LoadOptions) {
    this.#options = options;
    const ends = subjects.stored({ context: CONTEXT, flow: '*' }).replace(/>$/, 'main.*.end');
    options.bus.subscribe(ends, ({ subject }) => {
      this.#ended(parseFlowSubject(subject)?.flow ?? '');
    });
    options.bus.subscribe(subjects.stored({ context: CONTEXT, flow: '*' }), () => {
      this.entries += 1;
    });
    this.#looking = this.#look();
  }

  /** Deploys until told otherwise. */
  async run(until: AbortSignal): Promise<void> {
    while (!until.aborted) {
      if (this.#open.size < OPEN_MAX) this.#keep(this.#deploy());
      else await once(this.#changed, 'ended', { signal: until }).catch(() => undefined);
      await delay(BETWEEN_MS, undefined, { signal: until }).catch(() => undefined);
    }
  }

  /** Waits until everything has ended, or the time is over. */
  async drain(withinMs: number): Promise<void> {
    const signal = AbortSignal.timeout(withinMs);
    while (this.#open.size > 0 && !signal.aborted) {
      await once(this.#changed, 'ended', { signal }).catch(() => undefined);
    }
    this.#closing.abort();
    await Promise.all([...this.#pending, this.#looking]);
  }

  #keep(work: Promise<void>): void {
    this.#pending.add(work);
    void work.finally(() => this.#pending.delete(work));
  }

  #ended(flow: string): void {
    const submitted = this.#open.get(flow);
    if (submitted === undefined) return;
    submitted.tookMs = performance.now() - submitted.publishedMs;
    this.#open.delete(flow);
    this.#changed.dispatchEvent(new Event('ended'));
  }

  async #deploy(): Promise<void> {
    const { bus, identity, random, traces } = this.#options;
    const index = this.flows.length;
    const script = makeScript(random.fork(), `chaos/${index}`);
    const trace = join(traces, `flow-${index}`);
    const draft = { context: CONTEXT, script: script.source, args: { trace }, grants: GRANTS };
    const bytes = sealDeployment(
      { ...draft, on: null, lifetimeMs: LIFETIME_MS },
      [identity],
      bus.now(),
    );
    const submitted: Submitted = {
      flow: open(bytes).flow,
      script,
      trace,
      publishedMs: performance.now(),
      tookMs: undefined,
      accepted: false,
      cancelled: false,
    };
    const twice = random.chance(0.1);
    const cancelAfterMs = random.chance(0.1) ? random.between(100, 4000) : undefined;
    this.flows.push(submitted);
    this.#open.set(submitted.flow, submitted);
    submitted.accepted = await this.#publish(bytes);
    if (twice) await this.#publish(bytes);
    if (cancelAfterMs === undefined) return;
    await delay(cancelAfterMs, undefined, { signal: this.#closing.signal }).catch(() => undefined);
    if (submitted.tookMs === undefined) await this.#cancel(submitted);
  }

  async #cancel(submitted: Submitted): Promise<void> {
    const { bus, identity } = this.#options;
    const command = { job: null, verb: 'cancel', reason: 'chaos' } as const;
    const ref = { context: CONTEXT, flow: submitted.flow };
    submitted.cancelled = true;
    await this.#publish(sealCommand(ref, command, identity, bus.now()));
  }

  /** Until the receipt is there; false when the load was closed before. */
  async #publish(bytes: Uint8Array): Promise<boolean> {
    const { signal } = this.#closing;
    while (!signal.aborted) {
      try {
        await this.#options.bus.queues.publishBytes(subjects.deploy(CONTEXT), bytes);
        return true;
      } catch {
        await delay(AGAIN_MS, undefined, { signal }).catch(() => undefined);
      }
    }
    return false;
  }

  async #look(): Promise<void> {
    const { signal } = this.#closing;
    while (!signal.aborted) {
      await delay(LOOK_EVERY_MS, undefined, { signal }).catch(() => undefined);
      for (const { flow, publishedMs } of this.#open.values()) {
        if (signal.aborted) return;
        if (performance.now() - publishedMs < LOOK_AFTER_MS) continue;
        if (await this.#hasEnded(flow).catch(() => false)) this.#ended(flow);
      }
    }
  }

  async #hasEnded(flow: FlowId): Promise<boolean> {
    for await (const entry of this.#options.bus.log.read({ context: CONTEXT, flow })) {
      if (entry.lane === 'main' && entry.kind === 'end') return true;
    }
    return false;
  }
}
