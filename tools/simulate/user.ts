/** The user of a simulation: publishes deployments and commands, and tries again until he has the receipt. */
import type { Random } from '../../bus/simulated/random.ts';
import type { Scheduler } from '../../bus/simulated/scheduler.ts';
import { flowIdOf, seal } from '../../bus/envelope.ts';
import { identityFromSeed } from '../../bus/identity.ts';
import { subjects } from '../../bus/subjects.ts';
import { COMMAND_PAYLOAD_TYPE, type CommandVerb } from '../../schemas/command.ts';
import { DEPLOY_PAYLOAD_TYPE } from '../../schemas/deployment.ts';
import { makeScript } from './flows.ts';
import type { Submitted } from './invariants.ts';
import { EPOCH_MS } from './time.ts';
import type { World } from './world.ts';

export type UserOptions = { world: World; random: Random; scheduler: Scheduler; flows: number };

const AGAIN_MS = 700;
const LIFETIME_MS = 23 * 3600 * 1000;
/** The stream's clock may be behind the user's. */
const EARLIER_MS = 60_000;
const GRANTS = ['process', 'kv:read', 'kv:write'];

export class User {
  readonly submitted: Submitted[] = [];
  readonly #options: UserOptions;
  #pending = 0;

  constructor(options: UserOptions) {
    this.#options = options;
  }

  /** All that was to be published has been, and has its receipt. */
  get isDone(): boolean {
    return this.#pending === 0 && this.submitted.length === this.#options.flows;
  }

  schedule(fromMs: number, untilMs: number): void {
    const { random, scheduler, flows } = this.#options;
    for (let i = 0; i < flows; i++) {
      scheduler.at(random.between(fromMs, untilMs), undefined, () => this.#deploy());
    }
  }

  #deploy(): void {
    const { world, random, scheduler } = this.#options;
    const script = makeScript(random);
    const invalid = random.chance(0.05);
    const payload = this.#payload({
      script: script.source,
      args: {},
      grants: GRANTS,
      on: null,
    });
    const signer = invalid ? identityFromSeed(random.bytes(32)) : world.user;
    const bytes = seal(payload, DEPLOY_PAYLOAD_TYPE, [signer]);
    const flow = flowIdOf(payload);
    const submitted: Submitted = { flow, script, invalid, accepted: false, commands: [] };
    this.submitted.push(submitted);
    this.#publish(bytes, () => {
      submitted.accepted = true;
    });
    // The same bytes twice are one flow.
    if (random.chance(0.1))
      scheduler.after(random.between(1, 5000), undefined, () => this.#publish(bytes));
    if (!invalid) this.#commands(submitted);
  }

  #commands({ flow, commands }: Submitted): void {
    const { random, scheduler } = this.#options;
    const soon = (verb: CommandVerb, afterMs: number) => {
      // A flow that has ended needs no resume.
      const counts = verb === 'resume' ? 0 : 1;
      this.#pending += counts;
      scheduler.after(afterMs, undefined, () => {
        this.#pending -= counts;
        // Known from when it is sent: it may act without a receipt.
        commands.push(verb);
        this.#publish(this.#command(flow, verb));
      });
    };
    const draw = random.float();
    if (draw < 0.1) soon('cancel', random.between(0, 9000));
    else if (draw < 0.2) {
      const pausedMs = random.between(0, 5000);
      soon('pause', pausedMs);
      for (const afterMs of [9000, 40_000, 70_000]) soon('resume', pausedMs + afterMs);
    } else if (draw < 0.3) soon('retry', random.between(2000, 15_000));
  }

  #command(flow: string, verb: CommandVerb): Uint8Array {
    const payload = this.#payload({ flow, job: null, verb, reason: null });
    return seal(payload, COMMAND_PAYLOAD_TYPE, [this.#options.world.user]);
  }

  #payload(fields: object): Uint8Array {
    const { world, random, scheduler } = this.#options;
    const nowMs = EPOCH_MS + scheduler.nowMs - EARLIER_MS;
    const head = { v: 1, context: world.context, ...fields };
    const nonce = random.bytes(12).toString('hex');
    const issued_at = new Date(nowMs).toISOString();
    const expires_at = new Date(nowMs + LIFETIME_MS).toISOString();
    return Buffer.from(JSON.stringify({ ...head, nonce, issued_at, expires_at }));
  }

  #publish(bytes: Uint8Array, accepted: () => void = () => undefined): void {
    const { world, scheduler } = this.#options;
    this.#pending++;
    const process = world.slots.find(({ role }) => role === 'client')?.process;
    const attempt = (): void => {
      const { client } = world;
      const again = () => scheduler.after(AGAIN_MS, process, attempt);
      if (client === undefined) return void again();
      client.queues.publishBytes(subjects.deploy(world.context), bytes).then(
        () => {
          this.#pending--;
          accepted();
        },
        () => void again(),
      );
    };
    scheduler.after(0, process, attempt);
  }
}
