/**
 * Watermarks: how far each stream that carries truth had come, kept where the server cannot take it back.
 *
 * A server whose newest block is damaged cuts the stream back without a word and gives the same sequences
 * to other messages (reference/bus.md 6). So the last sequence of each stream and the digest of its message
 * stand in `<data>/watermarks.json` as well, and are compared before any actor starts, and again whenever
 * the server came back. Which streams these are and how their ends are seen is bus/stream-tails.ts; who
 * stops is tools/up.
 *
 * W1 A mark is never lowered and never replaced while its stream contradicts it, except on `acceptLoss`.
 * W2 A mark may lag (by a round, or by a rename that a power cut undid): an older mark is still true.
 * W3 A message may go while its stream goes on: purged, outlived by its key's history, done in its queue.
 *    Where nothing followed it and nobody was running who could have purged it, the stream lost its end.
 * W4 A server tells of damage it found only until it ends. So the mark keeps that a queue's message was lost,
 *    until the message is back or the loss is accepted.
 * W5 A loss is recorded before a mark gives way to it.
 */
import { join } from 'node:path';
import { type Watermark, WatermarkFile } from '../schemas/config.ts';
import { ensureError, HeroError } from '../schemas/errors.ts';
import { readIfThere, writeAtomic } from './atomic-file.ts';
import type { Link } from './bus.ts';
import type { Identity } from './identity.ts';
import { NOTHING, type StreamTails, type Tail } from './stream-tails.ts';
import { isUserStream } from './streams.ts';
import { type Loss, recordLosses } from './watermark-losses.ts';

export type WatermarkOptions = {
  dataDir: string;
  tails: StreamTails;
  link: Link;
  /** Who accepts: signs what is recorded. */
  identity: Identity;
  /** Go on with streams that went back; what is lost is recorded (bus/watermark-losses.ts) and told. */
  acceptLoss: boolean;
  alarm: (message: string) => void;
  /** A stream went back while this process ran; called once, and no mark moves any more. */
  onRegressed: (error: HeroError) => void;
};

export type WatermarkKeeper = {
  /** Looks now. Never throws: what fails is told and tried again in the next round. */
  refresh(): Promise<void>;
  /** Looks once more and ends; the connection must still be there. */
  stop(): Promise<void>;
};

const ROUND_MS = 1000;
/** A page of the server's list. */
const USERS_A_ROUND = 256;
const FILE_MODE = 0o644;

export const watermarkPath = (dataDir: string): string => join(dataDir, 'watermarks.json');

type Marks = ReadonlyMap<string, Watermark>;

/** What one look at a stream found. `fault`: how the stream contradicts its mark. */
type Look = { state: string; mark: Watermark | undefined; fault?: string };

type Known = { mark: Watermark | undefined; state: string | undefined };

/**
 * Looks at a stream: no question more while it rests, up to two when it moved. `suspect`: the server was away
 * since the last look, so a resting stream is compared too, and a message that is gone was not purged.
 */
async function look(
  tails: StreamTails,
  [stream, tail]: readonly [string, Tail],
  known: Known,
  suspect: boolean,
): Promise<Look> {
  const { mark } = known;
  const state = `${tail.first}-${tail.last}-${tail.messages}`;
  if (state === known.state && !suspect) return { state, mark };
  const comparable = mark !== undefined && mark.digest !== null && tail.last >= mark.seq;
  const there = comparable ? await tails.digest(stream, mark.seq) : undefined;
  if (mark !== undefined) {
    const fault = faultOf(stream, mark, tail, there);
    if (fault !== undefined) return { state, mark, fault };
    if (suspect && comparable && there === undefined) {
      const lost = await lossOf(tails, stream, mark, tail);
      if (lost !== undefined) return { state, mark: lost, fault: goneFault(stream, mark) };
    }
  }
  if (tail.last === 0) return { state, mark };
  const digest = (tail.last === mark?.seq ? there : await tails.digest(stream, tail.last)) ?? null;
  if (mark?.seq === tail.last && mark.digest === digest && mark.lost !== true) {
    return { state, mark };
  }
  return { state, mark: { seq: tail.last, digest, at: new Date().toISOString() } };
}

function faultOf(
  stream: string,
  { seq, digest, at }: Watermark,
  { last }: Tail,
  there: string | undefined,
): string | undefined {
  if (last < seq) return `${stream} ends at sequence ${last}, and ${seq} was stored by ${at}`;
  // A removal that had not reached the disk may be undone by a crash: then the message is back, and right.
  if (digest === null || there === undefined || there === digest) return undefined;
  return `${stream} ends at sequence ${last}, and holds another message at ${seq} than was stored by ${at}`;
}

