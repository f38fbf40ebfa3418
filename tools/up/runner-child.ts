/**
 * Runner children of `up`: one process for each runner, which dies with its parent and is started again.
 *
 * The child is this same program with the hidden command `runner`; its configuration comes on its stdin,
 * so that neither keys nor paths show in a process list.
 */
import { spawn } from 'node:child_process';
import type { ChildSpec, Running } from '../../actors/supervise.ts';
import type { RunnerProcess } from '../../schemas/config.ts';
import { LEASE_MS } from '../../schemas/node.ts';

/**
 * A child that is alive writes a byte a second. One that is silent longer than its lease cannot end its own
 * jobs (it is stopped, or its event loop is held), so it is killed: its guardian ends them.
 */
const SILENCE_MAX_MS = LEASE_MS - 500;
/** How a runner ends that was told to take nothing more. */
const DRAINED = 'drained';
/** A child that has not given its first sign of life by then never will. */
const START_MAX_MS = 20_000;
/** SIGTERM lets what runs end; a child that does not go is killed. */
const STOP_DEADLINE_MS = 8_000;

export function runnerChild(config: RunnerProcess, alarm: (message: string) => void): ChildSpec {
  return {
    id: config.name,
    start: () => startChild(config, alarm),
    isDone: (reason) => reason === DRAINED,
  };
}

async function startChild(
  config: RunnerProcess,
  alarm: (message: string) => void,
): Promise<Running> {
  const program = process.argv[1] ?? '';
  // setpriv: the kernel kills the runner when this thread's process dies, however it dies.
  const child = spawn('setpriv', ['--pdeathsig', 'KILL', process.execPath, program, 'runner'], {
    stdio: ['pipe', 'pipe', 'pipe'],
  });
  const silent = (): void => {
    alarm(`${config.name}: silent for ${SILENCE_MAX_MS} ms; killed`);
    child.kill('SIGKILL');
  };
  let silence = setTimeout(silent, START_MAX_MS);
  child.stdout.on('data', () => {
    clearTimeout(silence);
    silence = setTimeout(silent, SILENCE_MAX_MS);
  });
  const ended = new Promise<string>((resolve) => {
    child.once('error', (error) => resolve(error.message));
    child.once('exit', (code, signal) =>
      resolve(signal ?? (code === 0 ? DRAINED : `exit code ${code}`)),
    );
  }).finally(() => clearTimeout(silence));
  child.stderr.setEncoding('utf8').on('data', (text: string) => {
    for (const line of text.split('\n')) if (line !== '') alarm(`${config.name}: ${line}`);
  });
  child.stdin.on('error', () => {});
  child.stdin.end(JSON.stringify(config));
  return {
    ended,
    stop: async () => {
      child.kill('SIGTERM');
      const kill = setTimeout(() => child.kill('SIGKILL'), STOP_DEADLINE_MS);
      await ended;
      clearTimeout(kill);
    },
  };
}
