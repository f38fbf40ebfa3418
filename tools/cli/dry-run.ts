/**
 * What a deployment would do, found out without publishing anything: its admission is judged as a node would,
 * its script is run here until its first wait, and its jobs are placed by the roster as it stands now.
 *
 * What comes after the first wait depends on what the jobs bring; a plan says how far it sees.
 */
import { createHash } from 'node:crypto';
import {
  Derivation,
  type DerivedJob,
  ENGINE_VERSION,
  type Step,
} from '../../actors/flow/derive.ts';
import { explain, place } from '../../actors/flow/place.ts';
import { open } from '../../bus/envelope.ts';
import { base32, type Identity } from '../../bus/identity.ts';
import type { Answer } from '../../schemas/answers.ts';
import { type ErrorRecord, failure } from '../../schemas/errors.ts';
import { addressText } from '../../schemas/ids.ts';
import { type JsonValue, stringifyTyped } from '../../schemas/json.ts';
import type { RosterNode } from '../../schemas/node.ts';
import { type Admitted, admit } from '../../supervisors/admission.ts';
import { errorLines, EXIT } from './failure.ts';
import { allNodes, told } from './narrate.ts';
import { print, printJson, table } from './output.ts';
import { type DeploymentDraft, sealDeployment } from './seal.ts';
import type { Session } from './session.ts';

type Planned = Answer<'plan'>;
type Created = Planned['creates'][number];
type Refused = Planned['refusals'][number];

const SLICE_OPERATIONS = 1_000_000;
const JOBS_SHOWN_MAX = 100;
const sha256 = (text: string): string => createHash('sha256').update(text).digest('hex');

/** Tells the plan; the exit code says whether all of it would be accepted and placed. */
export async function tellPlan(
  session: Session,
  draft: DeploymentDraft,
  keys: readonly Identity[],
  json: boolean,
): Promise<number> {
  const roster = await allNodes(session);
  const planned = planOf(session, draft, keys, roster);
  if (json) printJson('plan', planned);
  else tell(planned, roster);
  return planned.refusals.length === 0 ? EXIT.done : EXIT.refused;
}

function planOf(
  session: Session,
  draft: DeploymentDraft,
  keys: readonly Identity[],
  roster: readonly RosterNode[],
): Planned {
  const { context, on } = draft;
  const refusals: Refused[] = [];
  const refuse = (job: number | null, { code, message }: ErrorRecord): void =>
    void refusals.push({ job, code, message });
  const verdict = judge(session, draft, keys);
  const found = place({ on, capabilities: [], class: null, context }, roster, () => 0);
  if ('reasons' in found) refuse(null, failure('unplaced', explain(found.reasons)));
  const seen: Seen =
    'refused' in verdict
      ? { jobs: [], step: { state: 'failed', error: verdict.refused, refused: true } }
      : derive(verdict, flowOf(draft));
  if (seen.step.state === 'failed') refuse(null, seen.step.error);
  // What a script spawned before it failed is never planned.
  const jobs = seen.step.state === 'failed' ? [] : seen.jobs;
  return {
    creates: placeAll(context, jobs, roster, (n, reason) => refuse(n, failure('unplaced', reason))),
    refusals,
    hash: sha256([contentOf(draft), ...jobs.map(({ digest }) => digest)].join('\n')),
    supervisor: 'node' in found ? addressText(found.node.address) : null,
    until: untilText(seen.step),
  };
}

/** As a node would judge it: signatures, the policy of the context, the limits of the message. */
function judge(
  session: Session,
  draft: DeploymentDraft,
  keys: readonly Identity[],
): Admitted | { refused: ErrorRecord } {
  const record = session.contexts.find(({ context }) => context === draft.context);
  if (record === undefined) {
    const who = session.bus.principal;
    return { refused: failure('not_executor', `${who} has no part in a context ${draft.context}`) };
  }
  const at = session.bus.now();
  const bytes = sealDeployment(draft, keys, at);
  const { flow, signatures } = open(bytes);
  const deploy = {
    seq: 1,
    at,
    envelope: new TextDecoder().decode(bytes),
    engine: ENGINE_VERSION,
    ledgerRevision: 0,
    submittedBy: signatures.map(({ keyid }) => keyid),
  };
  return admit({ context: draft.context, flow }, deploy, record);
}

