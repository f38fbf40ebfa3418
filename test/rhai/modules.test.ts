/** Modules of a host that names them by where they are imported, and errors inside them. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Engine, prettyError } from '../../rhai/engine.ts';

const MODULES: Record<string, string> = {
  'lib/util': 'import "helper" as h;\nfn twice(x) {\n  h::add(x, x)\n}\nexport const K = h::C;\n',
  'lib/helper': 'export const C = 7;\nfn add(x, y) {\n  x + y + missing(x)\n}',
  broken: 'let ok = 1;\nfn f( {',
};
const source = (path: string): string | undefined => MODULES[path];
const engine = new Engine({
  resolveModule: source,
  modulePath: (path, from) => [...from.split('/').slice(0, -1), path].join('/'),
});

function failure(script: string): string {
  const outcome = engine.start(engine.compile(script)).run();
  assert.equal(outcome.state, 'failed');
  return outcome.state === 'failed' ? prettyError(outcome.error, script, source) : '';
}

test('modules - a module is named by who imports it', () => {
  const outcome = engine.start(engine.compile('import "lib/util" as u; u::K')).run();
  assert.deepEqual(outcome, { state: 'done', value: 7 });
});

test('modules - an error inside a module shows its own line and place', () => {
  const [line = '', caret = '', ...calls] = failure('import "lib/util" as u;\nu::twice(1)').split(
    '\n',
  );
  assert.equal(line, 'lib/helper:3:   x + y + missing(x)');
  assert.equal(caret.indexOf('^'), line.indexOf('missing'));
  assert.match(calls.join('\n'), /'add'.*'lib\/util'.*\n.*'twice'.*line 2/);
  assert.match(failure('\nimport "broken" as b;'), /^broken:2: fn f\( \{/);
});

test('modules - imports are listed as they are written, computed ones are not', () => {
  const sites = engine.importsOf('import "a" as a;\nfn f(n) { import n as m; import "b/c" as d; }');
  assert.deepEqual(sites, [
    { path: 'a', pos: { line: 1, column: 8 } },
    { path: 'b/c', pos: { line: 2, column: 33 } },
  ]);
});
