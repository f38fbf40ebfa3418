/**
 * `herobus logs`: what the jobs of a flow print, and what its script logs; as stored, or followed to the end.
 *
 *   L1 complete and in order for each job; with `-f` until the flow (or the one job) has ended, and all that
 *      was stored by then is shown;
 *   L2 a line's `seq` is where it stands: who was interrupted goes on with `--from` (last seq + 1), and
 *      misses none and sees none twice;
 *   L3 memory holds one page: the next is asked for when stdout has taken the last.
 */
import { once } from 'node:events';
import type { Command } from 'commander';
import { isJobEnded } from '../../actors/flow/fold.ts';
import type { OutputMessage, OutputReader } from '../../bus/output.ts';
import { HeroError } from '../../schemas/errors.ts';
import { type FlowRef, jobId } from '../../schemas/ids.ts';
import { LOG_LINES_MAX, LogLines, type OutputLine } from '../../schemas/job.ts';
import { parseDuration } from './arguments.ts';
import { EXIT, usage } from './failure.ts';
import { followFlow, locateFlow, parseFlowName } from './flow-view.ts';
import { told } from './narrate.ts';
import { globals, jsonLine, say, withExample } from './output.ts';
import { type Session, withSession } from './session.ts';

type LogsOptions = { context?: string; follow?: boolean; since?: string; from?: string };

/** What is wanted of a flow's output. */
type Wanted = {
  ref: FlowRef;
  job: number | null;
  /** The first line that is wanted, by its `seq`. */
  from: number | null;
  sinceMs: number | null;
};

/** A line is stored after it was written; the clocks of nodes may differ by so much. */
const CLOCKS_APART_MS = 60_000;

export function registerLogs(program: Command): void {
  const command = program
    .command('logs')
    .summary('show the output of a flow or of one job')
    .description(
      'Shows what the jobs of a flow print and what its script logs, each line with its job; with <flow>.<n> the output of one job as it is, its stderr on stderr. Ctrl-C ends it and cancels nothing. With --json, who was interrupted misses nothing: go on with --from and the last `seq` plus one.',
    )
    .argument('<id>', 'the flow id, or <flow>.<n>')
    .option('-c, --context <name>', 'the context; by default all that you may read')
    .option('-f, --follow', 'go on until the flow, or the one job, has ended')
    .option('--since <when>', 'only lines from then on: a time (2026-01-31T12:00:00Z) or 10m ago')
    .option('--from <seq>', 'only lines from this `seq` on')
    .action(async (text: string, options: LogsOptions, self: Command) => {
      const { id, job } = parseFlowName(text);
      const from = parseFrom(options.from);
      const since = parseSince(options.since);
      process.exitCode = await withSession(self, async (session) => {
        const ref = await locate(session, id, job, options);
        const sinceMs = since === null ? null : since(session.bus.now());
        const wanted = { ref, job, from, sinceMs };
        const view = new View(wanted, globals(self).json ?? false);
        return show(session, wanted, view, options.follow ?? false);
      });
    });
  withExample(
    command,
    'herobus logs hxj3wq5mzk7y2b4c6dresftaub -f',
    'herobus logs hxj3wq5mzk7y2b4c6dresftaub.3 --since 10m',
    'herobus --json logs hxj3wq5mzk7y2b4c6dresftaub -f --from 1234001',
  );
}

function parseFrom(text: string | undefined): number | null {
  if (text === undefined) return null;
  const seq = Number(text);
  if (/^[0-9]+$/.test(text) && Number.isSafeInteger(seq)) return seq;
  throw usage(`--from "${text}" is no seq`, 'Give the `seq` of a line of --json, a whole number.');
}

/** A time, or so long ago: the latter is counted on the bus's clock. */
function parseSince(text: string | undefined): ((nowMs: number) => number) | null {
  if (text === undefined) return null;
  if (/^\d{4}-\d\d-\d\d/.test(text)) {
    const at = Date.parse(text);
    if (Number.isNaN(at)) throw usage(`--since "${text}" is no time`, SINCE_FIX);
    return () => at;
  }
  const ago = parseDuration(text, '--since');
  return (nowMs) => Math.max(0, Math.floor(nowMs - ago));
}
const SINCE_FIX = 'Write it like 2026-01-31T12:00:00Z, or 10m for ten minutes ago.';

async function locate(
  session: Session,
  id: string,
  job: number | null,
  { context, follow }: LogsOptions,
): Promise<FlowRef> {
  const located = await locateFlow(session, id, context);
  if (located.found === 'refused') {
    throw new HeroError('not_found', `${id} never became a flow: it was refused`, {
      fix: `See why with \`herobus flow ${id}\`.`,
    });
  }
  const { state, ref } = located;
  const mayCome = follow === true && state.end === null;
  if (job !== null && state.jobs[job] === undefined && !mayCome) {
    throw new HeroError('not_found', `flow ${id} has no job ${job}`, {
      fix: `It has ${state.jobs.length} so far; see them with \`herobus flow ${id}\`.`,
    });
  }
  return ref;
}

