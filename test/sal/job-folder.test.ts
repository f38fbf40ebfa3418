/** Files in a job's own folder: nothing leaves it (J1), nothing is written over (J2). */
import assert from 'node:assert/strict';
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join, relative, sep } from 'node:path';
import { after, test } from 'node:test';
import fc from 'fast-check';
import { makeJobFolder, placeFiles, removeJobFolder } from '../../sal/job-folder.ts';
import { folderPathFault, PlacedFiles } from '../../schemas/blob.ts';
import { HeroError } from '../../schemas/errors.ts';

const root = mkdtempSync(join(tmpdir(), 'herobus-folders-'));
after(() => rmSync(root, { recursive: true, force: true }));
const bytes = Buffer.from('placed');

function filesUnder(folder: string): string[] {
  return readdirSync(folder, { recursive: true, withFileTypes: true })
    .filter((entry) => !entry.isDirectory())
    .map((entry) => relative(folder, join(entry.parentPath, entry.name)));
}

test('job folder - files stand where they were asked for, executable, and go with the folder', async () => {
  const folder = await makeJobFolder(join(root, 'fresh'), 'job');
  const tool = Buffer.from('#!/bin/sh\n');
  await placeFiles(folder, [
    { path: 'conf/deep/app.toml', bytes },
    { path: 'conf/other', bytes },
    { path: 'tool', bytes: tool },
  ]);
  assert.deepEqual(filesUnder(folder).toSorted(), ['conf/deep/app.toml', 'conf/other', 'tool']);
  assert.deepEqual(readFileSync(join(folder, 'tool')), tool);
  await removeJobFolder(folder);
  assert.ok(!existsSync(folder));
});

/** Names as they are, and as somebody writes them who wants out. */
const hostilePart = fc.oneof(
  fc.constantFrom('a', 'b.txt', 'dir', 'new'),
  fc.constantFrom(
    '..',
    '.',
    '',
    '...',
    '.. ',
    '\0',
    'a\0b',
    '~',
    '$HOME',
    '-rf',
    '*',
    '\\',
    '..\\',
    'C:',
    '%2e%2e',
    '．．',
    'link',
    'dir',
    'taken',
    '\ud800',
  ),
  fc.string({ maxLength: 12, unit: 'binary' }),
);
const hostilePath = fc
  .tuple(fc.constantFrom('', '/', '//', './', '../', root), fc.array(hostilePart, { maxLength: 5 }))
  .map(([head, parts]) => `${head}${parts.join('/')}`);

test('job folder - whatever a path says, nothing outside the folder changes', async () => {
  let placed = 0;
  await fc.assert(
    fc.asyncProperty(hostilePath, async (path) => {
      const base = mkdtempSync(join(root, 'property-'));
      const outside = join(base, 'outside');
      const folder = join(base, 'in', 'folder');
      mkdirSync(outside);
      mkdirSync(join(folder, 'dir'), { recursive: true });
      writeFileSync(join(folder, 'taken'), 'before');
      symlinkSync(outside, join(folder, 'link'));
      symlinkSync(join(outside, 'new'), join(folder, 'dir', 'link'));
      let refused: unknown;
      await placeFiles(folder, [{ path, bytes }]).catch((error: unknown) => {
        refused = error;
      });
      assert.deepEqual(readdirSync(base).toSorted(), ['in', 'outside']);
      assert.deepEqual(readdirSync(join(base, 'in')), ['folder']);
      assert.deepEqual(readdirSync(outside), []);
      assert.equal(readFileSync(join(folder, 'taken'), 'utf8'), 'before');
      if (refused === undefined) {
        placed++;
        const target = join(folder, path);
        assert.ok(target.startsWith(`${folder}${sep}`));
        assert.deepEqual(readFileSync(target), bytes);
        assert.equal(folderPathFault(path), undefined);
      } else {
        assert.ok(refused instanceof HeroError, path);
        assert.equal(refused.code, 'bad_job');
      }
      rmSync(base, { recursive: true, force: true });
    }),
    { numRuns: 400 },
  );
  assert.ok(placed > 20, `only ${placed} paths were good ones`);
});

test('job folder - a link on the way or at the end is not followed, and nothing is written over', async () => {
  const folder = await makeJobFolder(join(root, 'links'), 'job');
  const outside = mkdtempSync(join(root, 'elsewhere-'));
  symlinkSync(outside, join(folder, 'link'));
  symlinkSync(join(outside, 'new'), join(folder, 'dangling'));
  writeFileSync(join(folder, 'there'), 'before');
  const place = (path: string) => placeFiles(folder, [{ path, bytes }]);
  await assert.rejects(place('link/file'), {
    code: 'bad_job',
    message: /a part of it is no folder/,
  });
  await assert.rejects(place('dangling'), { code: 'bad_job', message: /stands there already/ });
  await assert.rejects(place('there'), { code: 'bad_job', message: /stands there already/ });
  await assert.rejects(place('there/under'), { code: 'bad_job' });
  assert.deepEqual(readdirSync(outside), []);
  assert.equal(readFileSync(join(folder, 'there'), 'utf8'), 'before');
});

test('job folder - a payload with paths that cannot be is refused as a whole', () => {
  const parse = (...paths: string[]): boolean =>
    PlacedFiles.safeParse(paths.map((path) => ({ path, sha256: 'a'.repeat(64), size: 1 }))).success;
  assert.ok(parse('a', 'b/c', 'b/d'));
  for (const paths of [['../a'], ['/a'], ['a\0'], ['a', 'a'], ['a', 'a/b'], ['a/../../b'], ['']]) {
    assert.ok(!parse(...paths), JSON.stringify(paths));
  }
});