/** All that is signed but when and the nonce. */
function contentOf(draft: DeploymentDraft): string {
  return stringifyTyped({ ...draft, lifetimeMs: 0 } as unknown as JsonValue);
}

/** A plan has no flow id; one that depends on the content alone gives the same plan each time. */
const flowOf = (draft: DeploymentDraft): string =>
  base32(createHash('sha256').update(contentOf(draft)).digest().subarray(0, 16)).toLowerCase();

type Seen = { jobs: readonly DerivedJob[]; step: Step };

function derive({ env }: Admitted, flow: string): Seen {
  const derivation = new Derivation({ ...env, flow, sha256 });
  const history = { job: () => undefined, answer: () => undefined, nowMs: env.deployedMs };
  for (;;) {
    const step = derivation.advance(history, SLICE_OPERATIONS);
    if (step.state !== 'sliced') return { jobs: derivation.jobs, step };
  }
}

function placeAll(
  context: string,
  jobs: readonly DerivedJob[],
  roster: readonly RosterNode[],
  unplaced: (n: number, reason: string) => void,
): Created[] {
  const given = new Map<string, number>();
  return jobs.map(({ n, line, spec }) => {
    const { kind, name, payload, needs, on, after } = spec;
    const need = { on, capabilities: needs, class: kind, context };
    const found = place(need, roster, (address) => given.get(address) ?? 0);
    const address = 'node' in found ? found.node.address : null;
    if (address !== null) given.set(address, (given.get(address) ?? 0) + 1);
    const node = address === null ? null : addressText(address);
    if ('reasons' in found) unplaced(n, explain(found.reasons));
    return { job: n, kind, name, node, after, needs, line, payload };
  });
}

function untilText(step: Step): string {
  switch (step.state) {
    case 'waiting':
      return `the script waits for ${step.mode === 'any' ? 'any of ' : ''}${step.jobs.length === 1 ? 'job' : 'jobs'} ${step.jobs.join(', ')}`;
    case 'asks':
      return `the script asks ${step.name}(${step.args}) in line ${step.line}`;
    case 'sleeps':
      return `the script sleeps ${step.ms} ms`;
    case 'done':
      return 'the script ends';
    case 'failed':
      return 'the script is not run, or fails';
    default:
      return 'the script waits';
  }
}

function tell(
  { creates, refusals, hash, supervisor, until }: Planned,
  roster: readonly RosterNode[],
): void {
  const nameOf = (address: string | null): string =>
    roster.find((node) => addressText(node.address) === address)?.name ?? address ?? '-';
  print(told('flow', `would be placed on ${nameOf(supervisor)}`));
  print(
    told('creates', `${creates.length} ${creates.length === 1 ? 'job' : 'jobs'}, until ${until}`),
  );
  if (creates.length > 0) {
    const rows = creates
      .slice(0, JOBS_SHOWN_MAX)
      .map(({ job, kind, name, node, after, line }) => [
        String(job),
        kind,
        name,
        nameOf(node),
        after.join(',') || '-',
        String(line),
      ]);
    print(table(['JOB', 'KIND', 'NAME', 'NODE', 'AFTER', 'LINE'], rows));
  }
  if (creates.length > JOBS_SHOWN_MAX)
    print(`… and ${creates.length - JOBS_SHOWN_MAX} more; --json shows all`);
  for (const { job, code, message } of refusals) {
    const [text = message] = errorLines({ code, message, actor: null, node: null, cause: null });
    print(told(job === null ? 'refused' : `job ${job}`, text));
  }
  print(told('hash', hash));
  print(told('changed', 'nothing: this was a plan'));
}
