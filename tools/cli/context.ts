/** `herobus context …`: tenants and who has which part in them. Changes are signed by the home's key. */
import type { Command } from 'commander';
import { addressOf } from '../../bus/identity.ts';
import type { Answer } from '../../schemas/answers.ts';
import {
  ContextRecord,
  ContextRole,
  type LedgerChange,
  QuotaChange,
  type Quotas,
  SigningPolicy,
} from '../../schemas/ledger.ts';
import { collect } from './arguments.ts';
import { usage } from './failure.ts';
import { told } from './narrate.ts';
import { globals, print, printJson, say, withExample } from './output.ts';
import { sealChange } from './seal.ts';
import { contextOf, type Session, withSession } from './session.ts';

type ChangeOptions = { reason?: string };
type QuotaOptions = ChangeOptions & Record<string, string | undefined>;
type PolicyOptions = ChangeOptions & { m?: string; require?: string[] };

export function registerContext(program: Command): void {
  const context = program
    .command('context')
    .summary('tenants: who may do what in them')
    .description('Contexts are tenants: admins, executors, readers, and how many must sign.');
  registerCreate(context);
  registerMember(context, 'grant', 'give a principal a role in a context');
  registerMember(context, 'revoke', 'take a role in a context from a principal');
  registerShow(context);
  registerPolicy(context);
  registerQuota(context);
  withExample(context, 'herobus context create acme');
}

function registerCreate(context: Command): void {
  const command = context
    .command('create')
    .description(
      'Makes a context with you as its admin and executor. Needs an admin of the ledger.',
    )
    .argument('<name>', 'a-z, 0-9 and -, at most 32')
    .option('--reason <text>', 'why, for the audit')
    .action((name: string, options: ChangeOptions, self: Command) =>
      change(self, options, (session) => ({
        change: 'context_create',
        context: contextOf(name, session.home),
      })),
    );
  withExample(command, 'herobus context create acme');
}

function registerMember(context: Command, verb: 'grant' | 'revoke', description: string): void {
  const command = context
    .command(verb)
    .description(`${description[0]?.toUpperCase()}${description.slice(1)}.`)
    .argument('<name>', 'the context')
    .argument('<principal>', 'U…, as `herobus init` shows it')
    .argument('<role>', ContextRole.options.join(', '))
    .option('--reason <text>', 'why, for the audit')
    .action(
      (name: string, principal: string, role: string, options: ChangeOptions, self: Command) => {
        const parsed = ContextRole.safeParse(role);
        if (!parsed.success) {
          throw usage(`"${role}" is no role: it is one of ${ContextRole.options.join(', ')}`);
        }
        return change(self, options, (session) => ({
          change: verb === 'grant' ? 'context_grant' : 'context_revoke',
          context: contextOf(name, session.home),
          principal: parsePrincipal(principal),
          role: parsed.data,
        }));
      },
    );
  withExample(
    command,
    `herobus context ${verb} acme UAB2CB576PHBBPQ5ODORRZ2LYCMWPZGWGCN2KDK7DXOIMZASKUY3RLKK executor`,
  );
}

function registerPolicy(context: Command): void {
  const command = context
    .command('policy')
    .description('Says how many executors must sign a deployment, and who must be among them.')
    .argument('<name>', 'the context')
    .option('--m <n>', 'so many signatures of executors')
    .option('--require <principal>', 'this one must be among them; may be repeated', collect)
    .option('--reason <text>', 'why, for the audit')
    .action((name: string, options: PolicyOptions, self: Command) => {
      const m = Number(options.m ?? '1');
      const policy = SigningPolicy.safeParse({
        m,
        required: (options.require ?? []).map(parsePrincipal),
      });
      if (!policy.success || (options.m !== undefined && !/^\d+$/.test(options.m))) {
        throw usage('--m is a whole number from 1 to 16');
      }
      return change(self, options, (session) => ({
        change: 'context_policy',
        context: contextOf(name, session.home),
        policy: policy.data,
      }));
    });
  withExample(command, 'herobus context policy acme --m 2');
}

/** What each quota is called as an option, and what it says. */
const QUOTAS: Record<keyof Quotas, { flag: string; text: string }> = {
  open_flows: { flag: 'open-flows', text: 'flows that have not ended' },
  deploys_per_minute: { flag: 'deploys-per-minute', text: 'deployments taken in a minute' },
  jobs_per_flow: { flag: 'jobs-per-flow', text: 'jobs one flow may spawn' },
  open_jobs: { flag: 'open-jobs', text: 'jobs queued or running at one supervisor' },
};

