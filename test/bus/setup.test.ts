/**
 * The set-up script where it can be tested without downloading: which archive it takes from the machine's
 * sources, and its errors. Method: the script itself as a process, with a PATH and a network of our making.
 */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { cp, mkdir, mkdtemp, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, describe, it } from 'node:test';
import { fileURLToPath } from 'node:url';

type Setup = {
  debianMirror: (
    etcApt: string,
    codename: string,
  ) => { uri: string; signedBy: string; suites: string[] } | null;
  SYSTEM_PACKAGES: Record<string, string>;
};

const root = fileURLToPath(new URL('../../', import.meta.url));
const setup = (await import(join(root, 'tools/setup.mjs'))) as Setup;
const folders: string[] = [];
after(async () => {
  for (const folder of folders) await rm(folder, { recursive: true, force: true });
});

async function folder(): Promise<string> {
  const dir = await mkdtemp(join(tmpdir(), 'herobus-setup-'));
  folders.push(dir);
  return dir;
}

describe('setup - the machine’s own mirror', () => {
  it('is read from deb822 sources, past what is switched off or only security', async () => {
    const etc = await folder();
    await mkdir(join(etc, 'sources.list.d'));
    const sources = [
      '# a comment',
      'Enabled: no',
      'Types: deb',
      'URIs: http://off.example/debian',
      'Suites: bookworm',
      '',
      'Types: deb',
      'URIs: http://security.example/debian-security',
      'Suites: bookworm-security',
      '',
      'Types: deb deb-src',
      '# http://snapshot.example/',
      'URIs: http://mirror.example/debian',
      'Suites: bookworm bookworm-updates',
      'Components: main',
      'Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg',
    ];
    await writeFile(join(etc, 'sources.list.d', 'debian.sources'), sources.join('\n'));
    await writeFile(join(etc, 'sources.list.d', 'x.list.disabled'), 'deb http://no/ bookworm main');
    const mirror = setup.debianMirror(etc, 'bookworm');
    assert.equal(mirror?.uri, 'http://mirror.example/debian');
    assert.equal(mirror?.signedBy, '/usr/share/keyrings/debian-archive-keyring.gpg');
  });

  it('is read from one-line sources', async () => {
    const etc = await folder();
    const lines = [
      '# deb http://comment.example/debian bookworm main',
      'deb-src http://source.example/debian bookworm main',
      'deb [arch=amd64 signed-by=/k.gpg] https://mirror.example/debian/ bookworm main contrib',
    ];
    await writeFile(join(etc, 'sources.list'), lines.join('\n'));
    const mirror = setup.debianMirror(etc, 'bookworm');
    assert.deepEqual([mirror?.uri, mirror?.signedBy], ['https://mirror.example/debian/', '/k.gpg']);
    assert.equal(setup.debianMirror(await folder(), 'bookworm'), null);
  });
});

describe('setup - where a server cannot be had', () => {
  async function runIn(
    env: Record<string, string>,
  ): Promise<{ status: number | null; text: string }> {
    const dir = await folder();
    await mkdir(join(dir, 'tools'));
    for (const file of ['tools/setup.mjs', 'package.json', 'package-lock.json']) {
      await cp(join(root, file), join(dir, file));
    }
    await symlink(join(root, 'node_modules'), join(dir, 'node_modules'));
    const done = spawnSync(process.execPath, [join(dir, 'tools/setup.mjs')], {
      encoding: 'utf8',
      env,
    });
    return { status: done.status, text: done.stderr };
  }

  it('says what, why and how to mend it, when there is no Debian to take it from', async () => {
    const { status, text } = await runIn({ PATH: await folder() });
    assert.equal(status, 1);
    assert.match(text, /^setup: No nats-server of at least 2\.12 was found\.$/m);
    assert.match(text, /why: .*apt-get, dpkg-deb cannot be found/);
    assert.match(
      text,
      /fix: Put a nats-server of at least 2\.12 on PATH, or set HEROBUS_NATS_SERVER/,
    );
  });

  it('does not pass over a server that was named and is none', async () => {
    const { status, text } = await runIn({ PATH: '', HEROBUS_NATS_SERVER: '/bin/true' });
    assert.equal(status, 1);
    assert.match(text, /HEROBUS_NATS_SERVER names \/bin\/true, which is not usable/);
  });
});
