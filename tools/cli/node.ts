/**
 * `herobus node`: one node as the roster and the ledger know it, and what an admin of the ledger decides of
 * it: approve, revoke, drain, undrain. A decision is a change of the ledger, signed by the home's key.
 */
import type { Command } from 'commander';
import type { Answer } from '../../schemas/answers.ts';
import { HeroError } from '../../schemas/errors.ts';
import { addressText, parseAddress, Principal } from '../../schemas/ids.ts';
import type { LedgerChange, PrincipalRecord } from '../../schemas/ledger.ts';
import type { RosterNode } from '../../schemas/node.ts';
import { allNodes, told } from './narrate.ts';
import { nodeObject } from './nodes.ts';
import { nodeLines } from './node-view.ts';
import { globals, print, printJson, say, withExample } from './output.ts';
import { allPrincipals, changePrincipal, principalObject } from './principal.ts';
import { type Session, withSession } from './session.ts';

const VERBS = {
  approve: 'let a node in that waits for it, or that was revoked',
  revoke: 'shut a node out: its beats and claims count for nothing any more',
  drain: 'give a node no new flows and jobs; its flows move, what runs on it finishes',
  undrain: 'give a drained node work again',
} as const;
type Verb = keyof typeof VERBS;

export function registerNode(program: Command): void {
  const node = program
    .command('node')
    .summary('show a node; approve, revoke, drain or undrain it')
    .description('Shows one node: what the roster sees of it and how it is registered.')
    .argument('<node>', 'its address, its name or its key (U…)')
    .action(async (text: string, _options: object, self: Command) => {
      await withSession(self, (session) => show(session, text, globals(self).json ?? false));
    });
  for (const verb of Object.keys(VERBS) as Verb[]) registerVerb(node, verb);
  withExample(node, 'herobus node first', 'herobus node drain first --reason "new disks"');
}

function registerVerb(node: Command, verb: Verb): void {
  const what = VERBS[verb];
  const command = node
    .command(verb)
    .description(`${what[0]?.toUpperCase()}${what.slice(1)}. Needs an admin of the ledger.`)
    .argument('<node>', 'its address, its name or its key (U…)')
    .option('--reason <text>', 'why, for the roster and the audit')
    .action(async (text: string, options: { reason?: string }, self: Command) => {
      await withSession(self, async (session) => {
        const { principal } = registrationOf(await registeredNodes(session), text);
        const record = await changePrincipal(session, changeOf(verb, principal), options.reason);
        say(told(DONE[verb], `node ${record.name} (${addressText(record.address)})`));
        if (globals(self).json) printJson('principal', principalObject(record));
      });
    });
  withExample(command, `herobus node ${verb} 4a4:459a:71c1:3cb0:717:5626:f0c8:d354`);
}

const DONE = { approve: 'approved', revoke: 'revoked', drain: 'drained', undrain: 'undrained' };

function changeOf(verb: Verb, principal: string): LedgerChange {
  const change =
    verb === 'approve' || verb === 'revoke'
      ? (`principal_${verb}` as const)
      : (`node_${verb}` as const);
  return { change, principal, kind: 'node' };
}

async function registeredNodes(session: Session): Promise<PrincipalRecord[]> {
  return (await allPrincipals(session)).filter(({ kind }) => kind === 'node');
}

async function show(session: Session, text: string, json: boolean): Promise<void> {
  const roster = await allNodes(session);
  // Only admins see registrations; the roster is for everybody.
  const records = await registeredNodes(session).catch((error: unknown) => {
    if (error instanceof HeroError && error.code === 'not_allowed') return [];
    throw error;
  });
  const seen = matching(roster, text);
  const known = matching(records, text);
  const address = one([...seen, ...known], text);
  const node = seen.find((each) => each.address === address);
  const record =
    known.find((each) => each.address === address) ??
    records.find((each) => each.address === address);
  if (json) return printJson('node', shown(node, record));
  for (const line of nodeLines(node, record)) print(line);
}

function shown(node: RosterNode | undefined, record: PrincipalRecord | undefined): Answer<'node'> {
  if (node === undefined) return onlyRegistered(record as PrincipalRecord);
  const registration = record === undefined ? null : principalObject(record);
  return { ...nodeObject(node), registration };
}

function onlyRegistered(record: PrincipalRecord): Answer<'node'> {
  const registration = principalObject(record);
  const { address, principal, name } = registration;
  return { address, principal, name, liveness: null, registration };
}

type Named = { address: string; principal: string; name: string };

function matching<T extends Named>(all: readonly T[], text: string): T[] {
  const address = parseAddress(text);
  return all.filter((each) =>
    address !== undefined
      ? each.address === address
      : Principal.safeParse(text).success
        ? each.principal === text
        : each.name === text,
  );
}

function registrationOf(records: readonly PrincipalRecord[], text: string): PrincipalRecord {
  const found = matching(records, text);
  const address = one(found, text);
  return found.find((each) => each.address === address) as PrincipalRecord;
}

/** The one address that is meant; a name may be several nodes'. */
function one(found: readonly Named[], text: string): string {
  const addresses = [...new Set(found.map(({ address }) => address))];
  if (addresses.length === 1) return addresses[0] as string;
  if (addresses.length === 0) {
    throw new HeroError('not_found', `there is no node ${text}`, {
      fix: 'See them with `herobus nodes`; who waits for approval with `herobus principal list`.',
    });
  }
  const shownAddresses = addresses.map((address) => addressText(address)).join(', ');
  throw new HeroError('usage', `${addresses.length} nodes are named ${text}`, {
    fix: `Name the one you mean by its address: ${shownAddresses}.`,
  });
}
