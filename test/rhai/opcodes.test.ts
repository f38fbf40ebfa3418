/** The dispatch loop's literal numbers are the opcodes their comments name. */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import { OP } from '../../rhai/bytecode.ts';

test('opcodes - every case of the loop is the opcode it says', () => {
  const source = readFileSync(new URL('../../rhai/machine.ts', import.meta.url), 'utf8');
  const found = [...source.matchAll(/case (\d+):(?: \{\s*)? *\/\/ ([A-Z0-9]+)/g)];
  assert.ok(found.length > 60, `${found.length} cases`);
  for (const [, number, name] of found) {
    assert.equal(OP[name as keyof typeof OP], Number(number), name);
  }
  assert.equal(new Set(Object.values(OP)).size, Object.keys(OP).length);
});
