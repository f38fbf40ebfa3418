/** Nodes: what they say of themselves (beats) and what the roster says of them. */
import { z } from 'zod';
import { Capability } from './deployment.ts';
import { Address, AddressText, Incarnation, Principal } from './ids.ts';
import { JobKind } from './job.ts';

/** Times of the liveness protocol, in milliseconds (DESIGN 2, 5.6). */
export const BEAT_MS = 1000;
export const LEASE_MS = 5000;
/** A node is suspect after this silence, dead after `DEAD_MS`; both well past a lease. */
export const SUSPECT_MS = 3500;
export const DEAD_MS = LEASE_MS + 3000;

/** Messages of its queues that could not be read, since it started: how many, and what was wrong with the last. */
export const Refused = z.object({ count: z.int().min(1), last: z.string().max(300) });
export type Refused = z.infer<typeof Refused>;

export const RunnerReport = z.object({
  runner: z.string(),
  inc: Incarnation,
  class: JobKind,
  slots: z.int(),
  busy: z.int(),
  contexts: z.array(z.string()).default([]),
  refused: Refused.optional(),
});
export type RunnerReport = z.infer<typeof RunnerReport>;

/** On `hb.beat.<addr>`, once a second, by the node's supervisor. */
export const NodeBeat = z.object({
  v: z.literal(1),
  role: z.literal('node'),
  inc: Incarnation,
  seq: z.int(),
  principal: Principal,
  name: z.string(),
  groups: z.array(z.string()),
  offers: z.array(Capability),
  state: z.enum(['starting', 'ready', 'saturated', 'draining', 'stopped']),
  runners: z.array(RunnerReport),
  flows: z.int(),
  refused: Refused.optional(),
  version: z.string(),
  cpus: z.int(),
  memory_mib: z.int(),
  load1: z.number(),
});
export type NodeBeat = z.infer<typeof NodeBeat>;

/** On `hb.beat.<addr>` as a request, by a runner: it is its lease renewal. */
export const RunnerBeat = z.object({
  v: z.literal(1),
  role: z.literal('runner'),
  inc: Incarnation,
  seq: z.int(),
  report: RunnerReport,
  /** Packs the runner holds, `<ctx>.<flow>.<pack>`. */
  packs: z.array(z.string()),
});
export type RunnerBeat = z.infer<typeof RunnerBeat>;

/** The supervisor's answer: the lease runs from the moment the beat was sent. */
export const LeaseReply = z.object({
  v: z.literal(1),
  lease_ms: z.int(),
  drain: z.boolean(),
  /** Contexts the node serves now: the runner pulls from their job streams. */
  contexts: z.array(z.string()),
});
export type LeaseReply = z.infer<typeof LeaseReply>;

export const Liveness = z.enum(['live', 'suspect', 'dead', 'drained']);
export type Liveness = z.infer<typeof Liveness>;

/** A node in the `roster` bucket and in `herobus nodes`. Times in epoch ms of bus time. */
export const RosterNode = z.object({
  v: z.literal(1),
  address: Address,
  principal: Principal,
  name: z.string(),
  groups: z.array(z.string()),
  offers: z.array(Capability),
  liveness: Liveness,
  /** Why it is not live, for people. */
  reason: z.string().nullable(),
  state: z.string(),
  inc: Incarnation,
  runners: z.array(RunnerReport),
  flows: z.int(),
  refused: Refused.optional(),
  version: z.string(),
  cpus: z.int(),
  memory_mib: z.int(),
  load1: z.number(),
  since_ms: z.int(),
  beat_ms: z.int(),
});
export type RosterNode = z.infer<typeof RosterNode>;

/** A node as people see it: its times are written as every other time is. */
export const NodeObject = RosterNode.omit({ since_ms: true, beat_ms: true }).extend({
  address: AddressText,
  since: z.iso.datetime(),
  last_beat: z.iso.datetime(),
});
export type NodeObject = z.infer<typeof NodeObject>;

/** `hb.ledger.nodes`, in pages by address. */
export const NodesReply = z.object({
  nodes: z.array(RosterNode),
  next: z.string().nullable(),
});
export type NodesReply = z.infer<typeof NodesReply>;
