/**
 * The bus over a simulated server: everything of bus/bus.ts as it is in `bus/nats.ts`, on connections whose
 * other end is in this process and in virtual time. What appends, follows, pulls and retries is the real
 * thing; only what lies beyond the connection is made up.
 */
import type { Incarnation } from '../../schemas/ids.ts';
import { inboxPrefix, LEDGER_INBOX } from '../credentials.ts';
import type { Identity } from '../identity.ts';
import { busOver, type NatsBus } from '../nats.ts';
import { type Client, SimulatedConnection, type WireOptions } from './connection.ts';

export type SimulatedBusOptions = {
  wire: WireOptions;
  client: Client;
  kind: 'control' | 'node' | 'user';
  identity: Identity;
  incarnation: Incarnation;
  /** Told of the connections it is made of, so that they can be cut. */
  onConnection: (connection: SimulatedConnection) => void;
};

export async function openSimulatedBus(options: SimulatedBusOptions): Promise<NatsBus> {
  const { wire, client, kind, identity, incarnation, onConnection } = options;
  const open = (prefix: string, isLedger: boolean) => {
    const as = { principal: identity.principal, inboxPrefix: prefix, isLedger };
    const connection = new SimulatedConnection(wire, client, as);
    onConnection(connection);
    return connection.asConnection;
  };
  return busOver({
    kind,
    identity,
    incarnation,
    main: open(`${inboxPrefix(kind, identity.principal)}.${incarnation}`, false),
    ledger: kind === 'control' ? open(`${LEDGER_INBOX}.${incarnation}`, true) : undefined,
  });
}
