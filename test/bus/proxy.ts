/**
 * A TCP proxy before the server that loses what it is told to lose: bytes of one direction, then the
 * connection. What a client sees of a cut cable, on demand.
 */
import { once } from 'node:events';
import { connect as tcpConnect, createServer, type AddressInfo, type Socket } from 'node:net';

export type Proxy = {
  url: string;
  /** From now on what the server says does not arrive. */
  muteServer(): void;
  /** From now on what the client says does not arrive. */
  muteClient(): void;
  /** Ends all connections and lets new ones through unharmed. */
  cut(): void;
  close(): Promise<void>;
};

export async function startProxy(target: string): Promise<Proxy> {
  const to = new URL(target);
  const sockets = new Set<Socket>();
  let muted: 'server' | 'client' | undefined;
  const server = createServer((client) => {
    const upstream = tcpConnect(Number(to.port), to.hostname);
    for (const socket of [client, upstream]) {
      sockets.add(socket);
      socket.on('error', () => socket.destroy());
      socket.on('close', () => {
        sockets.delete(socket);
        client.destroy();
        upstream.destroy();
      });
    }
    client.on('data', (data) => muted !== 'client' && upstream.write(data));
    upstream.on('data', (data) => muted !== 'server' && client.write(data));
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const cut = () => {
    muted = undefined;
    for (const socket of sockets) socket.destroy();
  };
  return {
    url: `nats://127.0.0.1:${(server.address() as AddressInfo).port}`,
    muteServer: () => (muted = 'server'),
    muteClient: () => (muted = 'client'),
    cut,
    close: async () => {
      cut();
      server.close();
      await once(server, 'close');
    },
  };
}