/**
 * The marked message is gone, and nobody was running who could have removed it: the mark that says so. What was
 * done in its queue is gone by right, and a queue that lost its messages looks the same; but only the start that
 * finds the damage can tell (W4).
 */
async function lossOf(
  tails: StreamTails,
  stream: string,
  mark: Watermark,
  { last, forgets }: Tail,
): Promise<Watermark | undefined> {
  if (last !== mark.seq) return undefined;
  if (!forgets || mark.lost === true) return mark;
  return (await tails.damaged(stream)) ? { ...mark, lost: true } : undefined;
}

const goneFault = (stream: string, { seq, at }: Watermark): string =>
  `${stream} ends at sequence ${seq}, and the message at ${seq}, stored by ${at}, is gone`;

/**
 * Compares all streams with their marks, and keeps the marks from then on.
 * Throws `log_regressed` when a stream went back, before anything was changed.
 */
export async function openWatermarks(options: WatermarkOptions): Promise<WatermarkKeeper> {
  const { dataDir, tails, acceptLoss } = options;
  const before = await readMarks(options);
  const fresh = (mark: Watermark | undefined): Known => ({ mark, state: undefined });
  const ends = await endsOf(tails, before.keys(), true);
  const looks = await lookAtAll(tails, ends, (stream) => fresh(before.get(stream)), true);
  const faults = faultsOf(looks);
  if (faults.length > 0 && !acceptLoss) {
    await keepLosses(dataDir, before, looks);
    throw regressed(dataDir, faults.join('; '));
  }
  await accept(options, lossesIn(ends, looks));
  for (const end of ends) {
    if (looks.get(end[0])?.fault === undefined) continue;
    looks.set(end[0], await look(tails, end, fresh(undefined), true));
  }
  const marks = marksOf(looks);
  if (hasMoved(before, marks)) await writeMarks(dataDir, marks);
  return keep(options, looks, marks);
}

/** Where a stream ends as it did, it is not known how many messages before its end are gone too. */
function lossesIn(ends: ReadonlyMap<string, Tail>, looks: ReadonlyMap<string, Look>): Loss[] {
  return [...looks].flatMap(([stream, { mark, fault }]) => {
    if (mark === undefined || fault === undefined) return [];
    const { last } = ends.get(stream) ?? NOTHING;
    return [{ stream, from: last < mark.seq ? last + 1 : null, to: mark.seq, what: fault }];
  });
}

async function accept(options: WatermarkOptions, losses: readonly Loss[]): Promise<void> {
  await recordLosses(options.dataDir, options.identity, losses);
  for (const { what } of losses) options.alarm(`accepted with --accept-loss: ${what}`);
}

/** How the streams end now. A user's bucket that was marked and is not there any more ends at nothing. */
async function endsOf(
  tails: StreamTails,
  marked: Iterable<string>,
  withUsers: boolean,
): Promise<Map<string, Tail>> {
  const named = tails.streams.map(async (stream) => [stream, await tails.tail(stream)] as const);
  const ends = new Map(await Promise.all(named));
  if (!withUsers) return ends;
  for (const stream of marked) if (isUserStream(stream)) ends.set(stream, NOTHING);
  for (const [stream, tail] of await tails.users()) ends.set(stream, tail);
  return ends;
}

/** Nothing of the marks moves but this: which messages the server said it lost. */
async function keepLosses(
  dataDir: string,
  marks: Marks,
  looks: ReadonlyMap<string, Look>,
): Promise<void> {
  const lost = [...looks].flatMap(([stream, { mark }]) =>
    mark?.lost === true ? [[stream, mark] as const] : [],
  );
  const kept = new Map([...marks, ...lost]);
  if (hasMoved(marks, kept)) await writeMarks(dataDir, kept);
}

async function lookAtAll(
  tails: StreamTails,
  ends: ReadonlyMap<string, Tail>,
  known: (stream: string) => Known,
  suspect: boolean,
): Promise<Map<string, Look>> {
  const looks = [...ends].map(
    async (end) => [end[0], await look(tails, end, known(end[0]), suspect)] as const,
  );
  return new Map(await Promise.all(looks));
}

const faultsOf = (looks: ReadonlyMap<string, Look>): string[] =>
  [...looks.values()].flatMap(({ fault }) => (fault === undefined ? [] : [fault]));

