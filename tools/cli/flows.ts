/** `herobus flows`: the flows of a context, as the ledger lists them. */
import type { Command } from 'commander';
import { FlowStatus } from '../../schemas/flow.ts';
import type { FlowSummary } from '../../schemas/ledger.ts';
import { usage } from './failure.ts';
import { listFlows, wholeFlows } from './flow-view.ts';
import { NodeNames } from './narrate.ts';
import { globals, print, printJsonList, say, table, withExample } from './output.ts';
import { contextOf, type Session, withSession } from './session.ts';

type FlowsOptions = { context?: string; status?: string };

export function registerFlows(program: Command): void {
  const command = program
    .command('flows')
    .summary('list the flows of a context')
    .description('Lists the flows of a context with their status.')
    .option('-c, --context <name>', "the context; by default the home's, else `default`")
    .option('--status <status>', `only these: ${FlowStatus.options.join(', ')}`)
    .action(async (options: FlowsOptions, self: Command) => {
      const status = parseStatus(options.status);
      await withSession(self, async (session) => {
        const context = contextOf(options.context, session.home);
        const listed = withStatus(listFlows(session, context), status);
        if (globals(self).json) return printJsonList('flows', wholeFlows(session, context, listed));
        const flows: FlowSummary[] = [];
        for await (const flow of listed) flows.push(flow);
        if (flows.length === 0) return say(`no flows in ${context}`);
        return print(await flowTable(session, flows));
      });
    });
  withExample(command, 'herobus flows -c acme --status running');
}

async function* withStatus(
  flows: AsyncIterable<FlowSummary>,
  status: FlowStatus | undefined,
): AsyncIterable<FlowSummary> {
  for await (const flow of flows) {
    if (status === undefined || flow.status === status) yield flow;
  }
}

function parseStatus(text: string | undefined): FlowStatus | undefined {
  if (text === undefined) return undefined;
  const parsed = FlowStatus.safeParse(text);
  if (parsed.success) return parsed.data;
  throw usage(`--status "${text}" is none of ${FlowStatus.options.join(', ')}`);
}

async function flowTable(session: Session, flows: readonly FlowSummary[]): Promise<string> {
  const names = await NodeNames.of(session);
  return table(
    ['FLOW', 'STATUS', 'CREATED', 'ENDED', 'NODE'],
    flows.map(({ flow, status, created_at, ended_at, supervisor, unplaced }) => [
      flow,
      status,
      created_at ?? '-',
      ended_at ?? '-',
      supervisor === null ? (unplaced ?? '-') : names.short(supervisor),
    ]),
  );
}
