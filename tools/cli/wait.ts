/**
 * Waiting for what was published: until the flow ends, is refused, finds no node for long, the bus is gone
 * for long, or the user has seen enough (SIGINT). It decides nothing about the flow: it only watches.
 *
 * W1 a message that is refused ends the wait, also when a flow of the same payload exists: what stands in
 *    the log counts as ours only where it holds our very bytes, or no refusal came in `REFUSAL_WAIT_MS`;
 * W2 a refusal may be missed on the wire: until the log holds our bytes, the ledger is asked for it.
 */
import type { Entry } from '../../bus/bus.ts';
import { subjects } from '../../bus/subjects.ts';
import { type Change, type FlowState, isJobEnded } from '../../actors/flow/fold.ts';
import { type ErrorRecord, failure } from '../../schemas/errors.ts';
import { Refusal } from '../../schemas/flow.ts';
import type { FlowRef } from '../../schemas/ids.ts';
import { LogLines } from '../../schemas/job.ts';
import { followFlow, refusalsOf, whyUnplaced } from './flow-view.ts';
import { say } from './output.ts';
import type { Session } from './session.ts';
import { told } from './narrate.ts';

const REFUSAL_WAIT_MS = 3_000;
const ASK_EVERY_MS = 2_000;
const TICK_MS = 250;
/** A bus that is restarted is back well within this. */
const LINK_DOWN_MAX_MS = 120_000;

export type Outcome =
  | { type: 'ended' }
  | { type: 'refused'; error: ErrorRecord }
  | { type: 'unplaceable'; reason: string }
  | { type: 'unreachable' }
  | { type: 'detached' };

export type Published = {
  /** The message's digest: the last token of its refusal's subject. */
  digest: string;
  /** The message as text, as the log will hold it. */
  text: string;
};

export type WaitOptions = {
  session: Session;
  context: string;
  /** Undefined for bytes that name no flow: they can only be refused. */
  ref: FlowRef | undefined;
  /** Undefined when only watching. */
  published: Published | undefined;
  /** How long it may be without a node before the wait is given up. */
  placeWithinMs: number;
  onChange: (state: FlowState, changes: Change[], entry: Entry) => void;
  /** What the script logs, and how far it says it is. */
  onNotes: (notes: LogLines) => void;
  /** Is what was waited for there? */
  done: (state: FlowState) => boolean;
};

/** Begins to listen at once, so nothing that follows a publish is missed. */
export class Waiting {
  readonly state: FlowState | undefined;
  /** Settles when what the log held at the start has been folded. */
  readonly caughtUp: Promise<void>;
  readonly #options: WaitOptions;
  readonly #outcome = Promise.withResolvers<Outcome>();
  readonly #endings: (() => void)[] = [];
  #publishedAt = Number.POSITIVE_INFINITY;
  #unplacedSince: number | undefined;
  #unplacedReason = 'no node has taken it yet';
  /** The log holds the message that was published. */
  #accepted: boolean;
  #asking = false;
  #askedAt = 0;
  /** Until all that is stored is folded, an end may be one that a retry took back. */
  #current = false;

