/**
 * Bus time: the stream's clock as this process last saw it, carried on by the local monotonic clock.
 *
 * A timestamp that arrives was taken a little earlier, so the best estimate of the difference between the
 * two clocks is the largest one of late. It may shrink when the server's clock is set back. What `now`
 * gives never goes back and never stands still: while it is ahead it goes on at half speed until the
 * server's clock has caught up, so that a deadline armed in between is not late by much.
 */
const WINDOW_MS = 60_000;

export type BusClock = {
  /** Takes in a server's timestamp (epoch ms) as it arrives. */
  saw(at: number): void;
  now(): number;
};

export function makeClock(monotonicMs: () => number, wallMs: () => number): BusClock {
  let seen = false;
  let windowStart = monotonicMs();
  let previous = Number.NEGATIVE_INFINITY;
  let current = Number.NEGATIVE_INFINITY;
  let last = Number.NEGATIVE_INFINITY;
  let lastMono = monotonicMs();
  return {
    saw: (at) => {
      const mono = monotonicMs();
      if (mono - windowStart > WINDOW_MS) {
        previous = mono - windowStart > 2 * WINDOW_MS ? Number.NEGATIVE_INFINITY : current;
        current = Number.NEGATIVE_INFINITY;
        windowStart = mono;
      }
      current = Math.max(current, at - mono);
      seen = true;
    },
    now: () => {
      const difference = Math.max(previous, current);
      // Before the first sight of the server's clock the local one stands in, without holding it later.
      if (!seen) return Math.floor(wallMs());
      const mono = monotonicMs();
      last = Math.max(last + (mono - lastMono) / 2, mono + difference);
      lastMono = mono;
      return Math.floor(last);
    },
  };
}
