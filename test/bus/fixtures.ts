/** Small things several bus tests need: a bus for each kind of principal, entries, waiting for a state. */
import { randomBytes } from 'node:crypto';
import { openNatsBus, type NatsBus } from '../../bus/nats.ts';
import { newIdentity, type Identity } from '../../bus/identity.ts';
import type { FlowRef } from '../../schemas/ids.ts';
import { ReadRequest } from '../../schemas/ledger.ts';
import type { RealBus } from './real-bus.ts';

export const CONTEXT = 'acme';

export function newFlow(context = CONTEXT): FlowRef {
  const letters = 'abcdefghijklmnopqrstuvwxyz234567';
  const flow = [...randomBytes(26)].map((byte) => letters[byte % 32]).join('');
  return { context, flow };
}

export const newIncarnation = () => randomBytes(8).toString('hex');

/** Waits until the condition holds; the deadline is for tests that fail, not a wait of its own. */
export async function until(condition: () => boolean, what: string, deadlineMs = 45_000) {
  const end = performance.now() + deadlineMs;
  while (!condition()) {
    if (performance.now() > end) throw new Error(`never came true: ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
}

export async function controlBus(
  bus: RealBus,
  identity: Identity = newIdentity(),
  server = bus.server.url,
): Promise<NatsBus> {
  const jwt = await bus.issuer.control(identity.principal);
  const ledgerJwt = await bus.issuer.ledgerService(identity.principal);
  const opened = await openNatsBus({
    kind: 'control',
    server,
    identity,
    incarnation: newIncarnation(),
    jwt: () => jwt,
    ledgerJwt: () => ledgerJwt,
  });
  bus.onClose(() => opened.close());
  return opened;
}

export async function nodeBus(
  bus: RealBus,
  identity: Identity = newIdentity(),
  server = bus.server.url,
): Promise<NatsBus> {
  const rights = { contexts: [CONTEXT], classes: ['process', 'sal'] as const };
  const jwt = await bus.issuer.node(identity.principal, rights);
  const opened = await openNatsBus({
    kind: 'node',
    server,
    identity,
    incarnation: newIncarnation(),
    jwt: () => jwt,
  });
  bus.onClose(() => opened.close());
  return opened;
}

/** A ledger that only makes consumers, for whoever asks. */
export function serveConsumers(control: NatsBus): { follows: number } {
  const count = { follows: 0 };
  const answer = async (subject: string, data: Uint8Array, caller: string | undefined) => {
    const body = JSON.parse(Buffer.from(data).toString()) as Record<string, string | number | null>;
    const consumer = `f_${randomBytes(16).toString('hex')}`;
    if (subject.endsWith('.follow')) {
      count.follows++;
      const filters = [`hb.flow.${body['context']}.${body['flow']}.>`];
      const from = typeof body['from'] === 'number' ? body['from'] : null;
      await control.admin.follower({
        stream: 'HB_FLOW',
        consumer,
        filters,
        from,
        inactiveMs: 60_000,
      });
      return { stream: 'HB_FLOW', consumer };
    }
    if (subject === 'hb.ledger.read') return control.admin.readLog(ReadRequest.parse(body));
    const { addressOf } = await import('../../bus/identity.ts');
    const address = addressOf(caller ?? '') ?? '';
    const spec =
      body['queue'] === 'assign'
        ? { stream: 'HB_ASSIGN', consumer: address, filter: `hb.assign.${address}` }
        : {
            stream: `JOBS_${body['context']}`,
            consumer: `${body['class']}_${address}`,
            filter: `hb.jobs.${body['context']}.${body['class']}.${address}`,
          };
    await control.admin.queue(spec);
    return { stream: spec.stream, consumer: spec.consumer };
  };
  control.subscribe('hb.ledger.*', (message) => {
    answer(message.subject, message.data, message.caller).then(
      (ok) => message.reply?.({ ok }),
      (error: Error) => message.reply?.({ error: { code: 'internal', message: error.message } }),
    );
  });
  return count;
}