  constructor(options: WaitOptions) {
    this.#options = options;
    this.#accepted = options.published === undefined;
    let caughtUp: Promise<void> = Promise.resolve();
    const { session, ref, published, onChange, context } = options;
    if (published !== undefined) {
      const refused = session.bus.subscribe(
        subjects.refused(context, published.digest),
        ({ data }) => this.#refusedBy(data),
      );
      this.#endings.push(() => refused.stop());
    }
    if (ref !== undefined) {
      const followed = followFlow(session, ref, (state, changes, entry) => {
        if (envelopeIn(entry) === published?.text) this.#accepted = true;
        onChange(state, changes, entry);
        this.#look(state);
      });
      this.state = followed.state;
      caughtUp = followed.follower.caughtUp.then(() => {
        this.#current = true;
        this.#look(followed.state);
      });
      this.#endings.push(() => followed.follower.stop());
      const notes = session.bus.subscribe(subjects.scriptLog(ref), ({ data }) => {
        const notes = notesIn(data);
        if (notes !== undefined) options.onNotes(notes);
      });
      this.#endings.push(() => notes.stop());
    }
    this.caughtUp = caughtUp;
    const link = session.bus.link.onChange(({ up }) => {
      say(told('bus', up ? 'is back' : 'is away; waiting for it to come back'));
    });
    this.#endings.push(() => link.stop());
    const tick = setInterval(() => this.#tick(), TICK_MS);
    this.#endings.push(() => clearInterval(tick));
    const detach = () => this.#outcome.resolve({ type: 'detached' });
    process.on('SIGINT', detach);
    this.#endings.push(() => void process.off('SIGINT', detach));
  }

  /** The message is on the bus: from now on the bus owes an answer. */
  sent(): void {
    this.#publishedAt = performance.now();
  }

  async outcome(): Promise<Outcome> {
    try {
      return await this.#outcome.promise;
    } finally {
      this.stop();
    }
  }

  stop(): void {
    for (const end of this.#endings.splice(0)) end();
  }

  #refusedBy(data: Uint8Array): void {
    try {
      const { error } = Refusal.parse(JSON.parse(new TextDecoder().decode(data)));
      this.#outcome.resolve({ type: 'refused', error });
    } catch {
      const error = failure('internal', 'it was refused, and the reason cannot be read');
      this.#outcome.resolve({ type: 'refused', error });
    }
  }

  #look(state: FlowState): void {
    if (!this.#current || !this.#options.done(state)) return;
    const waited = performance.now() - this.#publishedAt;
    if (this.#accepted || waited > REFUSAL_WAIT_MS) this.#outcome.resolve({ type: 'ended' });
  }

  #tick(): void {
    const { session } = this.#options;
    const link = session.bus.link.state();
    if (!link.up) {
      this.#unplacedSince = undefined;
      const downMs = performance.now() - link.sinceMs;
      if (downMs > LINK_DOWN_MAX_MS) this.#outcome.resolve({ type: 'unreachable' });
      return;
    }
    if (this.state !== undefined) {
      this.#look(this.state);
      this.#watchPlacing(this.state);
    }
    void this.#askLedger();
  }

  #watchPlacing(state: FlowState): void {
    const { placeWithinMs } = this.#options;
    if (state.deploy === null || !isStuck(state)) {
      this.#unplacedSince = undefined;
      return;
    }
    this.#unplacedSince ??= performance.now();
    const job = state.jobs.find(({ unplaced }) => unplaced !== null);
    if (job?.unplaced) this.#unplacedReason = `job ${job.n} (${job.spec.name}): ${job.unplaced}`;
    if (performance.now() - this.#unplacedSince > placeWithinMs) {
      this.#outcome.resolve({ type: 'unplaceable', reason: this.#unplacedReason });
    }
  }

  /** What the log cannot say: that a message was refused, why a flow has no node. */
  async #askLedger(): Promise<void> {
    const { session, ref, context, published } = this.#options;
    const now = performance.now();
    const due = Math.max(this.#askedAt, Math.min(this.#publishedAt, now)) + ASK_EVERY_MS;
    if (this.#asking || now < due) return;
    this.#asking = true;
    this.#askedAt = now;
    try {
      if (published !== undefined && !this.#accepted && Number.isFinite(this.#publishedAt)) {
        const refusal = (await refusalsOf(session, context, published.digest)).at(-1);
        if (refusal) this.#outcome.resolve({ type: 'refused', error: refusal.error });
      }
      if (ref !== undefined && this.state?.deploy && this.state.term === null) {
        const reason = await whyUnplaced(session, ref);
        if (reason !== null && reason !== this.#unplacedReason) {
          this.#unplacedReason = reason;
          say(told('unplaced', reason));
        }
      }
    } catch {
      // A comfort that failed: the log and the live refusal still tell.
    } finally {
      this.#asking = false;
    }
  }
}

/** The signed message an entry holds, as text: deployments and commands have one. */
function envelopeIn({ lane, body }: Entry): string | undefined {
  if (lane !== 'main' || body === null || typeof body !== 'object') return undefined;
  return 'envelope' in body && typeof body.envelope === 'string' ? body.envelope : undefined;
}

/** No node for the flow itself, or for every job that is left. */
function isStuck({ term, end, jobs }: FlowState): boolean {
  if (end !== null) return false;
  if (term === null) return true;
  const open = jobs.filter((job) => !isJobEnded(job));
  return (
    open.some(({ status, unplaced }) => status === 'unplaced' && unplaced !== null) &&
    open.every(({ status }) => status === 'unplaced' || status === 'waiting')
  );
}

/** Somebody else's message on that subject is no note of the script. */
function notesIn(data: Uint8Array): LogLines | undefined {
  try {
    return LogLines.parse(JSON.parse(new TextDecoder().decode(data)));
  } catch {
    return undefined;
  }
}
