/**
 * The quotas of contexts that are kept before a flow exists: how many are open, how many come in a minute.
 *
 * A flow counts from the moment its deployment is let in, until its end has been seen. What is counted is
 * what this coord has seen: of several coords each may let in what the others have not told yet.
 */
import { type ErrorRecord, failure } from '../../schemas/errors.ts';
import type { FlowRef } from '../../schemas/ids.ts';
import type { ContextRecord } from '../../schemas/ledger.ts';

const MINUTE_MS = 60_000;

export class QuotaDesk {
  /** By context: flows that have not ended, and when deployments of the last minute were taken. */
  readonly #open = new Map<string, Set<string>>();
  readonly #taken = new Map<string, number[]>();

  /** A flow that is open, whoever let it in. */
  opened({ context, flow }: FlowRef): void {
    const flows = this.#open.get(context);
    if (flows === undefined) this.#open.set(context, new Set([flow]));
    else flows.add(flow);
  }

  closed({ context, flow }: FlowRef): void {
    this.#open.get(context)?.delete(flow);
  }

  isOpen({ context, flow }: FlowRef): boolean {
    return this.#open.get(context)?.has(flow) === true;
  }

  /** Lets a new flow in that the bus took at `atMs`, and counts it; or says which quota is in its way. */
  letIn(ref: FlowRef, { context, quotas }: ContextRecord, atMs: number): ErrorRecord | undefined {
    const open = this.#open.get(context)?.size ?? 0;
    if (quotas.open_flows !== null && open >= quotas.open_flows) {
      return exceeded(
        `${context} has ${open} flows that have not ended; its quota open_flows is ${quotas.open_flows}`,
        'wait until one ends, or cancel one (`herobus flows`)',
        `herobus context quota ${context} --open-flows N`,
      );
    }
    const perMinute = quotas.deploys_per_minute;
    if (perMinute !== null) {
      const taken = (this.#taken.get(context) ?? []).filter((at) => at > atMs - MINUTE_MS);
      if (taken.length >= perMinute) {
        const waitS = Math.ceil(((taken[0] ?? atMs) + MINUTE_MS - atMs) / 1000);
        return exceeded(
          `${context} has deployed ${taken.length} times within a minute; its quota deploys_per_minute is ${perMinute}`,
          `deploy again in ${waitS} s`,
          `herobus context quota ${context} --deploys-per-minute N`,
        );
      }
      this.#taken.set(context, [...taken, atMs]);
    }
    this.opened(ref);
    return undefined;
  }
}

const exceeded = (what: string, wait: string, command: string): ErrorRecord =>
  failure('quota', `${what}: ${wait}, or ask an admin of the ledger for more (\`${command}\`)`);