function registerQuota(context: Command): void {
  const command = context
    .command('quota')
    .description('Says how much a context may have at most. Needs an admin of the ledger.')
    .argument('<name>', 'the context')
    .option('--reason <text>', 'why, for the audit');
  for (const { flag, text } of Object.values(QUOTAS)) {
    command.option(`--${flag} <n>`, `${text}; "none" for no limit`);
  }
  command.action((name: string, options: QuotaOptions, self: Command) => {
    const quotas = quotasIn(options);
    return change(self, options, (session) => ({
      change: 'context_quota',
      context: contextOf(name, session.home),
      quotas,
    }));
  });
  withExample(command, 'herobus context quota acme --open-flows 100 --open-jobs 10000');
}

function quotasIn(options: QuotaOptions): QuotaChange {
  const entries = Object.entries(QUOTAS).flatMap(([key, { flag }]) => {
    const text = options[flag.replaceAll(/-(.)/g, (_, letter: string) => letter.toUpperCase())];
    if (text === undefined) return [];
    return [[key, text === 'none' ? null : /^\d+$/.test(text) ? Number(text) : Number.NaN]];
  });
  const flags = Object.values(QUOTAS).map(({ flag }) => `--${flag}`);
  if (entries.length === 0) throw usage(`name a quota: ${flags.join(', ')}`);
  const quotas = QuotaChange.safeParse(Object.fromEntries(entries));
  if (quotas.success) return quotas.data;
  const wrong = QUOTAS[quotas.error.issues[0]?.path[0] as keyof Quotas];
  throw usage(`--${wrong.flag} is a whole number from 1 on, or none`);
}

function registerShow(context: Command): void {
  const command = context
    .command('show')
    .description('Shows one context, or all in which you have a role.')
    .argument('[name]', 'the context')
    .action(async (name: string | undefined, _options: object, self: Command) => {
      const { json } = globals(self);
      await withSession(self, async (session) => {
        if (name !== undefined) {
          const asked = { context: contextOf(name, session.home) };
          const record = ContextRecord.parse(await session.ask('context', asked));
          return json ? printJson('context', contextObject(record)) : showContext(record);
        }
        if (json) return printJson('contexts', session.contexts.map(contextObject));
        if (session.contexts.length === 0) return say('you have no role in any context');
        for (const record of session.contexts) showContext(record);
      });
    });
  withExample(command, 'herobus context show acme');
}

async function change(
  self: Command,
  { reason }: ChangeOptions,
  make: (session: Session) => LedgerChange,
): Promise<void> {
  await withSession(self, async (session) => {
    const asked = make(session);
    const { home, bus } = session;
    const bytes = sealChange(asked, reason ?? null, home.identity, bus.now());
    const record = ContextRecord.parse(await session.ask('change', bytes));
    if (globals(self).json) printJson('context', contextObject(record));
    else showContext(record);
  });
}

/** Without the ledger's own marks: who changed what is the audit's. */
function contextObject(record: ContextRecord): Answer<'context'> {
  const { context, admins, executors, readers, policy, allowed, quotas, created_ms } = record;
  const created_at = new Date(created_ms).toISOString();
  return { context, admins, executors, readers, policy, allowed, quotas, created_at };
}

function showContext({
  context,
  admins,
  executors,
  readers,
  policy,
  allowed,
  quotas,
}: ContextRecord): void {
  const must = policy.required.length === 0 ? '' : `, among them ${policy.required.join(', ')}`;
  print(told('context', context));
  print(told('admins', admins.join(', ')));
  print(told('executors', executors.join(', ') || '-'));
  print(told('readers', readers.join(', ') || '-'));
  print(told('policy', `${policy.m} of ${executors.length} executors must sign${must}`));
  print(told('allowed', allowed.join(', ') || '-'));
  const limits = Object.entries(QUOTAS).flatMap(([key, { text }]) => {
    const limit = quotas[key as keyof Quotas];
    return limit === null ? [] : [`${limit} ${text}`];
  });
  print(told('quotas', limits.join(', ') || 'none'));
}

function parsePrincipal(text: string): string {
  if (addressOf(text) !== undefined) return text;
  throw usage(
    `"${text}" is no principal`,
    'A principal is U and 55 more characters, as `herobus init` shows it.',
  );
}
