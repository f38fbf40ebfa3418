/**
 * A process that runs an embedded server and tells its parent, so that a test can kill it:
 * `server-child.ts DATA`. Prints `{url, pid}` when the server answers, or `{error}`.
 */
import { makeTrust, openKeys } from '../../bus/credentials.ts';
import { startServer } from '../../bus/server.ts';

const dataDir = process.argv[2] ?? '';
const alarms: string[] = [];
const alarm = (message: string) => void alarms.push(message);
try {
  const trust = await makeTrust(await openKeys(dataDir));
  const server = await startServer({ dataDir, trust, durability: 'fsync', alarm });
  process.on('SIGTERM', () => {
    void server.stop().then(() => process.exit(0));
  });
  setInterval(() => undefined, 60_000);
  // Last: whoever reads it may send a signal at once.
  process.stdout.write(`${JSON.stringify({ url: server.url, pid: server.pid(), alarms })}\n`);
} catch (error) {
  const { message, fix } = error as { message: string; fix?: string };
  process.stdout.write(`${JSON.stringify({ error: message, fix })}\n`);
  process.exitCode = 1;
}
