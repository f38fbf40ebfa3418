/** A moment on the monotonic clock (`performance.now()`), however far away. */

/** Node's timers wrap beyond this. */
const TIMER_MAX_MS = 2 ** 31 - 1;

/** Calls `onDue` once, at the moment or late, never early; the returned function takes it back. */
export function atMoment(momentMs: number, onDue: () => void): () => void {
  let timer: NodeJS.Timeout;
  const arm = (): void => {
    const leftMs = momentMs - performance.now();
    timer = setTimeout(
      () => {
        if (performance.now() >= momentMs) onDue();
        else arm();
      },
      Math.max(0, Math.min(TIMER_MAX_MS, Math.ceil(leftMs))),
    );
  };
  arm();
  return () => clearTimeout(timer);
}
