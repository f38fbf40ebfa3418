#!/usr/bin/env node
// The command `herobus`: plain ES2022, for whatever Node is on PATH.
// dist/cli.js runs itself on the packaged Node when this one is older (tools/cli/entry.ts).
import { existsSync } from 'node:fs';

const cli = new URL('../dist/cli.js', import.meta.url);
if (existsSync(cli)) {
  await import(cli.href);
} else {
  process.stderr.write(
    'herobus: dist/cli.js is missing: this is a source tree that was not built\n  fix: npm run build\n',
  );
  process.exitCode = 1;
}
