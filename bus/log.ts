/**
 * The log of flows (DESIGN 3): the only place that publishes to HB_FLOW.
 *
 * Every decision is fenced with the filter over all decisions of its flow, computed here and nowhere else,
 * because one unfenced write lets a stale decision pass on a cluster. Claims and voids of a pack share one
 * fence; facts have none. How an append becomes certain is bus/append.ts, how entries are read is
 * bus/follow.ts, what they mean is actors/flow/fold.ts.
 */
import type { NatsConnection } from '@nats-io/transport-node';
import { HeroError } from '../schemas/errors.ts';
import type { DecisionKind } from '../schemas/flow.ts';
import type { Address, ContextName, FlowId, FlowRef, Incarnation } from '../schemas/ids.ts';
import { makeAppender } from './append.ts';
import type { Entry, FlowLog, Link } from './bus.ts';
import type { BusClock } from './clock.ts';
import type { EntrySigner } from './entry-signature.ts';
import { directRange, startFollow, toEntry, type RangeReader } from './follow.ts';
import { callApi, readLast, readLastOfAll, type Stored } from './jetstream.ts';
import { ENTRY_BYTES_MAX } from './pack.ts';
import { parseFlowSubject, streams, subjects } from './subjects.ts';

export type FlowLogOptions = {
  nats: NatsConnection;
  link: Link;
  clock: BusClock;
  address: Address;
  incarnation: Incarnation;
  signer: EntrySigner;
  /** How this connection reads one flow, or only the decisions of one. */
  range: (ref: FlowRef, only?: 'decisions') => RangeReader;
  rangeOf: (context: ContextName, flows: readonly FlowId[]) => RangeReader;
};

const READ_TIMEOUT_MS = 5_000;
const API_TIMEOUT_MS = 10_000;
/** These carry an envelope of up to 1 MiB as it was signed. */
const WITH_ENVELOPE = new Set(['deploy', 'cancel', 'retry', 'pause', 'resume']);
const ENVELOPE_ENTRY_BYTES_MAX = 1536 * 1024;

export function makeFlowLog(options: FlowLogOptions): FlowLog & { close(): void } {
  const { address, range } = options;
  const appender = makeAppender({
    ...options,
    firstFrom: (filter, seq) => firstFrom(range, filter, seq),
  });
  return {
    decide: async (ref, kind, body, expected) => {
      const max = WITH_ENVELOPE.has(kind) ? ENVELOPE_ENTRY_BYTES_MAX : ENTRY_BYTES_MAX;
      const subject = subjects.decision(ref, address, kind);
      const fence = { filter: subjects.decisions(ref), expected };
      return appender.append('decision', subject, encode(body, max), fence);
    },
    claim: async (ref, pack, body) => {
      const subject = subjects.claim(ref, pack, address);
      const fence = { filter: subjects.claims(ref, pack), expected: 0 };
      return appender.append('claim', subject, encode(body, ENTRY_BYTES_MAX), fence);
    },
    fact: async (ref, pack, body) =>
      appender.append('fact', subjects.run(ref, address, pack), encode(body, ENTRY_BYTES_MAX)),
    ...readers(options),
    close: () => appender.close(),
  };
}

type Readers = Omit<FlowLog, 'decide' | 'claim' | 'fact'>;

function readers(options: FlowLogOptions): Readers {
  const { nats, range, rangeOf } = options;
  const isDecision = (entry: Entry) => entry.lane === 'main';
  return {
    read: (ref, from = 1) => readEntries(range(ref), from),
    readSeveral: (context, flows, from) => readEntries(rangeOf(context, flows), from),
    readDecisions: async function* (ref) {
      for await (const entry of readEntries(range(ref, 'decisions'), 1)) {
        if (isDecision(entry)) yield entry;
      }
    },
    follow: (ref, from, onEntry, onMissed) =>
      startFollow({
        ...options,
        live: subjects.stored(ref),
        range: range(ref),
        from,
        wanted: () => true,
        onEntry,
        onMissed,
      }),
    lastEntry: async (ref) =>
      (await readLast(nats, streams.flow, subjects.flow(ref), READ_TIMEOUT_MS))?.seq ?? 0,
    lastDecision: async (ref, kind) => {
      const filter =
        kind === undefined ? subjects.decisions(ref) : subjects.decisionsOfKind(ref, kind);
      const stored = await readLast(nats, streams.flow, filter, READ_TIMEOUT_MS);
      return stored === undefined ? undefined : toEntry(stored);
    },
    watchDecisions: (ref, onEntry) =>
      startFollow({
        ...options,
        live: subjects.storedDecisions(ref),
        range: range(ref, 'decisions'),
        from: { after: subjects.decisions(ref) },
        wanted: isDecision,
        onEntry,
      }),
    watchAllDecisions: (onEntry) =>
      startFollow({
        ...options,
        live: subjects.storedDecisionsAll,
        range: directRange(nats, subjects.decisionsAll),
        from: { after: subjects.decisionsAll },
        wanted: isDecision,
        onEntry,
      }),
    overview: (context, kinds) => overview(nats, context, kinds),
    forget: async (ref, upTo) => {
      const newest = await readLast(nats, streams.flow, subjects.flowAll, READ_TIMEOUT_MS);
      if (newest === undefined || parseFlowSubject(newest.subject)?.flow === ref.flow) return false;
      const logs = { filter: subjects.logsOfFlow(ref) };
      await callApi(nats, `STREAM.PURGE.${streams.logs}`, logs, API_TIMEOUT_MS);
      const log = { filter: subjects.flow(ref), seq: upTo + 1 };
      await callApi(nats, `STREAM.PURGE.${streams.flow}`, log, API_TIMEOUT_MS);
      return true;
    },
  };
}

/** The newest entry of each kind of every flow: by the subjects the stream knows, not by reading all. */
async function* overview(
  nats: NatsConnection,
  context: ContextName,
  kinds: readonly DecisionKind[],
): AsyncIterable<Entry> {
  for (const kind of kinds) {
    const filter = subjects.decisionsOfKind({ context, flow: '*' }, kind);
    const newest = new Map<string, Entry>();
    for await (const stored of readLastOfAll(nats, streams.flow, filter)) {
      const entry = toEntry(stored);
      if (entry === undefined) continue;
      // Several writers may have written a kind, each under a subject of its own.
      if ((newest.get(entry.flow)?.seq ?? 0) < entry.seq) newest.set(entry.flow, entry);
    }
    yield* newest.values();
  }
}

async function* readEntries(range: RangeReader, from: number): AsyncIterable<Entry> {
  for await (const page of range(from)) {
    for (const stored of page) {
      const entry = toEntry(stored);
      if (entry !== undefined) yield entry;
    }
  }
}

/** Nothing has been started when this throws. */
function encode(body: object, max: number): Uint8Array {
  const data = Buffer.from(JSON.stringify(body));
  if (data.length > max) {
    throw new HeroError('too_large', `an entry of ${data.length} bytes is more than ${max}`);
  }
  return data;
}

/** The first entry of a fence's filter from a sequence on, from the flow's range. */
async function firstFrom(
  range: (ref: FlowRef) => RangeReader,
  filter: string,
  seq: number,
): Promise<Stored | undefined> {
  const [, , context = '', flow = '', lane, pack] = filter.split('.');
  for await (const page of range({ context, flow })(seq)) {
    for (const stored of page) {
      const subject = parseFlowSubject(stored.subject);
      if (subject === undefined || subject.lane !== lane) continue;
      if (subject.lane === 'claim' && subject.pack !== pack) continue;
      return stored;
    }
  }
  return undefined;
}
