/** `herobus flow`: one flow, or one job of it, as it stands; also a message that was refused. */
import type { Command } from 'commander';
import type { FlowState } from '../../actors/flow/fold.ts';
import { HeroError } from '../../schemas/errors.ts';
import type { Flow } from '../../schemas/flow.ts';
import type { FlowRef } from '../../schemas/ids.ts';
import { type Usage, usageText } from '../../schemas/job.ts';
import { errorLines } from './failure.ts';
import {
  flowObject,
  locateFlow,
  parseFlowName,
  refusalsOf,
  refusedFlow,
  whyUnplaced,
} from './flow-view.ts';
import { NodeNames, told } from './narrate.ts';
import { globals, print, printJson, table, valueText, withExample } from './output.ts';
import { type Session, withSession } from './session.ts';
import { withValues } from './values.ts';

const JOBS_SHOWN_MAX = 200;

export function registerFlow(program: Command): void {
  const command = program
    .command('flow')
    .summary('show one flow, or one job of it')
    .description(
      'Shows a flow as it stands, with its jobs; with <flow>.<n> one job. A message that was refused is found by its flow id or by the SHA-256 of its bytes.',
    )
    .argument('<id>', 'the flow id, <flow>.<n>, or a SHA-256 in hex')
    .option('-c, --context <name>', 'the context; by default all that you may read')
    .action(async (text: string, options: { context?: string }, self: Command) => {
      const name = parseFlowName(text);
      await withSession(self, async (session) => {
        const json = globals(self).json ?? false;
        const described = await describeFlow(session, name.id, options.context);
        const wanted = name.job === null ? (json ? 'all' : 'flow') : { job: name.job };
        const object = await withValues(session, described, wanted);
        if (name.job === null) await showFlow(session, object, json);
        else showJob(object, name.job, json);
      });
    });
  withExample(command, 'herobus flow hxj3wq5mzk7y2b4c6dresftaub');
}

async function describeFlow(
  session: Session,
  id: string,
  context: string | undefined,
): Promise<Flow> {
  const located = await locateFlow(session, id, context);
  if (located.found === 'refused') return refusedFlow(located.context, id, located.refusals);
  return withSurroundings(session, located.ref, located.state);
}

/** The flow object with what the log alone does not know. */
export async function withSurroundings(
  session: Session,
  ref: FlowRef,
  state: FlowState,
): Promise<Flow> {
  const object = flowObject(ref, state);
  const refusals = await refusalsOf(session, ref.context, ref.flow);
  if (object.status !== 'placing') return { ...object, refusals };
  const unplaced = await whyUnplaced(session, ref);
  return { ...object, status: unplaced === null ? 'placing' : 'unplaced', unplaced, refusals };
}

function showJob(object: Flow, n: number, json: boolean): void {
  const job = object.jobs[n];
  if (job === undefined) {
    throw new HeroError('not_found', `flow ${object.flow} has no job ${n}`, {
      fix: `It has ${object.jobs.length} so far; see them with \`herobus flow ${object.flow}\`.`,
    });
  }
  if (json) return printJson('job', job);
  const { error, value, value_ref: _ref, value_error: valueError, usage, ...rest } = job;
  for (const [key, text] of Object.entries(rest)) print(told(key, String(text ?? '-')));
  if (usage !== null) print(told('used', usageText(usage)));
  if (error !== null) print(told('error', errorLines(error).join('\n')));
  if (valueError !== undefined) print(told('value', errorLines(valueError).join('\n')));
  else if (value !== null) print(told('value', valueText(value)));
}

async function showFlow(session: Session, object: Flow, json: boolean): Promise<void> {
  if (json) return printJson('flow', object);
  const names = await NodeNames.of(session);
  print(told('flow', object.flow));
  print(told('context', object.context));
  print(told('status', object.status));
  if (object.unplaced) print(told('because', object.unplaced));
  print(told('signed by', object.submitted_by.join(', ') || '-'));
  if (object.supervisor !== null) print(told('on', names.of(object.supervisor)));
  if (object.created_at !== null) print(told('created', object.created_at));
  if (object.ended_at !== null) print(told('ended', object.ended_at));
  if (object.error !== null) print(told('error', errorLines(object.error).join('\n')));
  if (object.value_error) print(told('value', errorLines(object.value_error).join('\n')));
  else if (object.status === 'completed') print(told('value', valueText(object.value)));
  for (const { envelope, error } of object.status === 'refused' ? [] : (object.refusals ?? [])) {
    print(told('refused', `message ${envelope}: ${errorLines(error).join('\n')}`));
  }
  if (object.jobs.length === 0) return;
  const rows = object.jobs
    .slice(0, JOBS_SHOWN_MAX)
    .map(({ job, name, kind, status, attempt, node, usage, error, unplaced }) => [
      job.split('.')[1] ?? job,
      kind,
      name,
      status,
      String(attempt),
      node === null ? '-' : names.short(node),
      ...used(usage),
      firstLine(error?.message ?? unplaced ?? ''),
    ]);
  print('');
  print(table(['JOB', 'KIND', 'NAME', 'STATUS', 'TRY', 'NODE', ...USED, ''], rows));
  const more = object.jobs.length - rows.length;
  if (more > 0) print(`… and ${more} more; --json shows all`);
}

/** What the last attempt with a result used; io is what was read from and written to storage. */
const USED = ['CPU', 'MEMORY', 'READ', 'WRITTEN'];

function used(usage: Usage | null): string[] {
  if (usage === null) return USED.map(() => '-');
  const { cpu_ms, memory_peak_bytes, io_read_bytes, io_write_bytes } = usage;
  const sizes = [memory_peak_bytes, io_read_bytes, io_write_bytes];
  return [
    `${(cpu_ms / 1000).toFixed(2)} s`,
    ...sizes.map((bytes) => (bytes === null ? '-' : `${(bytes / 1024 / 1024).toFixed(1)} MiB`)),
  ];
}

const firstLine = (text: string): string => text.split('\n')[0]?.slice(0, 100) ?? '';
