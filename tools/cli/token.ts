/**
 * `herobus token create`: a word that lets newcomers into a closed ledger, for so many uses and so long. It
 * is drawn here and shown once; the ledger is told its hash only.
 */
import { createHash, randomBytes } from 'node:crypto';
import type { Command } from 'commander';
import { TOKEN_TTL_MAX_MS, TOKEN_USES_MAX, TokenRecord } from '../../schemas/ledger.ts';
import { parseDuration } from './arguments.ts';
import { usage } from './failure.ts';
import { told } from './narrate.ts';
import { globals, print, printJson, say, withExample } from './output.ts';
import { sealChange } from './seal.ts';
import { withSession } from './session.ts';

type TokenOptions = { uses: string; ttl: string; reason?: string };

export function registerToken(program: Command): void {
  const token = program
    .command('token')
    .summary('let newcomers into a closed ledger')
    .description('Tokens let newcomers register where the ledger is closed (`up --closed`).');
  const command = token
    .command('create')
    .description(
      'Makes a token and prints it: it is shown this once and kept nowhere, the ledger knows its hash. Use it with `up --join … --token T`, or as HEROBUS_TOKEN for a user. Needs an admin of the ledger.',
    )
    .option('--uses <n>', `how many keys may come in with it, at most ${TOKEN_USES_MAX}`, '1')
    .option('--ttl <duration>', 'how long it is good for, by the clock of the bus', '24h')
    .option('--reason <text>', 'why, for the audit')
    .action(async (options: TokenOptions, self: Command) => {
      const uses = parseUses(options.uses);
      const ttlMs = parseTtl(options.ttl);
      await withSession(self, async (session) => {
        const word = `hb_${randomBytes(24).toString('base64url')}`;
        const hash = createHash('sha256').update(word).digest('hex');
        const { home, bus } = session;
        const change = { change: 'token_create', hash, uses, ttl_ms: ttlMs } as const;
        const bytes = sealChange(change, options.reason ?? null, home.identity, bus.now());
        const record = TokenRecord.parse(await session.ask('change', bytes));
        const expires_at = new Date(record.expires_ms).toISOString();
        if (globals(self).json) {
          return printJson('token', { token: word, uses: record.uses, expires_at });
        }
        say(told('token', `good for ${uses} ${uses === 1 ? 'use' : 'uses'} until ${expires_at}`));
        return print(word);
      });
    });
  withExample(command, 'herobus token create --uses 10 --ttl 1h');
  withExample(token, 'herobus token create --uses 10 --ttl 1h');
}

function parseUses(text: string): number {
  const uses = Number(text);
  if (/^\d+$/.test(text) && uses >= 1 && uses <= TOKEN_USES_MAX) return uses;
  throw usage(`--uses "${text}" is no whole number from 1 to ${TOKEN_USES_MAX}`);
}

function parseTtl(text: string): number {
  const ms = parseDuration(text, '--ttl');
  if (ms >= 1 && ms <= TOKEN_TTL_MAX_MS) return ms;
  throw usage(`--ttl ${text}: a token lives more than nothing and at most 365 days`);
}
