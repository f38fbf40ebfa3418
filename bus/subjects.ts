/**
 * All subjects, built and parsed in one place, for producers and consumers alike (DESIGN 3).
 *
 * Every token that comes from outside is one of the identifiers of `schemas/ids.ts`, whose alphabets hold
 * no dot, wildcard or blank; nothing else builds a subject.
 */
import type { Address, ContextName, FlowId, FlowRef, PackId } from '../schemas/ids.ts';
import type { DecisionKind } from '../schemas/flow.ts';
import type { JobKind } from '../schemas/job.ts';

export const subjects = {
  deploy: (context: ContextName) => `hb.deploy.${context}`,
  deployAll: 'hb.deploy.*',
  refused: (context: ContextName, envelope: string) => `hb.refused.${context}.${envelope}`,
  refusedOf: (context: ContextName) => `hb.refused.${context}.*`,

  flowAll: 'hb.flow.>',
  flow: ({ context, flow }: FlowRef) => `hb.flow.${context}.${flow}.>`,
  flowsOf: (context: ContextName) => `hb.flow.${context}.>`,
  decision: ({ context, flow }: FlowRef, writer: Address, kind: DecisionKind) =>
    `hb.flow.${context}.${flow}.main.${writer}.${kind}`,
  decisions: ({ context, flow }: FlowRef) => `hb.flow.${context}.${flow}.main.>`,
  decisionsAll: 'hb.flow.*.*.main.>',
  decisionsOfKind: ({ context, flow }: FlowRef, kind: DecisionKind) =>
    `hb.flow.${context}.${flow}.main.*.${kind}`,
  claim: ({ context, flow }: FlowRef, pack: PackId, writer: Address) =>
    `hb.flow.${context}.${flow}.claim.${pack}.${writer}`,
  claims: ({ context, flow }: FlowRef, pack: PackId) =>
    `hb.flow.${context}.${flow}.claim.${pack}.*`,
  run: ({ context, flow }: FlowRef, writer: Address, pack: PackId) =>
    `hb.flow.${context}.${flow}.run.${writer}.${pack}`,

  /** The stream's own copies of what it stored, on core NATS: the live end of a log. */
  storedAll: 'hb.stored.>',
  stored: ({ context, flow }: FlowRef) => `hb.stored.${context}.${flow}.>`,
  storedDecisions: ({ context, flow }: FlowRef) => `hb.stored.${context}.${flow}.main.>`,
  storedDecisionsAll: 'hb.stored.*.*.main.>',

  assign: (node: Address) => `hb.assign.${node}`,
  assignAll: 'hb.assign.*',
  jobs: (context: ContextName, kind: JobKind, node: Address) =>
    `hb.jobs.${context}.${kind}.${node}`,
  jobsOf: (context: ContextName) => `hb.jobs.${context}.*.*`,
  logs: ({ context, flow }: FlowRef, n: number) => `hb.logs.${context}.${flow}.${n}`,
  scriptLog: ({ context, flow }: FlowRef) => `hb.logs.${context}.${flow}.main`,
  logsOfFlow: ({ context, flow }: FlowRef) => `hb.logs.${context}.${flow}.*`,
  logsAll: 'hb.logs.>',

  beat: (node: Address) => `hb.beat.${node}`,
  beats: 'hb.beat.*',
  at: (node: Address, actor: string, verb: string) => `hb.at.${node}.${actor}.${verb}`,
  ledger: (verb: string) => `hb.ledger.${verb}`,
  ledgerAll: 'hb.ledger.*',
  inspect: (node: Address, actor: string) => `hb.inspect.${node}.${actor}`,
} as const;

export const streams = {
  deploy: 'HB_DEPLOY',
  refused: 'HB_REFUSED',
  flow: 'HB_FLOW',
  assign: 'HB_ASSIGN',
  logs: 'HB_LOGS',
  jobs: (context: ContextName) => `JOBS_${context}`,
  blobs: (context: ContextName) => `HB_BLOBS_${context}`,
} as const;

export const isJobsStream = (stream: string): boolean => stream.startsWith('JOBS_');

/** Names of the work-queue consumers: exact names are what credentials can bound (reference: bus facts). */
export const consumers = {
  deploy: 'coord',
  assign: (node: Address) => node,
  jobs: (kind: JobKind, node: Address) => `${kind}_${node}`,
} as const;

export type FlowSubject = FlowRef &
  (
    | { lane: 'main'; writer: Address; kind: string }
    | { lane: 'claim'; writer: Address; pack: PackId }
    | { lane: 'run'; writer: Address; pack: PackId }
  );

const FLOW_SUBJECT =
  /^hb\.(?:flow|stored)\.([a-z0-9-]+)\.([a-z2-7]{26})\.(?:main\.([0-9a-f]{32})\.([a-z]+)|claim\.(p[0-9]+)\.([0-9a-f]{32})|run\.([0-9a-f]{32})\.(p[0-9]+))$/;

/** Reads a subject of `HB_FLOW` (or its stored copy); undefined when it is none. */
export function parseFlowSubject(subject: string): FlowSubject | undefined {
  const m = FLOW_SUBJECT.exec(subject);
  if (!m) return undefined;
  const ref = { context: m[1] as ContextName, flow: m[2] as FlowId };
  if (m[3] && m[4]) return { ...ref, lane: 'main', writer: m[3], kind: m[4] };
  if (m[5] && m[6]) return { ...ref, lane: 'claim', pack: m[5], writer: m[6] };
  if (m[7] && m[8]) return { ...ref, lane: 'run', writer: m[7], pack: m[8] };
  return undefined;
}

/** Whose output a subject of `HB_LOGS` holds: a job's number, or `main` for the script. */
export function parseLogsSubject(subject: string): number | 'main' | undefined {
  const name = /^hb\.logs\.[a-z0-9-]+\.[a-z2-7]{26}\.(main|[0-9]{1,8})$/.exec(subject)?.[1];
  return name === undefined || name === 'main' ? name : Number(name);
}

/** The context in a subject of `hb.deploy.<ctx>`. */
export function parseDeploySubject(subject: string): ContextName | undefined {
  return /^hb\.deploy\.([a-z0-9][a-z0-9-]{0,31})$/.exec(subject)?.[1];
}

/** The address in a subject of `hb.beat.<addr>`. */
export function parseBeatSubject(subject: string): Address | undefined {
  return /^hb\.beat\.([0-9a-f]{32})$/.exec(subject)?.[1];
}
