/** `herobus doctor` on this machine, without a bus: every check is there, and what is wrong has its mend. */
import assert from 'node:assert/strict';
import { chmodSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { runCli, temporaryFolder } from './cli.ts';

type Check = { name: string; ok: boolean; detail: string; fix: string | null };

const NAMES =
  'node nats-server setpriv unshare cgroup kvm podman qemu btrfs bubblewrap mycelium disk key losses bus clock';

async function examined(
  home: string,
): Promise<{ code: number | null; checks: Map<string, Check> }> {
  const { code, stdout } = await runCli(home, ['--json', 'doctor']);
  const { checks } = JSON.parse(stdout) as { checks: Check[] };
  assert.equal(checks.map(({ name }) => name).join(' '), NAMES);
  for (const check of checks) {
    assert.deepEqual(Object.keys(check), ['name', 'ok', 'detail', 'fix']);
    assert.notEqual(check.detail, '');
    assert.equal(check.fix === null, check.ok, `${check.name}: ${check.fix}`);
  }
  return { code, checks: new Map(checks.map((check) => [check.name, check])) };
}

test('doctor - names what is missing of a home, and the command that mends it', async (t) => {
  const home = temporaryFolder(t);
  const before = await examined(home);
  assert.equal(before.code, 1, 'no node runs without a key');
  assert.deepEqual(
    [before.checks.get('key')?.ok, before.checks.get('key')?.fix],
    [false, 'herobus init'],
  );
  assert.equal((await runCli(home, ['init'])).code, 0);
  const after = await examined(home);
  assert.equal(after.checks.get('key')?.ok, true);
  assert.equal(after.checks.get('node')?.ok, true);
  assert.equal(after.checks.get('bus')?.ok, false);
  assert.match(after.checks.get('bus')?.fix ?? '', /herobus up/);
  chmodSync(join(home, 'key.nk'), 0o644);
  const open = await examined(home);
  assert.match(open.checks.get('key')?.detail ?? '', /0644: others may read it/);
  assert.equal(open.checks.get('key')?.fix, `chmod 600 ${join(home, 'key.nk')}`);
  assert.equal(open.code, 1);
});
