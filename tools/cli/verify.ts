/**
 * `herobus verify`: sealed bytes checked without a bus: their form, their signatures, whether they have
 * expired. Whether the signers may do this in the context is the ledger's to know.
 */
import type { Command } from 'commander';
import { verifySignatures } from '../../bus/envelope.ts';
import type { Answer } from '../../schemas/answers.ts';
import { HeroError } from '../../schemas/errors.ts';
import { exactJson, type JsonValue, stringifyTyped } from '../../schemas/json.ts';
import { told } from './narrate.ts';
import { globals, print, printJson, withExample } from './output.ts';
import { readSealed, type SealedContent } from './sealed.ts';

export function registerVerify(program: Command): void {
  const command = program
    .command('verify')
    .summary('check sealed bytes without a bus')
    .description(
      'Checks the form, the signatures and the expiry of sealed bytes, and shows what they say. Whether the signers may do this is judged where it is published.',
    )
    .argument('<file>', 'the sealed bytes; - reads them from standard input')
    .option('--script', 'print the script itself and nothing else')
    .action(async (path: string, options: { script?: boolean }, self: Command) => {
      const sealed = await readSealed(path);
      if (sealed.fault instanceof HeroError) throw sealed.fault;
      if (sealed.opened === undefined || sealed.content === undefined) {
        throw new HeroError('bad_envelope', 'the payload is no deployment and no command', {
          cause: sealed.fault,
        });
      }
      const signers = verifySignatures(sealed.opened);
      assertNotExpired(sealed.content);
      if (options.script) return printScript(sealed.content);
      const { flow, digest } = sealed.opened;
      const shown = shownOf(sealed.content, { flow, digest, message: sealed.digest, signers });
      if (globals(self).json) return printJson('verified', shown);
      for (const [key, value] of Object.entries(shown)) print(told(key, textOf(value)));
    });
  withExample(command, 'herobus verify web.sealed', 'herobus verify web.sealed --script');
}

/** Lists in words; maps, which a script's arguments may be, exactly. */
function textOf(value: unknown): string {
  if (typeof value === 'string') return value;
  if (Array.isArray(value)) return value.map(textOf).join(', ') || '-';
  const text = JSON.stringify(value);
  return value === null || text === '{}' ? '-' : text;
}

function assertNotExpired(content: SealedContent): void {
  const { expires_at } = content.type === 'deployment' ? content.deployment : content.command;
  if (Date.parse(expires_at) > Date.now()) return;
  throw new HeroError('expired', `it expired at ${expires_at}`, {
    fix: 'Seal it anew with `herobus deploy --out`.',
  });
}

function printScript(content: SealedContent): void {
  if (content.type === 'command') throw new HeroError('usage', 'a command has no script');
  print(content.deployment.script);
}

type Signed = Pick<Answer<'verified'>, 'flow' | 'digest' | 'message' | 'signers'>;

function shownOf(content: SealedContent, signed: Signed): Answer<'verified'> {
  const { flow, ...rest } = signed;
  if (content.type === 'command') {
    return { type: 'command', ...rest, ...content.command };
  }
  const { args, ...payload } = content.deployment;
  const exact = exactJson(stringifyTyped(args as JsonValue)) as Record<string, unknown>;
  return { flow, type: 'deployment', ...rest, ...payload, args: exact };
}
