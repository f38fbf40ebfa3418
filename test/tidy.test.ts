/**
 * Polices the tree itself (DESIGN 11): who may import whom, which files are pure, that no file is dead.
 */
import assert from 'node:assert/strict';
import { readdirSync, readFileSync } from 'node:fs';
import { dirname, join, relative, resolve } from 'node:path';
import { test } from 'node:test';

const ROOT = resolve(import.meta.dirname, '..');

/** Folder -> folders it may import from; `packages` limits the outside world where it is said. */
const MAY_IMPORT: Record<string, readonly string[]> = {
  schemas: [],
  rhai: [],
  bus: ['schemas'],
  sal: ['schemas'],
  herodb: ['schemas', 'bus'],
  actors: ['schemas', 'bus', 'rhai'],
  supervisors: ['schemas', 'bus', 'rhai', 'actors'],
  runners: ['schemas', 'bus', 'sal', 'rhai', 'actors'],
  efi: ['schemas', 'sal'],
  tools: ['schemas', 'rhai', 'bus', 'sal', 'herodb', 'actors', 'supervisors', 'runners', 'efi'],
};
const FOLDERS = Object.keys(MAY_IMPORT);
const FORBIDDEN_NAMES = ['utils', 'common', 'lib', 'types', 'helpers', 'services'];
/** Entries: what is started by name instead of being imported; `rhai/debug.ts` is for debuggers to attach to. */
const ENTRIES = [
  /^tools\/cli\/entry\.ts$/,
  /^supervisors\/script-worker\.ts$/,
  /^rhai\/debug\.ts$/,
  /^tools\/[a-z-]+\.(ts|mjs)$/,
  /^tools\/(bench|soak)\//,
];

type Source = { path: string; imports: string[] };

function walk(folder: string): string[] {
  return readdirSync(join(ROOT, folder), { withFileTypes: true }).flatMap((entry) => {
    const path = join(folder, entry.name);
    if (entry.isDirectory()) return walk(path);
    return /\.(ts|mjs)$/.test(entry.name) ? [path] : [];
  });
}

function read(path: string): Source {
  const text = readFileSync(join(ROOT, path), 'utf8');
  const found = [
    /^(?:import|export)\s[^;']*?from\s+'([^']+)'/gm,
    /^import\s+'([^']+)'/gm,
    /\bimport\('([^']+)'\)/g,
    /new URL\(\s*(?:[^']*'[^']*'\)?\s*\?\s*)?'(\.[^']+\.ts)'/g,
  ].flatMap((pattern) => [...text.matchAll(pattern)].map((match) => match[1] ?? ''));
  return { path, imports: found };
}

const existing = FOLDERS.filter((folder) => readdirSync(ROOT).includes(folder));
const sources = existing.flatMap(walk).map(read);
const local = ({ path, imports }: Source): string[] =>
  imports
    .filter((each) => each.startsWith('.'))
    .map((each) => relative(ROOT, resolve(ROOT, dirname(path), each)));
const outside = ({ imports }: Source): string[] => imports.filter((each) => !each.startsWith('.'));
const folderOf = (path: string): string => path.split('/')[0] ?? '';

test('tidy - imports go in one direction', () => {
  const wrong = sources.flatMap((source) =>
    local(source)
      .filter((target) => folderOf(target) !== folderOf(source.path))
      .filter((target) => !MAY_IMPORT[folderOf(source.path)]?.includes(folderOf(target)))
      .map((target) => `${source.path} imports ${target}`),
  );
  assert.deepEqual(wrong, []);
});

test('tidy - machines and the heart of a flow are pure', () => {
  const pure = sources.filter(
    ({ path }) => path.endsWith('.machine.ts') || path.startsWith('actors/flow/'),
  );
  assert.ok(pure.length >= 10);
  const wrong = pure.flatMap((source) => [
    ...outside(source)
      .filter((each) => each !== 'xstate' && each !== 'zod')
      .map((each) => `${source.path} imports ${each}`),
    ...local(source)
      .filter(
        (target) =>
          !['schemas', 'rhai'].includes(folderOf(target)) &&
          dirname(target) !== dirname(source.path),
      )
      .map((target) => `${source.path} imports ${target}`),
  ]);
  assert.deepEqual(wrong, []);
});

test('tidy - purity is more than imports: no clock, no chance, no console', () => {
  const impure =
    /\b(Date\.now|performance\.now|Math\.random|setTimeout|setInterval|console\.|process\.(env|argv|exit|pid|kill|hrtime|memoryUsage|nextTick|on|std\w+)\b)/;
  const wrong = sources
    .filter(
      ({ path }) =>
        path.endsWith('.machine.ts') || path.startsWith('actors/flow/') || path.startsWith('rhai/'),
    )
    .filter(({ path }) => impure.test(withoutComments(readFileSync(join(ROOT, path), 'utf8'))))
    .map(({ path }) => path);
  assert.deepEqual(wrong, []);
});

const withoutComments = (text: string): string =>
  text.replace(/\/\*[\s\S]*?\*\//g, '').replace(/\/\/.*$/gm, '');

test('tidy - schemas and rhai know nothing of the outside', () => {
  const wrong = sources.flatMap((source) => {
    const folder = folderOf(source.path);
    if (folder !== 'rhai' && folder !== 'schemas') return [];
    return outside(source)
      .filter((each) => !(folder === 'schemas' && each === 'zod'))
      .map((each) => `${source.path} imports ${each}`);
  });
  assert.deepEqual(wrong, []);
});

test('tidy - only one place each meets NATS and execa', () => {
  const wrong = sources.flatMap((source) =>
    [
      ...outside(source).filter(
        (each) => each.startsWith('@nats-io/') && folderOf(source.path) !== 'bus',
      ),
      ...outside(source).filter((each) => each === 'execa' && source.path !== 'sal/exec.ts'),
    ].map((each) => `${source.path} imports ${each}`),
  );
  assert.deepEqual(wrong, []);
});

test('tidy - no file is dead', () => {
  const imported = new Set(sources.flatMap(local));
  const tests = walk('test').map(read).flatMap(local);
  const dead = sources
    .map(({ path }) => path)
    .filter((path) => !imported.has(path) && !ENTRIES.some((entry) => entry.test(path)));
  const onlyTested = dead.filter((path) => tests.includes(path));
  assert.deepEqual({ dead, onlyTested }, { dead: [], onlyTested: [] });
});

test('tidy - no folder or file is named for nothing, and none only passes on', () => {
  const wrong = sources
    .map(({ path }) => path)
    .filter((path) => {
      const parts = path.replace(/\.(ts|mjs)$/, '').split('/');
      return parts.some((part) => FORBIDDEN_NAMES.includes(part)) || parts.at(-1) === 'index';
    });
  assert.deepEqual(wrong, []);
});

test('tidy - nothing is left undone', () => {
  const marks = new RegExp(['TO', 'DO|FIX', 'ME|XX', 'X'].join(''));
  const wrong = sources
    .filter(({ path }) => marks.test(readFileSync(join(ROOT, path), 'utf8')))
    .map(({ path }) => path);
  assert.deepEqual(wrong, []);
});
