/**
 * What of a flow wants a supervisor's attention, kept as the log is folded, so that a flow of many jobs is
 * not searched at every fact. Derived from the fold alone; rebuilt by replaying the same changes.
 */
import type { Change, FlowState } from './fold.ts';

export class Worklist {
  /** Jobs in no live pack: new, waiting, unplaced, to be retried, or in a void pack. */
  readonly loose = new Set<number>();
  /** Queued packs that hold a job which has ended: nobody may begin it, so the pack must be void-ed. */
  readonly tainted = new Set<string>();
  /** Jobs that have not ended; packs nobody has claimed; claimed packs that may still hold open jobs. */
  readonly open = new Set<number>();
  readonly queued = new Set<string>();
  readonly #claimed = new Set<string>();
  /** Jobs that ended since `takeEnded` was last called, in log order: what the script may wait for. */
  #ended: number[] = [];

  takeEnded(): number[] {
    return this.#ended.splice(0);
  }

  note(state: FlowState, changes: readonly Change[]): void {
    for (const change of changes) {
      switch (change.type) {
        case 'job':
          this.#noteJob(state, change.n);
          break;
        case 'jobEnded':
          this.#noteEnd(state, change.n);
          break;
        case 'packClaimed':
          this.tainted.delete(change.pack);
          this.queued.delete(change.pack);
          this.#claimed.add(change.pack);
          break;
        case 'packVoid':
          this.queued.delete(change.pack);
          this.tainted.delete(change.pack);
          for (const n of state.packs[change.pack]?.jobs ?? []) this.#noteJob(state, n);
          break;
        default:
      }
    }
  }

  #noteEnd(state: FlowState, n: number): void {
    this.#ended.push(n);
    this.open.delete(n);
    this.loose.delete(n);
    const pack = state.packs[state.jobs[n]?.pack ?? ''];
    if (pack?.state === 'queued') this.tainted.add(pack.pack);
  }

  #noteJob(state: FlowState, n: number): void {
    const job = state.jobs[n];
    if (job === undefined || job.endedSeq !== null) return;
    this.open.add(n);
    const pack = job.pack === null ? undefined : state.packs[job.pack];
    const loose = pack === undefined || job.retryAt !== null || pack.state === 'void';
    if (loose) this.loose.add(n);
    else {
      this.loose.delete(n);
      if (pack.state === 'queued') this.queued.add(pack.pack);
    }
  }

  /** Claimed packs with open jobs; those whose jobs have all ended or moved on are dropped on the way. */
  *claimedPacks(state: FlowState): Iterable<FlowState['packs'][string]> {
    for (const id of this.#claimed) {
      const pack = state.packs[id];
      const live =
        pack !== undefined &&
        pack.jobs.some((n) => {
          const job = state.jobs[n];
          return job?.pack === id && job.endedSeq === null && job.retryAt === null;
        });
      if (live) yield pack;
      else this.#claimed.delete(id);
    }
  }

  *queuedPacks(state: FlowState): Iterable<FlowState['packs'][string]> {
    for (const id of this.queued) {
      const pack = state.packs[id];
      if (pack?.state === 'queued') yield pack;
    }
  }
}
