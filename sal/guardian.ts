/**
 * The guardian: a tiny shell that outlives its runner by a moment, to end what the runner left behind.
 *
 * It stands in a session of its own and reads from a pipe which process groups begin and end. When the
 * pipe closes the runner is gone, however it went, and every group still listed is killed. What a group is
 * and when it ended is the business of `exec.ts`.
 *
 *   G1 a group is listed before its command executes its first instruction (`enter` resolves first);
 *   G2 a group is taken off before its end is reported, so its number is never killed when others have it;
 *   G3 a guardian that dies itself is replaced at once and told all groups again.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import type { Socket } from 'node:net';
import { HeroError } from '../schemas/errors.ts';
import { signalGroup } from './group.ts';

/** Signals to the guardian itself are ignored: it ends when its pipe does. */
const SCRIPT = `
trap '' HUP INT TERM QUIT
groups=' '
while read -r line; do
  group="\${line#?}"
  case "$line" in
    +*) groups="$groups$group " ;;
    -*) case "$groups" in *" $group "*) groups="\${groups%% $group *} \${groups#* $group }" ;; esac ;;
  esac
done
for group in $groups; do kill -s KILL -- "-$group" 2>/dev/null; done
`;

const GUARDIAN_TRIES_MAX = 3;

export class Guardian {
  readonly #groups = new Set<number>();
  #shell: ChildProcess | undefined;
  #closed = false;

  constructor() {
    this.#start();
  }

  /** The guardian's own process id, for who wants to see it. */
  get pid(): number | undefined {
    return this.#shell?.pid;
  }

  /** Lists a group; resolves when the guardian is sure to know it. */
  async enter(pgid: number): Promise<void> {
    if (this.#closed) throw new HeroError('internal', 'the guardian is closed');
    this.#groups.add(pgid);
    for (let tries = 0; !(await this.#tell(`+${pgid}\n`)); tries++) {
      if (tries === GUARDIAN_TRIES_MAX) {
        throw new HeroError('internal', 'no guardian stays alive on this node');
      }
      this.#start();
    }
  }

  /** Takes a group off the list; it has ended. */
  leave(pgid: number): void {
    if (this.#groups.delete(pgid)) void this.#tell(`-${pgid}\n`);
  }

  /** Kills every group now, without waiting: the runner's right to execute has ended. */
  killAll(): void {
    for (const pgid of this.#groups) signalGroup(pgid, 'SIGKILL');
  }

  /** Lets the guardian go; groups still listed are killed by it. */
  close(): void {
    this.#closed = true;
    this.#shell?.stdin?.end();
  }

  #start(): void {
    const shell = spawn('/bin/sh', ['-c', SCRIPT, 'herobus-guardian'], {
      cwd: '/',
      detached: true,
      env: { PATH: '/usr/sbin:/usr/bin:/sbin:/bin' },
      stdio: ['pipe', 'ignore', 'ignore'],
    });
    this.#shell = shell;
    shell.stdin.on('error', () => undefined);
    shell.on('error', () => undefined);
    shell.once('exit', () => {
      if (!this.#closed && this.#shell === shell) this.#start();
    });
    shell.unref();
    (shell.stdin as Socket).unref();
    for (const pgid of this.#groups) void this.#tell(`+${pgid}\n`);
  }

  /** False when it met a dying guardian, whose successor is told of all groups when it starts. */
  #tell(line: string): Promise<boolean> {
    const stdin = this.#shell?.stdin;
    if (!stdin) return Promise.resolve(false);
    return new Promise((resolve) => {
      stdin.write(line, (error) => resolve(error === null || error === undefined));
    });
  }
}
