/**
 * The runners of this node as their beats show them, and their leases.
 *
 * A runner is alive while it beats; its incarnation tells a restart. Answering a beat is what renews its
 * lease: a supervisor that cannot answer lets its runners stop by themselves.
 */
import {
  BEAT_MS,
  LEASE_MS,
  type LeaseReply,
  type RosterNode,
  type RunnerBeat,
  type RunnerReport,
} from '../schemas/node.ts';
import { LOST_AFTER_MS, type NodeView } from './liveness.ts';

type Known = { report: RunnerReport; heardMs: number };

/** Incarnations of one runner that are remembered. */
const PAST_MAX = 16;

export class RunnerRegistry {
  readonly #runners = new Map<string, Known>();
  /** By runner: its incarnations so far, the last one last. One that was followed does not come back. */
  readonly #past = new Map<string, string[]>();
  readonly #now: () => number;
  #listeningSinceMs: number;

  /** `now` is monotonic, in ms. */
  constructor(now: () => number = () => performance.now()) {
    this.#now = now;
    this.#listeningSinceMs = now();
  }

  /** The link was down: silence of the time before says nothing. */
  restartListening(): void {
    this.#listeningSinceMs = this.#now();
  }

  /** Takes a beat in; true when runner or incarnation are new here. */
  take(beat: RunnerBeat): boolean {
    const { report } = beat;
    const known = this.#runners.get(report.runner);
    // An older incarnation that still speaks is on its way out; its lease is not renewed.
    if (known !== undefined && known.report.inc > report.inc) return false;
    // A beat that was held up may come when its runner is long gone, whatever its clock was. One that was
    // only silent may speak again: it may never have had an answer, and so no lease to lose.
    const past = this.#past.get(report.runner) ?? [];
    if (past.slice(0, -1).includes(report.inc)) return false;
    if (past.at(-1) !== report.inc) {
      this.#past.set(report.runner, [...past, report.inc].slice(-PAST_MAX));
    }
    this.#runners.set(report.runner, { report, heardMs: this.#now() });
    return known?.report.inc !== report.inc;
  }

  isCurrent({ report }: RunnerBeat): boolean {
    return this.#runners.get(report.runner)?.report.inc === report.inc;
  }

  lease(drain: boolean, contexts: readonly string[]): LeaseReply {
    return { v: 1, lease_ms: LEASE_MS, drain, contexts: [...contexts] };
  }

  /** Runners heard of within their lease; the others are forgotten. */
  reports(): RunnerReport[] {
    const nowMs = this.#now();
    for (const [name, { heardMs }] of this.#runners) {
      if (nowMs - heardMs > LEASE_MS + BEAT_MS) this.#runners.delete(name);
    }
    return [...this.#runners.values()].map(({ report }) => report);
  }

  /** Has every runner that is left told, since that moment, that nothing runs in it? */
  isIdleSince(sinceMs: number): boolean {
    this.reports();
    return [...this.#runners.values()].every(
      ({ report, heardMs }) => heardMs >= sinceMs && report.busy === 0,
    );
  }

  /** This node at first hand. `busNowMs` is bus time, since claims carry the stream's. */
  view(state: RosterNode['state'], busNowMs: number): NodeView {
    const listening = this.#now() - this.#listeningSinceMs > LOST_AFTER_MS;
    const asOfMs = listening ? busNowMs : 0;
    return { liveness: 'live', state, runners: this.reports(), atMs: busNowMs, asOfMs };
  }
}
