/**
 * The host: binds pure machines to a process and to the bus.
 *
 * A machine comes here with its effects already provided (`x.effects.ts`). The host starts it under a
 * name, answers `hb.at.<addr>.<name>.describe` with its state, passes its failure on to whoever supervises
 * it, and stops it. Timers are not here: deadlines are data of the machines, kept by `actors/deadlines.ts`.
 */
import { type Actor, type AnyStateMachine, createActor, type InputFrom } from 'xstate';
import type { Bus, Subscription } from '../bus/bus.ts';
import { subjects } from '../bus/subjects.ts';
import { ensureError } from '../schemas/errors.ts';

export type HostOptions = {
  /** Told when a machine fails of itself (a fault of ours): the supervisor of the process decides. */
  onFault: (name: string, error: Error) => void;
};

export class Host {
  readonly #actors = new Map<string, Actor<AnyStateMachine>>();
  readonly #options: HostOptions;
  #describing: Subscription | undefined;

  constructor(options: HostOptions) {
    this.#options = options;
  }

  /** Starts a machine under a name that is unique in this process. */
  start<M extends AnyStateMachine>(name: string, machine: M, input: InputFrom<M>): Actor<M> {
    if (this.#actors.has(name)) throw new Error(`an actor named ${name} runs already`);
    const actor = createActor(machine, { id: name, input } as never) as Actor<M>;
    this.#actors.set(name, actor as unknown as Actor<AnyStateMachine>);
    actor.subscribe({
      error: (error) => {
        this.#actors.delete(name);
        this.#options.onFault(name, ensureError(error));
      },
      complete: () => this.#actors.delete(name),
    });
    actor.start();
    return actor;
  }

  get(name: string): Actor<AnyStateMachine> | undefined {
    return this.#actors.get(name);
  }

  names(): string[] {
    return [...this.#actors.keys()];
  }

  stop(name: string): void {
    this.#actors.get(name)?.stop();
    this.#actors.delete(name);
  }

  /** Makes every actor of this process answer `describe` on the bus. */
  describeOn(bus: Bus): void {
    this.#describing = bus.subscribe(subjects.at(bus.address, '*', 'describe'), (message) => {
      const name = message.subject.split('.')[3] ?? '';
      const actor = this.#actors.get(name);
      if (actor === undefined || message.reply === undefined) return;
      const { status, value } = actor.getSnapshot();
      message.reply({ ok: { actor: name, status, value } });
    });
  }

  stopAll(): void {
    this.#describing?.stop();
    for (const name of this.names().reverse()) this.stop(name);
  }
}