const marksOf = (looks: ReadonlyMap<string, Look>): Marks =>
  new Map([...looks].flatMap(([stream, { mark }]) => (mark === undefined ? [] : [[stream, mark]])));

const hasMoved = (before: Marks, after: Marks): boolean =>
  before.size !== after.size || [...after].some(([stream, mark]) => before.get(stream) !== mark);

function keep(
  { dataDir, tails, link, alarm, onRegressed }: WatermarkOptions,
  first: ReadonlyMap<string, Look>,
  firstMarks: Marks,
): WatermarkKeeper {
  let looks = first;
  let written = firstMarks;
  let suspect = false;
  let ended = false;
  let told: string | undefined;
  let timer: NodeJS.Timeout | undefined;
  let rounds = Promise.resolve();

  async function round(withUsers: boolean): Promise<void> {
    const suspected = suspect;
    suspect = false;
    try {
      const known = (stream: string): Known => looks.get(stream) ?? NEVER_SEEN;
      const ends = await endsOf(tails, written.keys(), suspected || withUsers);
      const seen = new Map([...looks, ...(await lookAtAll(tails, ends, known, suspected))]);
      if (ended) return;
      // The link broke meanwhile: who answered may be a server that came back with less.
      if (suspect && !suspected) return;
      const faults = faultsOf(seen);
      if (faults.length > 0) {
        end();
        await keepLosses(dataDir, written, seen).catch(tell);
        onRegressed(regressed(dataDir, faults.join('; ')));
        return;
      }
      const marks = marksOf(seen);
      if (hasMoved(written, marks)) await writeMarks(dataDir, marks);
      looks = seen;
      written = marks;
      told = undefined;
    } catch (thrown) {
      suspect ||= suspected;
      if (!ended) tell(ensureError(thrown));
    }
  }

  /** Once for each kind of trouble; a link that is down is told by others. */
  function tell(error: Error): void {
    if (told === error.message || (error instanceof HeroError && error.code === 'unreachable')) {
      return;
    }
    told = error.message;
    alarm(`the watermarks could not be kept: ${error.message}`);
  }

  function refresh(withUsers = true): Promise<void> {
    rounds = rounds.then(async () => (ended ? undefined : round(withUsers)));
    return rounds;
  }

  /** The more users there are, the more seldom they are all looked at: what a round costs stays the same. */
  let roundsToUsers = 0;
  const next = (): void => {
    if (ended) return;
    const withUsers = roundsToUsers-- <= 0;
    if (withUsers) roundsToUsers = Math.floor(looks.size / USERS_A_ROUND);
    timer = setTimeout(() => void refresh(withUsers).then(next), ROUND_MS).unref();
  };
  const watch = link.onChange(({ up }) => {
    suspect = true;
    if (up) void refresh();
  });
  function end(): void {
    ended = true;
    clearTimeout(timer);
    watch.stop();
  }

  next();
  return {
    refresh: () => refresh(),
    stop: async () => {
      clearTimeout(timer);
      // Without a link there is nothing to see; a round that waits for it ends by itself and leaves no mark.
      if (link.state().up) await refresh();
      end();
    },
  };
}

const NEVER_SEEN: Known = { mark: undefined, state: undefined };

function regressed(dataDir: string, what: string, cause?: unknown): HeroError {
  const store = join(dataDir, 'nats', 'jetstream');
  return new HeroError('log_regressed', what, {
    fix: `Put a copy of ${store} in place that holds these sequences, or go on without what is lost: \`herobus up --accept-loss\`, and start the other nodes again.`,
    ...(cause === undefined ? {} : { cause }),
  });
}

/** No file: a new folder, or one of a version that kept none; what the streams hold is then what counts. */
async function readMarks(options: WatermarkOptions): Promise<Marks> {
  const { dataDir, acceptLoss } = options;
  const path = watermarkPath(dataDir);
  const text = await readIfThere(path);
  if (text === undefined) return new Map();
  try {
    return new Map(Object.entries(WatermarkFile.parse(JSON.parse(text)).streams));
  } catch (cause) {
    const what = `${path} is damaged, so that nobody can say whether a stream went back`;
    if (!acceptLoss) throw regressed(dataDir, what, cause);
    await accept(options, [{ stream: null, from: null, to: null, what }]);
    return new Map();
  }
}

async function writeMarks(dataDir: string, marks: Marks): Promise<void> {
  const file: WatermarkFile = { v: 1, streams: Object.fromEntries(marks) };
  await writeAtomic(watermarkPath(dataDir), `${JSON.stringify(file, null, 2)}\n`, FILE_MODE);
}
