/**
 * The runner's heartbeat: a request to the node's supervisor every second, whose answer is the lease.
 *
 * Beats do not wait for each other: each answer counts from the moment its own beat was sent, so a slow
 * answer costs its slowness and nothing more. A beat that fails is followed by the next one.
 */
import type { Bus } from '../bus/bus.ts';
import { subjects } from '../bus/subjects.ts';
import { BEAT_MS, LeaseReply, type RunnerBeat } from '../schemas/node.ts';

/** As long as an answer could still renew something. */
const ANSWER_WAIT_MS = 3000;

export type Beats = {
  bus: Bus;
  beat: (seq: number) => RunnerBeat;
  /** `sentMs` is monotonic. */
  onLease: (sentMs: number, reply: LeaseReply) => void;
};

/** Beats until the returned function is called. */
export function startBeating({ bus, beat, onLease }: Beats): () => void {
  let seq = 0;
  let stopped = false;
  const send = async (): Promise<void> => {
    const sentMs = performance.now();
    try {
      const answer = await bus.request(subjects.beat(bus.address), beat(seq++), ANSWER_WAIT_MS);
      const reply = LeaseReply.safeParse(answer).data;
      if (!stopped && reply !== undefined) onLease(sentMs, reply);
    } catch {
      // Nobody answered: the lease clock knows what that means.
    }
  };
  const timer = setInterval(() => void send(), BEAT_MS);
  void send();
  return () => {
    stopped = true;
    clearInterval(timer);
  };
}
