/**
 * What has to exist on the bus before a record is of use: a context's streams, a user's bucket.
 *
 * Made after the record and before the answer, each once for a start of the ledger; a failure is the
 * request's error, and the same request again makes it good.
 */
import type { Address, ContextName } from '../../schemas/ids.ts';

export type Provision = {
  context: (context: ContextName) => Promise<void>;
  user: (address: Address) => Promise<void>;
};

const NOTHING: Provision = { context: async () => undefined, user: async () => undefined };

export class Provisions implements Provision {
  readonly #make: Provision;
  readonly #made = new Map<string, Promise<void>>();

  constructor(make: Provision = NOTHING) {
    this.#make = make;
  }

  context(context: ContextName): Promise<void> {
    return this.#once(`context ${context}`, () => this.#make.context(context));
  }

  user(address: Address): Promise<void> {
    return this.#once(`user ${address}`, () => this.#make.user(address));
  }

  #once(what: string, make: () => Promise<void>): Promise<void> {
    const known = this.#made.get(what);
    if (known !== undefined) return known;
    const making = make().catch((error: unknown) => {
      this.#made.delete(what);
      throw error;
    });
    this.#made.set(what, making);
    return making;
  }
}
