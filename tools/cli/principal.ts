/** `herobus principal list`: who has registered, or waits for it. For admins of the ledger. */
import type { Command } from 'commander';
import { addressText } from '../../bus/identity.ts';
import { type PrincipalRecord, PrincipalsReply } from '../../schemas/ledger.ts';
import { globals, print, printJson, table, withExample } from './output.ts';
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
        if (globals(self).json) printJson(records.map(principalObject));
        else print(principalTable(records));
      });
    });
  withExample(command, 'herobus principal list');
}

async function allPrincipals(session: Session): Promise<PrincipalRecord[]> {
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

function principalObject(record: PrincipalRecord): object {
  const { principal, kind, name, address, status, roles, created_ms, by } = record;
  const created_at = new Date(created_ms).toISOString();
  return { principal, kind, name, address, status, roles, created_at, by };
}

function principalTable(records: readonly PrincipalRecord[]): string {
  return table(
    ['PRINCIPAL', 'KIND', 'NAME', 'STATUS', 'ROLES', 'ADDRESS'],
    records.map(({ principal, kind, name, status, roles, address }) => [
      principal,
      kind,
      name,
      status,
      roles.join(',') || '-',
      addressText(address),
    ]),
  );
}
