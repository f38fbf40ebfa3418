/**
 * `herobus principal`: who has registered, or waits for it, and who is let in or shut out. For admins of the
 * ledger. Nodes have more to decide: node.ts.
 */
import type { Command } from 'commander';
import type { Answer } from '../../schemas/answers.ts';
import { HeroError } from '../../schemas/errors.ts';
import { addressText, Principal } from '../../schemas/ids.ts';
import {
  type LedgerChange,
  PrincipalKind,
  PrincipalRecord,
  PrincipalsReply,
} from '../../schemas/ledger.ts';
import { usage } from './failure.ts';
import { told } from './narrate.ts';
import { globals, print, printJson, say, table, withExample } from './output.ts';
import { sealChange } from './seal.ts';
import { type Session, withSession } from './session.ts';

const PAGE = 500;

export function registerPrincipal(program: Command): void {
  const principal = program
    .command('principal')
    .summary('who is registered')
    .description('Principals: users and nodes the ledger knows.');
  const command = principal
    .command('list')
    .description('Lists who has registered, or waits to be approved. Needs an admin of the ledger.')
    .action(async (_options: object, self: Command) => {
      await withSession(self, async (session) => {
        const records = await allPrincipals(session);
        if (globals(self).json) printJson('principals', records.map(principalObject));
        else print(principalTable(records));
      });
    });
  withExample(command, 'herobus principal list');
  withExample(principal, 'herobus principal list');
  registerVerb(principal, 'approve', 'Lets a principal in that waits for it, or that was revoked.');
  registerVerb(principal, 'revoke', 'Shuts a principal out: what it signs counts for nothing.');
}

type VerbOptions = { kind?: string; reason?: string };

function registerVerb(group: Command, verb: 'approve' | 'revoke', description: string): void {
  const command = group
    .command(verb)
    .description(`${description} Needs an admin of the ledger.`)
    .argument('<principal>', 'U…, as `herobus principal list` shows it')
    .option('--kind <kind>', 'user or node, where the key is both')
    .option('--reason <text>', 'why, for the audit')
    .action(async (text: string, { kind, reason }: VerbOptions, self: Command) => {
      const principal = Principal.safeParse(text);
      if (!principal.success) throw usage(`"${text}" is no principal: U and 55 characters`);
      const asked = kind === undefined ? undefined : PrincipalKind.safeParse(kind).data;
      if (kind !== undefined && asked === undefined) throw usage('--kind is user or node');
      await withSession(self, async (session) => {
        const change = {
          change: `principal_${verb}` as const,
          principal: principal.data,
          kind: asked ?? (await onlyKind(session, principal.data)),
        };
        const record = await changePrincipal(session, change, reason);
        say(told(`${verb}d`, `${record.kind} ${record.name} (${record.principal})`));
        if (globals(self).json) printJson('principal', principalObject(record));
      });
    });
  withExample(
    command,
    `herobus principal ${verb} UAB2CB576PHBBPQ5ODORRZ2LYCMWPZGWGCN2KDK7DXOIMZASKUY3RLKK`,
  );
}

async function onlyKind(session: Session, principal: Principal): Promise<PrincipalKind> {
  const all = await allPrincipals(session);
  const kinds = all.filter((each) => each.principal === principal).map(({ kind }) => kind);
  if (kinds.length > 1) throw usage(`${principal} is a user and a node: say --kind user or node`);
  if (kinds[0] !== undefined) return kinds[0];
  throw new HeroError('not_found', `no ${principal} has asked to be registered`, {
    fix: 'See who has: `herobus principal list`.',
  });
}

/** A signed change of one registration; the record as it stands after it. */
export async function changePrincipal(
  session: Session,
  change: LedgerChange,
  reason: string | undefined,
): Promise<PrincipalRecord> {
  if (reason !== undefined && reason.length > 1024) throw usage('--reason takes 1024 characters');
  const { home, bus } = session;
  const bytes = sealChange(change, reason ?? null, home.identity, bus.now());
  return PrincipalRecord.parse(await session.ask('change', bytes));
}

export async function allPrincipals(session: Session): Promise<PrincipalRecord[]> {
  const records: PrincipalRecord[] = [];
  let after: string | null = null;
  do {
    const page: PrincipalsReply = PrincipalsReply.parse(
      await session.ask('principals', { after, limit: PAGE }),
    );
    records.push(...page.principals);
    after = page.next;
  } while (after !== null);
  return records;
}

export function principalObject(record: PrincipalRecord): Answer<'principal'> {
  const { principal, kind, name, address, status, roles, created_ms, by, drain } = record;
  const created_at = new Date(created_ms).toISOString();
  const drained =
    drain === null || drain === undefined
      ? null
      : { by: drain.by, at: new Date(drain.at_ms).toISOString(), reason: drain.reason };
  return {
    principal,
    kind,
    name,
    address: addressText(address),
    status,
    roles,
    created_at,
    by,
    drained,
  };
}

/** A key may be registered as a user and as a node, as a home's own is: it is one row. */
export function principalTable(records: readonly PrincipalRecord[]): string {
  const principals = new Map<string, PrincipalRecord[]>();
  for (const record of records) {
    principals.set(record.principal, [...(principals.get(record.principal) ?? []), record]);
  }
  return table(
    ['PRINCIPAL', 'KIND', 'NAME', 'STATUS', 'ROLES', 'ADDRESS'],
    [...principals].map(([principal, as]) => [
      principal,
      as.map(({ kind }) => kind).join(', '),
      once(as, ({ name }) => name),
      once(as, ({ status }) => status),
      once(as, ({ roles }) => roles.join(',') || '-'),
      ...as.slice(0, 1).map(({ address }) => addressText(address)),
    ]),
  );
}

/** What holds for all of them once, else for each in the order of their kinds. */
function once(as: readonly PrincipalRecord[], of: (record: PrincipalRecord) => string): string {
  const said = as.map(of);
  return new Set(said).size === 1 ? (said[0] ?? '') : said.join(', ');
}
