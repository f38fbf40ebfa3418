/** The CLI as a child process, from its sources, in a home of its own. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { text } from 'node:stream/consumers';
import type { TestContext } from 'node:test';

export const ROOT = resolve(import.meta.dirname, '../..');
const ENTRY = join(ROOT, 'tools/cli/entry.ts');

export type Ran = { code: number | null; stdout: string; stderr: string };

export function temporaryFolder(t: Pick<TestContext, 'after'>): string {
  const folder = mkdtempSync(join(tmpdir(), 'herobus-cli-'));
  t.after(() => rmSync(folder, { recursive: true, force: true }));
  return folder;
}

/** An environment in which no bus and no home of whoever runs the tests can be found. */
export function bareEnvironment(home: string): NodeJS.ProcessEnv {
  const { HEROBUS_SERVER: _, HEROBUS_DEBUG: __, ...rest } = process.env;
  return { ...rest, HEROBUS_HOME: home, HOME: home, NO_COLOR: '1' };
}

export async function runCli(home: string, args: string[], input = ''): Promise<Ran> {
  return runNode(home, [ENTRY, ...args], input);
}

/** Each of these command lines, one after the other in one process. */
export async function runMany(home: string, lines: string[][]): Promise<Ran[]> {
  const script = join(import.meta.dirname, 'fixtures', 'many.ts');
  const { code, stdout, stderr } = await runNode(home, [script], JSON.stringify(lines));
  if (code !== 0) throw new Error(stderr);
  return JSON.parse(stdout) as Ran[];
}

async function runNode(home: string, args: string[], input: string): Promise<Ran> {
  const child = spawn(process.execPath, args, {
    stdio: ['pipe', 'pipe', 'pipe'],
    env: bareEnvironment(home),
  });
  child.stdin.on('error', () => undefined);
  child.stdin.end(input);
  const said = Promise.all([text(child.stdout), text(child.stderr)]);
  const [code] = (await once(child, 'exit')) as [number | null];
  const [stdout, stderr] = await said;
  return { code, stdout, stderr };
}
