/** A flow as it is told: in place on a terminal, in plain lines elsewhere. */
/* oxlint-disable no-control-regex -- what terminals are told begins with one */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import type { Entry } from '../../bus/bus.ts';
import { type Change, emptyFlow, type FlowState, type JobState } from '../../actors/flow/fold.ts';
import type { JobStatus, LogLines } from '../../schemas/job.ts';
import { Narrator, NodeNames } from '../../tools/cli/narrate.ts';
import { Screen } from '../../tools/cli/screen.ts';

const COLUMNS = 72;

/** What a terminal shows of what is written to it: `\r` and `clear to the end` are all it is told to do. */
class FakeTerminal {
  readonly isTTY: boolean;
  readonly columns = COLUMNS;
  written = '';
  writes: string[] = [];

  constructor(isTTY = true) {
    this.isTTY = isTTY;
  }

  write(text: string): boolean {
    this.written += text;
    this.writes.push(text);
    return true;
  }

  get lines(): string[] {
    const lines = [''];
    let column = 0;
    for (const token of withoutColour(this.written).match(/\x1b\[K|[^]/gu) ?? []) {
      const line = lines.at(-1) ?? '';
      if (token === '\n') lines.push('');
      else if (token === '\x1b[K')
        lines[lines.length - 1] = Array.from(line).slice(0, column).join('');
      else if (token !== '\r') {
        lines[lines.length - 1] = Array.from(line).toSpliced(column, 1, token).join('');
      }
      column = token === '\n' || token === '\r' ? 0 : token === '\x1b[K' ? column : column + 1;
    }
    return lines;
  }
}

const withoutColour = (text: string): string => text.replace(/\x1b\[\d+m/g, '');

const ENTRY = { at: 0 } as unknown as Entry;
const NOBODY = new NodeNames();

function flowOf(...statuses: JobStatus[]): FlowState {
  const jobs = statuses.map((status, n) => {
    const ended = status === 'completed' || status === 'failed';
    const spec = { n, name: `work-${n}`, retries: 0 };
    const times = { begunAt: 0, endedAt: ended ? 1500 : null, retryAt: null };
    const error = status === 'failed' ? { message: 'no', cause: null } : null;
    return { n, spec, status, attempt: 1, node: null, error, endedSeq: ended ? 1 : null, ...times };
  });
  return { ...emptyFlow(), jobs: jobs as unknown as JobState[] };
}

const changes = ({ jobs }: FlowState): Change[] => jobs.map(({ n }) => ({ type: 'job', n }));
const notes = (...lines: [stream: 'log' | 'progress', line: string][]): LogLines => ({
  v: 1,
  inc: 'inc00000',
  lines: lines.map(([stream, line]) => ({ stream, line, at: 0 })),
});

function narrator(terminal: FakeTerminal, env: NodeJS.ProcessEnv = {}): Narrator {
  return new Narrator(NOBODY, new Screen(terminal, env));
}

describe('cli - telling a flow on a terminal', () => {
  it('keeps a bar of the jobs on the last line, under the lines that stay', () => {
    const terminal = new FakeTerminal();
    const state = flowOf('completed', 'completed', 'running', 'failed');
    narrator(terminal).changed(state, changes(state), ENTRY);
    assert.deepEqual(terminal.lines, [
      'job 0       work-0 completed after 1.5 s',
      'job 1       work-1 completed after 1.5 s',
      'job 2       work-2 runs on no node',
      'job 3       work-3 failed after 1.5 s: no',
      `${'█'.repeat(15)}${'░'.repeat(5)} 3 of 4 jobs, 1 running, 1 failed`,
    ]);
  });

  it('shows what the script says of itself, and writes lines above it', async () => {
    const terminal = new FakeTerminal();
    const telling = narrator(terminal);
    const state = flowOf('running');
    telling.changed(state, changes(state), ENTRY);
    telling.noted(notes(['progress', '1/4 squares are in'], ['log', 'a word']));
    await delay(150);
    assert.deepEqual(terminal.lines.slice(-2), [
      'script      a word',
      `${'█'.repeat(5)}${'░'.repeat(15)} 1/4 squares are in · 0 of 1 job, 1 running`,
    ]);
    telling.end();
    assert.deepEqual(terminal.lines.slice(-2), ['script      a word', '']);
  });

  it('does not flicker: it is drawn ten times a second at most, never cleared before it is drawn', async () => {
    const terminal = new FakeTerminal();
    const telling = narrator(terminal);
    const started = performance.now();
    for (let done = 0; done <= 500; done++) {
      const state = flowOf('running');
      telling.changed(state, [], ENTRY);
      telling.noted(notes(['progress', `${done}/500`]));
      if (done % 50 === 0) await delay(20);
    }
    await delay(150);
    const most = (performance.now() - started) / 100 + 1;
    assert.ok(terminal.writes.length <= most, `${terminal.writes.length} writes, at most ${most}`);
    assert.match(terminal.lines.at(-1) ?? '', /^█{20} 500\/500 · /, 'the last one is shown');
    for (const each of terminal.writes) assert.match(each, /^\r.*[█░].*\x1b\[K$/, 'over the old');
    const before = terminal.writes.length;
    telling.changed(flowOf('running'), [], ENTRY);
    await delay(150);
    assert.equal(terminal.writes.length, before, 'the same again is not written');
  });

  it('never makes the last line wrap, nor lets a script do anything to the terminal', async () => {
    const terminal = new FakeTerminal();
    const telling = narrator(terminal);
    telling.changed(flowOf('running'), [], ENTRY);
    telling.end();
    telling.noted(notes(['log', 'evil \x1b[2J\x07 text'], ['progress', `1/2 ${'x'.repeat(200)}`]));
    telling.changed(flowOf('running'), [], ENTRY);
    await delay(150);
    assert.match(terminal.lines.at(-1) ?? '', /^█{10}░{10} 1\/2 x+…$/);
    assert.ok(terminal.lines.every((line) => Array.from(line).length < COLUMNS));
    assert.ok(terminal.lines.some((line) => line.endsWith('evil �[2J� text')));
  });

  it('leaves colours out for NO_COLOR, and the bar for a terminal that cannot', () => {
    const state = flowOf('completed', 'running');
    const tell = (env: NodeJS.ProcessEnv): string => {
      const terminal = new FakeTerminal();
      narrator(terminal, env).changed(state, changes(state), ENTRY);
      return terminal.written;
    };
    assert.match(tell({}), /\x1b\[32mjob 0 +\x1b\[39m/);
    assert.doesNotMatch(tell({ NO_COLOR: '1' }), /\x1b\[\d+m/);
    assert.match(tell({ NO_COLOR: '1' }), /█/);
    assert.doesNotMatch(tell({ TERM: 'dumb' }), /\x1b|█|\r/);
  });
});

describe('cli - telling a flow elsewhere', () => {
  it('writes plain lines, of progress one a second and the last', () => {
    const pipe = new FakeTerminal(false);
    const telling = narrator(pipe);
    const state = flowOf('completed');
    telling.changed(state, changes(state), ENTRY);
    for (let done = 1; done <= 50; done++) telling.noted(notes(['progress', `${done}/50 in`]));
    telling.end();
    assert.deepEqual(pipe.written.split('\n'), [
      'job 0       work-0 completed after 1.5 s',
      'progress    1/50 in',
      'progress    50/50 in',
      '',
    ]);
  });

  it('takes a progress without a whole for a word of the script', () => {
    const pipe = new FakeTerminal(false);
    narrator(pipe).noted(notes(['progress', '3/0 of nothing']));
    assert.equal(pipe.written, 'script      3/0 of nothing\n');
  });
});
