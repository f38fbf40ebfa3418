/** `herobus why`: the chain of causes of a flow's state, or of one job's, each with its source. */
import type { Command } from 'commander';
import { Chronicle, type Fact } from '../../actors/flow/chronicle.ts';
import { emptyFlow, fold } from '../../actors/flow/fold.ts';
import { type Known, type Why, whyFlow, whyJob } from '../../actors/flow/why.ts';
import { HeroError } from '../../schemas/errors.ts';
import type { FlowRef } from '../../schemas/ids.ts';
import { errorLines } from './failure.ts';
import { type Located, locateFlow, parseFlowName, whyUnplaced } from './flow-view.ts';
import { allNodes, NodeNames, told } from './narrate.ts';
import { globals, print, printJson, withExample } from './output.ts';
import { type Session, withSession } from './session.ts';

export function registerWhy(program: Command): void {
  const command = program
    .command('why')
    .summary('explain the state of a flow or a job')
    .description(
      'Tells why a flow, or with <flow>.<n> one of its jobs, is in the state it is in: the chain of causes from the nearest on, each with where it is written: an entry of the log, a node of the roster, a policy, the ledger.',
    )
    .argument('<id>', 'the flow id, or <flow>.<n>')
    .option('-c, --context <name>', 'the context; by default all that you may read')
    .action(async (text: string, options: { context?: string }, self: Command) => {
      const { id, job } = parseFlowName(text);
      await withSession(self, async (session) => {
        const located = await locateFlow(session, id, options.context);
        const why =
          located.found === 'refused'
            ? whyRefused(located)
            : explain(await know(session, located.ref), located.ref, job);
        if (globals(self).json) printJson('why', why);
        else tell(why);
      });
    });
  withExample(
    command,
    'herobus why hxj3wq5mzk7y2b4c6dresftaub',
    'herobus why hxj3wq5mzk7y2b4c6dresftaub.3',
  );
}

async function know(session: Session, ref: FlowRef): Promise<Known> {
  const [names, roster] = await Promise.all([
    NodeNames.of(session),
    // A chain without the roster's part is better than none.
    allNodes(session).catch(() => []),
  ]);
  const nameOf = (address: string): string => names.short(address);
  const chronicle = new Chronicle(nameOf);
  const state = emptyFlow();
  for await (const entry of session.bus.log.read(ref)) {
    chronicle.note(state, entry, fold(state, entry, session));
  }
  const unplaced =
    state.term === null && state.end === null ? await whyUnplaced(session, ref) : null;
  const nowMs = session.bus.now();
  return { context: ref.context, state, chronicle, roster, nameOf, unplaced, nowMs };
}

function explain(known: Known, { flow }: FlowRef, n: number | null): Why {
  if (n === null) return whyFlow(known);
  const why = whyJob(known, n);
  if (why !== undefined) return why;
  throw new HeroError('not_found', `flow ${flow} has no job ${n}`, {
    fix: `It has ${known.state.jobs.length} so far; see them with \`herobus flow ${flow}\`.`,
  });
}

/** A message that never became a flow: the refusals are all there is. */
function whyRefused({ refusals }: Extract<Located, { found: 'refused' }>): Why {
  const because = refusals.toReversed().flatMap(({ error, envelope, at }): Fact[] =>
    errorLines(error).map((fact) => ({
      fact: `${fact.trim()} (at ${at})`,
      source: `ledger HB_REFUSED ${envelope}`,
    })),
  );
  return { state: 'refused', because };
}

function tell({ state, because }: Why): void {
  print(told('state', state));
  for (const { fact, source } of because) print(told('because', `${fact}  [${source}]`));
}
