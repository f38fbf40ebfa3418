/**
 * How many jobs the scripts of this node may have open before they wait at a spawn.
 *
 * A job that is derived and has not ended costs memory here, whatever it waits for. So a script that spawns
 * more goes on as its earlier jobs end: the fewer, the more the scripts of the node have open together, but
 * every one may have some. A script cannot tell (derive.ts D6).
 */

/** Of one script, while the node has few. */
export const OPEN_JOBS_MAX = 12_000;
/** Of one script in any case. */
export const OPEN_JOBS_MIN = 250;
/** Of all scripts of the node, about. */
const OPEN_JOBS_OF_NODE = 50_000;
/** One script takes no more than this part of what is left. */
const SHARE = 4;

export class JobBudget {
  #open = 0;
  readonly #openOf = new Map<string, number>();

  /** Open jobs of a context became more, or fewer. */
  changed(context: string, by: number): void {
    this.#open += by;
    const open = (this.#openOf.get(context) ?? 0) + by;
    if (open > 0) this.#openOf.set(context, open);
    else this.#openOf.delete(context);
  }

  /** How many more jobs a context may have open by its quota. */
  roomOf(context: string, quota: number | null): number {
    return quota === null ? Number.MAX_SAFE_INTEGER : quota - (this.#openOf.get(context) ?? 0);
  }

  /** So many jobs a script may have open now. */
  allowance(): number {
    const left = Math.floor((OPEN_JOBS_OF_NODE - this.#open) / SHARE);
    return Math.min(OPEN_JOBS_MAX, Math.max(OPEN_JOBS_MIN, left));
  }
}
