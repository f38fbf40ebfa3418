/**
 * Consumers made for others: nobody but the control plane may create one (DESIGN 3), so it asks here.
 *
 * What a consumer is on the stream stands in `bus/`; here is only who may have which. A follower's name is
 * its key: it is unguessable, and told to nobody but who asked. A queue's name is its owner's address, and
 * only its owner's credentials name it.
 */
import { randomBytes } from 'node:crypto';
import { consumers, streams, subjects } from '../../bus/subjects.ts';
import { HeroError } from '../../schemas/errors.ts';
import type { Address, ContextName, FlowId, FlowRef, Principal } from '../../schemas/ids.ts';
import type { ConsumerReply, FollowRequest, QueueRequest } from '../../schemas/ledger.ts';

/** A named pull consumer in memory that acknowledges nothing and ends by itself. */
export type FollowerSpec = {
  stream: string;
  consumer: string;
  /** Subjects; none may hold another. */
  filters: readonly string[];
  /** First sequence to deliver; null: from the first stored. */
  from: number | null;
  /** Without `from`: what was stored from this time on, epoch ms. */
  since: number | null;
  inactiveMs: number;
};

/** A durable pull consumer of a work queue; the stream is made first where it may be missing. */
export type QueueSpec = {
  stream: string;
  consumer: string;
  filter: string;
  /** Subjects of a stream that the ledger has to make; null where the bus made it at its start. */
  makeStream: string | null;
};

export type ConsumerMaker = {
  follower: (spec: FollowerSpec) => Promise<void>;
  queue: (spec: QueueSpec) => Promise<void>;
};

const INACTIVE_MS = 60_000;
/** Followers one principal may ask for within `INACTIVE_MS`: enough for a web page, not for a flood. */
export const FOLLOWERS_MAX = { user: 100, node: 2_000 } as const;

export class Followers {
  readonly #make: ConsumerMaker;
  readonly #monotonicMs: () => number;
  readonly #asked = new Map<Principal, { sinceMs: number; count: number }>();

  constructor(make: ConsumerMaker, monotonicMs: () => number) {
    this.#make = make;
    this.#monotonicMs = monotonicMs;
  }

  async follow(request: FollowRequest, caller: Principal, isNode: boolean): Promise<ConsumerReply> {
    this.#count(caller, isNode ? FOLLOWERS_MAX.node : FOLLOWERS_MAX.user);
    const { stream, filters } = followed(request);
    const consumer = `f_${randomBytes(16).toString('hex')}`;
    await this.#make.follower({
      stream,
      consumer,
      filters,
      from: request.from,
      since: request.since ?? null,
      inactiveMs: INACTIVE_MS,
    });
    return { stream, consumer };
  }

  async queue(request: QueueRequest, node: Address): Promise<ConsumerReply> {
    const spec: QueueSpec =
      request.queue === 'assign'
        ? {
            stream: streams.assign,
            consumer: consumers.assign(node),
            filter: subjects.assign(node),
            makeStream: null,
          }
        : {
            stream: streams.jobs(request.context),
            consumer: consumers.jobs(request.class, node),
            filter: subjects.jobs(request.context, request.class, node),
            makeStream: subjects.jobsOf(request.context),
          };
    await this.#make.queue(spec);
    return { stream: spec.stream, consumer: spec.consumer };
  }

  #count(caller: Principal, max: number): void {
    const now = this.#monotonicMs();
    const window = this.#asked.get(caller);
    if (window === undefined || now - window.sinceMs >= INACTIVE_MS) {
      this.#asked.set(caller, { sinceMs: now, count: 1 });
      return;
    }
    if (window.count >= max) {
      throw new HeroError('quota', `${max} followers within a minute are the most there can be`, {
        fix: 'Keep one follower open and read on, or try again in a minute.',
      });
    }
    window.count++;
  }
}

function followed(request: FollowRequest): { stream: string; filters: string[] } {
  const { context, flow, flows, of, job } = request;
  switch (of) {
    case 'output':
      if (flow === null) {
        throw new HeroError('bad_request', 'the output of which flow?', { fix: 'Name the flow.' });
      }
      return { stream: streams.logs, filters: [outputOf({ context, flow }, job ?? null)] };
    case 'refused':
      return { stream: streams.refused, filters: [subjects.refusedOf(context)] };
    case 'log':
    case undefined:
      return { stream: streams.flow, filters: logsOf(context, flows ?? flow) };
  }
}

function logsOf(context: ContextName, of: FlowId | readonly FlowId[] | null): string[] {
  if (of === null) return [subjects.flowsOf(context)];
  const flows = new Set(typeof of === 'string' ? [of] : of);
  return [...flows].map((flow) => subjects.flow({ context, flow }));
}

function outputOf(ref: FlowRef, job: number | 'main' | null): string {
  if (job === null) return subjects.logsOfFlow(ref);
  return job === 'main' ? subjects.scriptLog(ref) : subjects.logs(ref, job);
}