async function show(
  session: Session,
  wanted: Wanted,
  view: View,
  follow: boolean,
): Promise<number> {
  const reader = session.bus.output({
    ref: wanted.ref,
    job: wanted.job,
    from: wanted.from === null ? null : Math.max(1, Math.floor(wanted.from / LOG_LINES_MAX)),
    since: wanted.sinceMs === null ? null : Math.max(0, wanted.sinceMs - CLOCKS_APART_MS),
  });
  const interrupted = new AbortController();
  const interrupt = () => interrupted.abort();
  process.on('SIGINT', interrupt);
  const ended = follow ? whenEnded(session, wanted) : { signal: AbortSignal.abort(), stop() {} };
  const link = session.bus.link.onChange(({ up }) => {
    say(told('bus', up ? 'is back' : 'is away; waiting for it to come back'));
  });
  try {
    await pump(reader, view, ended.signal, interrupted.signal);
  } finally {
    ended.stop();
    link.stop();
    process.off('SIGINT', interrupt);
  }
  if (!interrupted.signal.aborted) return EXIT.done;
  say(told('interrupted', `go on with: ${view.resumeCommand(session, follow)}`));
  return EXIT.interrupted;
}

async function pump(
  reader: OutputReader,
  view: View,
  ended: AbortSignal,
  interrupted: AbortSignal,
): Promise<void> {
  const stop = AbortSignal.any([ended, interrupted]);
  // A bus that is away is not waited for by who wants to leave.
  const leave = once(interrupted, 'abort').then(() => []);
  while (!interrupted.aborted) {
    // Known before it is asked what there is: what comes then is all there will be.
    const last = ended.aborted;
    const page = await Promise.race([reader.next(last ? undefined : stop), leave]);
    if (page.length === 0 && last) return;
    for (const message of page) {
      if (interrupted.aborted) return;
      await view.show(message);
    }
  }
}

/** Aborted when the flow has ended, or the one job: nothing more is written then. */
function whenEnded(
  session: Session,
  { ref, job }: Wanted,
): { signal: AbortSignal; stop: () => void } {
  const controller = new AbortController();
  const { follower } = followFlow(session, ref, (state) => {
    const wanted = job === null ? undefined : state.jobs[job];
    if (state.end !== null || (wanted !== undefined && isJobEnded(wanted))) controller.abort();
  });
  return { signal: controller.signal, stop: () => follower.stop() };
}

/** Lines as people or programs read them, on stdout; and where to go on after the last. */
class View {
  readonly #wanted: Wanted;
  readonly #json: boolean;
  #next: number | null;

  constructor(wanted: Wanted, json: boolean) {
    this.#wanted = wanted;
    this.#json = json;
    this.#next = wanted.from;
  }

  resumeCommand({ home, again }: Session, follow: boolean): string {
    const { ref, job } = this.#wanted;
    const own = home.config.context ?? 'default';
    return [
      'herobus logs',
      job === null ? ref.flow : jobId(ref.flow, job),
      ...(follow ? ['-f'] : []),
      ...(ref.context === own ? [] : ['-c', ref.context]),
      ...(this.#next === null ? [] : ['--from', String(this.#next)]),
    ]
      .join(' ')
      .concat(again);
  }

  async show(message: OutputMessage): Promise<void> {
    const texts = { stdout: '', stderr: '' };
    const { from, sinceMs } = this.#wanted;
    for (const [i, line] of linesOf(message).entries()) {
      const seq = message.seq * LOG_LINES_MAX + i;
      if ((from !== null && seq < from) || (sinceMs !== null && line.at < sinceMs)) continue;
      if (this.#json) texts.stdout += jsonLine('output-line', this.#object(message, line, seq));
      else if (this.#wanted.job === null) texts.stdout += prefixed(message.job, line.line);
      else texts[line.stream === 'stderr' ? 'stderr' : 'stdout'] += `${line.line}\n`;
      this.#next = seq + 1;
    }
    await write(process.stdout, texts.stdout);
    await write(process.stderr, texts.stderr);
  }

  #object({ job }: OutputMessage, { stream, line, at }: Line, seq: number): OutputLine {
    const name = job === 'main' ? null : jobId(this.#wanted.ref.flow, job);
    return { job: name, stream, line, at: new Date(at).toISOString(), seq };
  }
}

type Line = LogLines['lines'][number];

/** Somebody else's message on that subject is no output. */
function linesOf({ data }: OutputMessage): Line[] {
  try {
    return LogLines.parse(JSON.parse(new TextDecoder().decode(data))).lines;
  } catch {
    return [];
  }
}

const PREFIX_WIDTH = 6;

function prefixed(job: number | 'main', line: string): string {
  const name = (job === 'main' ? 'script' : String(job)).padEnd(PREFIX_WIDTH);
  return line
    .split('\n')
    .map((part) => `${name} | ${part}\n`)
    .join('');
}

/** L3: a reader that is slower than the bus holds the bus up, not this process's memory. */
async function write(stream: NodeJS.WriteStream, text: string): Promise<void> {
  if (text !== '' && !stream.write(text)) await once(stream, 'drain');
}
