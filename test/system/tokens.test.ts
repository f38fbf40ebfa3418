/** A closed ledger, for real: newcomers need a token or an approval, also after a restart. */
import assert from 'node:assert/strict';
import { join } from 'node:path';
import { test } from 'node:test';
import { herobus, Node, temporaryFolder, until } from './nodes.ts';

test('up --closed: a token lets one node in, an approval a user; it is kept across a restart', async (t) => {
  const folder = temporaryFolder(t);
  const home = join(folder, 'home');
  const closed = new Node(t, home, join(folder, 'data'), ['--name', 'first', '--closed']);
  const { server } = await closed.start();
  const ask = async <T>(args: string[], code = 0): Promise<T> => {
    const ran = await herobus(home, ['--server', server, '--json', ...args]);
    assert.equal(ran.code, code, `${args.join(' ')}: ${ran.stdout}${ran.stderr}`);
    return JSON.parse(ran.stdout.trimEnd().split('\n').at(-1) ?? '') as T;
  };
  const { token, uses } = await ask<{ token: string; uses: number }>(['token', 'create']);
  assert.equal(uses, 1);
  await closed.kill('SIGTERM');
  const again = new Node(t, home, join(folder, 'data'), ['--name', 'first']);
  await again.start();

  const joining = ['--join', server, '--roles', 'supervisor', '--token', token];
  const second = new Node(t, join(folder, 'two'), join(folder, 'two-data'), [
    ...joining,
    '--name',
    'second',
  ]);
  const { principal } = await second.start();
  type Shown = { registration: { by: string; status: string } };
  const shown = await ask<Shown>(['node', principal]);
  assert.deepEqual([shown.registration.by, shown.registration.status], ['token', 'registered']);

  const third = new Node(t, join(folder, 'three'), join(folder, 'three-data'), [
    ...joining,
    '--name',
    'third',
  ]);
  const started = third.start();
  await until(
    'the third node, whose token is spent, to wait',
    async () => (third.log.includes('waits to be let in') ? true : undefined),
    30_000,
  );
  await ask(['node', 'approve', 'third']);
  await started;

  const user = join(folder, 'user');
  const { stdout } = await herobus(user, ['--json', 'init']);
  const ada = (JSON.parse(stdout) as { principal: string }).principal;
  const waiting = await herobus(user, ['--server', server, 'flows']);
  assert.equal(waiting.code, 2);
  assert.match(waiting.stderr, new RegExp(`principal approve ${ada}`));
  await ask(['principal', 'approve', ada]);
  const granted = ['context', 'grant', 'default', ada, 'reader'];
  await ask(granted);
  assert.equal((await herobus(user, ['--server', server, 'flows'])).code, 0);
  await ask(['principal', 'revoke', ada, '--reason', 'left']);
  const shut = await herobus(user, ['--server', server, 'flows']);
  assert.equal(shut.code, 2);
  assert.match(shut.stderr, new RegExp(`principal approve ${ada}`));
});
