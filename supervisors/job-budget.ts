/**
 * How many jobs the scripts of this node may have open before they wait at a spawn.
 *
 * A job that is derived and has not ended costs memory here, whatever it waits for. So a script that spawns
 * more goes on as its earlier jobs end: the fewer, the more the scripts of the node have open together, but
 * every one may have some. A script cannot tell (derive.ts D6).
 */

/** Of one script, while the node has few. */
export const OPEN_JOBS_MAX = 20_000;
/** Of one script in any case. */
export const OPEN_JOBS_MIN = 500;
/** Of all scripts of the node, about. */
const OPEN_JOBS_OF_NODE = 100_000;
/** One script takes no more than this part of what is left. */
const SHARE = 4;

export class JobBudget {
  #open = 0;

  /** Open jobs became more, or fewer. */
  changed(by: number): void {
    this.#open += by;
  }

  /** So many jobs a script may have open now. */
  allowance(): number {
    const left = Math.floor((OPEN_JOBS_OF_NODE - this.#open) / SHARE);
    return Math.min(OPEN_JOBS_MAX, Math.max(OPEN_JOBS_MIN, left));
  }
}
