/** `init` makes a home once: whatever is there stays as it is, byte for byte. */
import assert from 'node:assert/strict';
import { existsSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import { identityFromText } from '../../bus/identity.ts';
import { runCli, temporaryFolder } from './cli.ts';

const read = (...path: string[]) => readFileSync(join(...path), 'utf8');

describe('cli - init', () => {
  it('makes a key that only its owner can read, and says who it is', async (t) => {
    const home = join(temporaryFolder(t), 'new', 'home');
    const { code, stdout } = await runCli(home, ['init', '--name', 'ada', '--json']);
    assert.equal(code, 0);
    const told = JSON.parse(stdout) as { principal: string; address: string };
    const identity = identityFromText(read(home, 'key.nk'));
    assert.equal(told.principal, identity.principal);
    assert.match(told.address, /^4[0-9a-f]{2}:|^5[0-9a-f]{2}:/);
    assert.equal(statSync(join(home, 'key.nk')).mode & 0o777, 0o600);
    const config = JSON.parse(read(home, 'config.json')) as Record<string, unknown>;
    assert.equal(config['name'], 'ada');
    assert.equal(config['server'], null);
    assert.equal(config['context'], null);
  });

  it('never overwrites', async (t) => {
    const home = temporaryFolder(t);
    const first = await runCli(home, ['init', '--json']);
    const before = [read(home, 'key.nk'), read(home, 'config.json')];
    const again = await runCli(home, ['init', '--json', '--name', 'eve']);
    assert.equal(again.code, 0);
    assert.equal(again.stdout, first.stdout);
    assert.deepEqual([read(home, 'key.nk'), read(home, 'config.json')], before);
  });

  it('gives two that run at once the same key', async (t) => {
    const home = temporaryFolder(t);
    const ran = await Promise.all([1, 2].map(() => runCli(home, ['init', '--json'])));
    assert.deepEqual(
      ran.map(({ code }) => code),
      [0, 0],
    );
    assert.equal(ran[0]?.stdout, ran[1]?.stdout);
  });

  it('takes a broken key for what it is and makes no other', async (t) => {
    const home = temporaryFolder(t);
    writeFileSync(join(home, 'key.nk'), 'garbage\n', { mode: 0o600 });
    const { code, stderr } = await runCli(home, ['init']);
    assert.notEqual(code, 0);
    assert.match(stderr, /key\.nk cannot be used/);
    assert.equal(read(home, 'key.nk'), 'garbage\n');
    assert.equal(existsSync(join(home, 'config.json')), false);
  });
});
