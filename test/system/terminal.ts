/**
 * A terminal of a reader who follows a document: a shell that keeps its folder and its aliases from one
 * command to the next, and what it printed.
 *
 * The shell leads a process group of its own, which is killed at the end of the test with all that runs in it.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import type { TestContext } from 'node:test';
import { type Bindings, matchLines } from './transcript.ts';

/** Stands before the exit code on the line that ends a command's output; no command prints it. */
const END = '\x1e';

export class Terminal {
  readonly #shell: ChildProcess;
  #lines: string[] = [];
  #rest = '';
  #code: number | undefined;
  #changed = Promise.withResolvers<void>();

  constructor(t: TestContext, folder: string, env: NodeJS.ProcessEnv) {
    this.#shell = spawn('bash', ['--norc', '--noprofile'], {
      cwd: folder,
      env,
      detached: true,
      stdio: ['pipe', 'pipe', 'inherit'],
    });
    this.#shell.stdout?.setEncoding('utf8').on('data', (text: string) => this.#take(text));
    this.#shell.stdin?.write('exec 2>&1; shopt -s expand_aliases\n');
    t.after(() => this.#kill());
  }

  async #kill(): Promise<void> {
    if (this.#shell.exitCode !== null || this.#shell.pid === undefined) return;
    const gone = once(this.#shell, 'exit');
    process.kill(-this.#shell.pid, 'SIGKILL');
    await gone;
  }

  #take(text: string): void {
    const lines = `${this.#rest}${text}`.split('\n');
    this.#rest = lines.pop() ?? '';
    for (const line of lines) {
      const [printed = '', code] = line.split(END);
      if (code === undefined || printed !== '') this.#lines.push(printed);
      if (code !== undefined) this.#code = Number(code);
    }
    this.#changed.resolve();
    this.#changed = Promise.withResolvers();
  }

  /** Types a command; what earlier ones printed is gone from the sight. */
  type(command: string): void {
    this.#lines = [];
    this.#code = undefined;
    // The end mark leaves the exit code as it was, so that `echo $?` may come next.
    this.#shell.stdin?.write(
      `{ ${command}\n} </dev/null; ended=$?; printf '${END}%d\\n' $ended; (exit $ended)\n`,
    );
  }

  /** Waits until the command has printed these lines, and ended too unless it goes `on`. */
  async expect(
    lines: readonly string[],
    bindings: Bindings,
    { on, withinMs }: { on: boolean; withinMs: number },
  ): Promise<{ bindings: Bindings; code: number | undefined }> {
    const signal = AbortSignal.timeout(withinMs);
    for (;;) {
      const changed = this.#changed.promise;
      const ended = this.#code !== undefined;
      const matched = on || ended ? matchLines(lines, this.#lines, bindings, on) : undefined;
      if (matched !== undefined) {
        this.#lines = this.#lines.slice(matched.end);
        return { bindings: matched.bindings, code: this.#code };
      }
      if (ended || signal.aborted) {
        const why = ended ? `it ended with ${this.#code}` : `not within ${withinMs} ms`;
        throw new Error(
          `expected\n${lines.join('\n')}\nbut ${why}, having printed\n${this.#lines.join('\n')}`,
        );
      }
      await Promise.race([changed, once(signal, 'abort')]);
    }
  }
}
