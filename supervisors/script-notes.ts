/**
 * What a script logs, on its way to `hb.logs`: in order, in messages of bounded size, stored before its end.
 *
 * A flow does not hang because its log does: what the bus does not take within `PATIENCE_MS` of the end is
 * given up. Which notes are news is the derivation's business (`actors/flow/derive.ts`).
 */
import { setTimeout as delay } from 'node:timers/promises';
import type { Bus } from '../bus/bus.ts';
import { subjects } from '../bus/subjects.ts';
import type { FlowRef } from '../schemas/ids.ts';
import type { LogLines } from '../schemas/job.ts';

const MESSAGE_LINES_MAX = 200;
const MESSAGE_CHARACTERS_MAX = 128 * 1024;
const PATIENCE_MS = 5_000;

type Noted = { stream: 'log' | 'progress'; text: string };

export class ScriptNotes {
  readonly #bus: Bus;
  readonly #ref: FlowRef;
  #tail: Promise<void> = Promise.resolve();

  constructor(bus: Bus, ref: FlowRef) {
    this.#bus = bus;
    this.#ref = ref;
  }

  publish(notes: readonly Noted[]): void {
    const at = Math.round(this.#bus.now());
    for (const lines of messages(notes)) {
      const body: LogLines = {
        v: 1,
        inc: this.#bus.incarnation,
        lines: lines.map(({ stream, text }) => ({ stream, line: text, at })),
      };
      this.#tail = this.#tail.then(async () => {
        // The bus has tried for long: the script's decisions matter more than its words.
        await this.#bus.queues.publish(subjects.scriptLog(this.#ref), body).catch(() => undefined);
      });
    }
  }

  /** When all that was published is stored, or has had its time. */
  async stored(): Promise<void> {
    await Promise.race([this.#tail, delay(PATIENCE_MS, undefined, { ref: false })]);
  }
}

function* messages(notes: readonly Noted[]): Iterable<Noted[]> {
  let lines: Noted[] = [];
  let size = 0;
  for (const note of notes) {
    if (lines.length === MESSAGE_LINES_MAX || size + note.text.length > MESSAGE_CHARACTERS_MAX) {
      yield lines;
      lines = [];
      size = 0;
    }
    lines.push(note);
    size += note.text.length;
  }
  if (lines.length > 0) yield lines;
}
