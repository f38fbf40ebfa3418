/** `herobus nodes`: the roster: who is there, how alive, with what to offer. */
import type { Command } from 'commander';
import { addressText } from '../../schemas/ids.ts';
import type { NodeObject, RosterNode } from '../../schemas/node.ts';
import { allNodes } from './narrate.ts';
import { globals, print, printJson, say, shortPrincipals, table, withExample } from './output.ts';
import { withSession } from './session.ts';

export function registerNodes(program: Command): void {
  const command = program
    .command('nodes')
    .summary('list the nodes')
    .description('Lists the nodes of the bus with their state, their runners and their load.')
    .action(async (_options: object, self: Command) => {
      await withSession(self, async (session) => {
        const nodes = await allNodes(session);
        if (globals(self).json) return printJson('nodes', nodes.map(nodeObject));
        if (nodes.length === 0) return say('no node has joined');
        return print(nodeTable(nodes));
      });
    });
  withExample(command, 'herobus nodes');
}

export function nodeObject(node: RosterNode): NodeObject {
  const { since_ms, beat_ms, address, ...rest } = node;
  return {
    ...rest,
    address: addressText(address),
    since: new Date(since_ms).toISOString(),
    last_beat: new Date(beat_ms).toISOString(),
  };
}

/** Why a node is not live stands last, where it takes the room that is left. */
export function nodeTable(
  nodes: readonly RosterNode[],
  columns: number | undefined = process.stdout.columns,
): string {
  const heading = ['NAME', 'ADDRESS', 'STATE', 'GROUPS', 'RUNNERS (BUSY/SLOTS)', 'FLOWS', 'LOAD'];
  const rows = nodes.map((node) => [
    node.name,
    addressText(node.address),
    node.liveness === 'live' ? node.state : node.liveness,
    node.groups.join(',') || '-',
    node.runners.map((each) => `${each.class} ${each.busy}/${each.slots}`).join(', ') || '-',
    String(node.flows),
    node.load1.toFixed(1),
    node.version,
  ]);
  if (nodes.every(({ reason }) => reason === null)) return table([...heading, 'VERSION'], rows);
  const reasons = nodes.map(({ reason }) => shortPrincipals(reason ?? '-'));
  return table(
    [...heading, 'VERSION', 'WHY'],
    rows.map((row, i) => [...row, reasons[i] ?? '']),
    columns,
  );
}
