/** `herobus sign`: adds a signature to sealed bytes, in the file they are in. What was signed stays as it is. */
import type { Command } from 'commander';
import { writeAtomic } from '../../bus/atomic-file.ts';
import { addSignature, open } from '../../bus/envelope.ts';
import { ensureError } from '../../schemas/errors.ts';
import { usage } from './failure.ts';
import { readInput } from './files.ts';
import { openHome, readKeyFile } from './home.ts';
import { globals, print, printJson, say, withExample } from './output.ts';

type SignOptions = { key?: string; out?: string };

export function registerSign(program: Command): void {
  const command = program
    .command('sign')
    .summary('add a signature to sealed bytes')
    .description(
      'Adds a signature to sealed bytes that `deploy --out` wrote. Read what you sign with `herobus verify` first.',
    )
    .argument('<file>', 'the sealed bytes')
    .option('--key <keyfile>', "the key; by default the home's")
    .option('--out <file>', 'write there instead of into the same file')
    .action(async (path: string, { key, out }: SignOptions, self: Command) => {
      const { home: given, json } = globals(self);
      const identity =
        key === undefined ? (await openHome(given)).identity : await readKeyFile(key);
      const bytes = addSignature(await readInput(path, 'sealed message'), identity);
      const { flow, signatures } = open(bytes);
      const signers = signatures.map(({ keyid }) => keyid);
      if (path === '-' && out === undefined) {
        if (json) throw usage('--json needs --out where the bytes come from standard input');
        return print(Buffer.from(bytes).toString());
      }
      const target = out ?? path;
      await writeAtomic(target, Buffer.from(bytes).toString(), 0o644).catch((cause: unknown) => {
        throw usage(`${target} cannot be written: ${ensureError(cause).message}`);
      });
      say(`signed      by ${identity.principal}; ${signers.length} signature(s) in ${target}`);
      if (json) printJson('signed', { flow, file: target, signers });
    });
  withExample(command, 'herobus sign web.sealed --key ~/.herobus/key.nk');
}
