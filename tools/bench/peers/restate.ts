/**
 * Restate: its server and a service with one handler of three durable steps, invoked over HTTP.
 *
 * Settings are the server's own, except for addresses, its folder, and telemetry; its log is written with
 * fsync by default.
 */
import { Agent, request } from 'node:http';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { inWindow, median, type Sample, timed } from '../measure.ts';
import { type Child, freePort, type Workspace } from '../workspace.ts';
import { installPackages, peerFile } from './packages.ts';

const SERVICE = fileURLToPath(new URL('./restate-service.ts', import.meta.url));
const READY_WITHIN_MS = 60_000;
const POLL_MS = 200;

export class Restate {
  readonly #ingress: string;
  readonly #agent = new Agent({ keepAlive: true });
  readonly pids: readonly number[];

  private constructor(ingress: string, children: Child[]) {
    this.#ingress = ingress;
    this.pids = children.map(({ pid }) => pid);
  }

  static async start(workspace: Workspace): Promise<Restate> {
    await installPackages();
    const folder = await workspace.subfolder('restate');
    const [ingress, admin, fabric, own] = await Promise.all(Array.from({ length: 4 }, freePort));
    const config = join(folder, 'restate.toml');
    const lines = [
      `base-dir = ${JSON.stringify(folder)}`,
      `bind-address = "127.0.0.1:${fabric}"`,
      `advertised-address = "http://127.0.0.1:${fabric}"`,
      'disable-telemetry = true',
      'listen-mode = "tcp"',
      `[ingress]\nbind-address = "127.0.0.1:${ingress}"`,
      `[admin]\nbind-address = "127.0.0.1:${admin}"`,
    ];
    await writeFile(config, `${lines.join('\n')}\n`);
    const binary = peerFile('@restatedev/restate-server-linux-x64', 'bin/restate-server');
    const server = workspace.spawn('restate-server', binary, ['--config-file', config], {
      env: { DO_NOT_TRACK: '1' },
    });
    const service = workspace.spawn('restate-service', process.execPath, [SERVICE, String(own)], {
      ipc: true,
    });
    await service.message('ready', READY_WITHIN_MS);
    const restate = new Restate(`http://127.0.0.1:${ingress}`, [server, service]);
    workspace.atEnd(() => restate.#agent.destroy());
    const deployment = JSON.stringify({ uri: `http://127.0.0.1:${own}` });
    const registered = until(() =>
      restate.#post(`http://127.0.0.1:${admin}/deployments`, deployment),
    );
    await server.until(registered, READY_WITHIN_MS);
    await server.until(
      until(() => restate.#invoke()),
      READY_WITHIN_MS,
    );
    return restate;
  }

  /** One after the other. */
  async latency(count: number): Promise<number> {
    const took: number[] = [];
    for (let i = 0; i < count; i++) {
      const before = performance.now();
      await this.#invoke();
      took.push(performance.now() - before);
    }
    return median(took);
  }

  async throughput(count: number, window: number): Promise<Sample> {
    const { seconds, cpuSeconds } = await timed(this.pids, () =>
      inWindow(Array.from({ length: count }), window, () => this.#invoke()),
    );
    return { 'per s': count / seconds, 'cpu s/1000': (cpuSeconds * 1000) / count };
  }

  #invoke(): Promise<void> {
    return this.#post(`${this.#ingress}/steps/three`, '{}');
  }

  #post(url: string, body: string): Promise<void> {
    return new Promise((resolve, reject) => {
      const headers = { 'content-type': 'application/json', 'content-length': body.length };
      const call = request(url, { method: 'POST', agent: this.#agent, headers }, (response) => {
        let text = '';
        response.setEncoding('utf8').on('data', (chunk: string) => {
          text += chunk;
        });
        response.on('end', () => {
          if ((response.statusCode ?? 500) < 300) resolve();
          else reject(new Error(`Restate answered ${response.statusCode}: ${text}`));
        });
      });
      call.on('error', reject);
      call.end(body);
    });
  }
}

async function until(act: () => Promise<void>): Promise<void> {
  for (;;) {
    const worked = await act().then(
      () => true,
      () => false,
    );
    if (worked) return;
    await new Promise((resolve) => setTimeout(resolve, POLL_MS));
  }
}
