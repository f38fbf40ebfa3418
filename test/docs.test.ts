/** What is generated of the documentation is what the code says now, and what it says is true. */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { resolve } from 'node:path';
import { test } from 'node:test';
import { ERROR_CODES } from '../schemas/errors.ts';
import { documents, stale } from '../tools/docs.ts';

const ROOT = resolve(import.meta.dirname, '..');
const read = (path: string): string => readFileSync(resolve(ROOT, path), 'utf8');

type Schema = {
  title?: string;
  required?: string[];
  properties?: Record<string, Schema>;
  items?: Schema;
  $ref?: string;
};
const schemaOf = (name: string): Schema =>
  JSON.parse(documents().get(`docs/schemas/${name}.json`) ?? 'null') as Schema;

test('docs - the generated files are up to date', () => {
  assert.deepEqual(stale(), [], 'run `npm run docs` and commit what it writes');
});

test('docs - what a client writes may leave out what has a default, what it reads has everything', () => {
  assert.ok(!schemaOf('deployment').required?.includes('on'));
  assert.ok(schemaOf('deployment').required?.includes('nonce'));
  const flow = schemaOf('flow');
  // What is there only when there is something to say.
  const sometimes = ['refusals', 'unplaced', 'value_error', 'value_ref'];
  const given = Object.keys(flow.properties ?? {}).filter((key) => !sometimes.includes(key));
  assert.deepEqual(flow.required?.toSorted(), given.toSorted());
  assert.equal(flow.properties?.['jobs']?.items?.$ref, '#/$defs/job');
});

test('docs - every error code says what it means and what to do, in one line', () => {
  const table = read('docs/errors.md');
  for (const [code, { means, fix }] of Object.entries(ERROR_CODES)) {
    assert.match(means, /^[a-z].*[^.\n]$/, `${code}: ${means}`);
    assert.match(fix, /^[A-Z`].*\.$/, `${code}: ${fix}`);
    assert.ok(table.includes(`| \`${code}\` |`), code);
  }
});

test('docs - links between the documents lead somewhere', () => {
  const pages = [
    'README.md',
    'ARCHITECTURE.md',
    'docs/wire.md',
    'docs/errors.md',
    'docs/schemas/README.md',
  ];
  for (const page of pages) {
    for (const [, target = ''] of read(page).matchAll(/\]\((?!https?:)([^)#]+)/g)) {
      assert.doesNotThrow(
        () => readFileSync(resolve(ROOT, page, '..', target)),
        `${page}: ${target}`,
      );
    }
  }
});
