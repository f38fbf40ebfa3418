/**
 * Tables of Rhai cases: `[script, type, value, settings?]` or `[script, "error", kinds, settings?]`,
 * one a line in cases/<area>.jsonl. Kinds are nested from outside in (`ErrorInFunctionCall > …`), a
 * parse error with its own kind behind. The expected answers were observed on the original; where it
 * and this engine differ on purpose, the case is in differences.test.ts.
 */
import assert from 'node:assert/strict';
import { readdirSync, readFileSync } from 'node:fs';
import { test } from 'node:test';
import { runCase } from '../../rhai/conformance.ts';

type Row = [script: string, type: string, value: unknown, extra?: Record<string, unknown>];

interface Answer {
  readonly ok?: { readonly type: string; readonly value?: unknown };
  readonly error?: string;
  readonly parse?: string;
  readonly lex?: string;
  readonly inner?: Answer;
  readonly thrown?: unknown;
}

const folder = new URL('./cases/', import.meta.url);

function sameNames(value: unknown): unknown {
  return JSON.parse(JSON.stringify(value).replace(/anon\$[0-9a-f]{16}/g, 'anon$'));
}

function kinds(answer: Answer): string {
  const { error = '', parse = '', lex, inner, thrown } = answer;
  if (error === 'ErrorParsing') return `ErrorParsing ${parse}${lex ? ` ${lex}` : ''}`;
  if (inner) return `${error} > ${kinds(inner)}`;
  return error === 'ErrorRuntime' ? `ErrorRuntime ${JSON.stringify(thrown)}` : error;
}

for (const file of readdirSync(folder).toSorted()) {
  test(`rhai - ${file.replace('.jsonl', '')}`, () => {
    const lines = readFileSync(new URL(file, folder), 'utf8').trim().split('\n');
    for (const line of lines) {
      const [script, type, value, extra = {}] = JSON.parse(line) as Row;
      const limit = ['set_max_operations', 1_000_000];
      const engine = Array.isArray(extra['engine']) ? extra['engine'] : [limit];
      const answer = runCase({ mode: 'eval', ...extra, script, engine }) as Answer;
      const actual = answer.ok
        ? [answer.ok.type, answer.ok.value ?? null]
        : ['error', kinds(answer)];
      assert.deepEqual(sameNames(actual), sameNames([type, value]), script);
    }
  });
}
