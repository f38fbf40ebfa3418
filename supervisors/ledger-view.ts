/**
 * What a supervisor must know of the ledger: the contexts it serves, their records, and who the coords are.
 *
 * Asked of the ledger and kept for a short while; while the control plane is away, what was known goes on.
 */
import { z } from 'zod';
import type { Bus } from '../bus/bus.ts';
import { subjects } from '../bus/subjects.ts';
import { ensureError, HeroError } from '../schemas/errors.ts';
import { Address } from '../schemas/ids.ts';
import { ContextRecord } from '../schemas/ledger.ts';

const FRESH_MS = 10_000;

const Overview = z.object({
  contexts: z.array(z.union([z.string(), z.object({ context: z.string() })])),
  coords: z.array(Address),
});

export class LedgerView {
  readonly #bus: Bus;
  readonly #records = new Map<string, { record: ContextRecord; askedMs: number }>();
  #contexts: string[] = [];
  #coords: ReadonlySet<string> = new Set();

  constructor(bus: Bus) {
    this.#bus = bus;
  }

  contexts(): readonly string[] {
    return this.#contexts;
  }

  isCoord(address: string): boolean {
    return this.#coords.has(address);
  }

  /** Asks for contexts and coords again; throws when the ledger cannot be reached. */
  async refresh(): Promise<void> {
    const { contexts, coords } = await this.#ask('contexts', {}, Overview);
    this.#contexts = contexts.map((each) => (typeof each === 'string' ? each : each.context));
    this.#coords = new Set(coords);
  }

  /** The record of a context, at most 10 s old while the ledger answers. */
  async context(context: string): Promise<ContextRecord> {
    const known = this.#records.get(context);
    const nowMs = performance.now();
    if (known !== undefined && nowMs - known.askedMs < FRESH_MS) return known.record;
    try {
      const record = await this.#ask('context', { context }, ContextRecord);
      this.#records.set(context, { record, askedMs: nowMs });
      return record;
    } catch (error) {
      const unreachable = error instanceof HeroError && error.code === 'unreachable';
      if (known !== undefined && unreachable) return known.record;
      throw error;
    }
  }

  async #ask<T>(verb: string, body: object, schema: z.ZodType<T>): Promise<T> {
    const reply = (await this.#bus.request(subjects.ledger(verb), body)) as {
      ok?: unknown;
      error?: { code: string; message: string };
    };
    if (reply.error !== undefined) {
      throw new HeroError('not_allowed', `the ledger refused ${verb}: ${reply.error.message}`);
    }
    const parsed = schema.safeParse(reply.ok);
    if (parsed.success) return parsed.data;
    throw new HeroError('internal', `the ledger's answer to ${verb} cannot be read`, {
      cause: ensureError(parsed.error),
    });
  }
}
