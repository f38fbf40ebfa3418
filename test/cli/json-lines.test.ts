/** `script run --json-lines`: one answer a line, in order, whatever comes in; memory stays bounded. */
import assert from 'node:assert/strict';
import { Readable, Writable } from 'node:stream';
import { describe, it } from 'node:test';
import fc from 'fast-check';
import { answerLines, splitLines } from '../../tools/cli/json-lines.ts';
import { runCli, temporaryFolder } from './cli.ts';

type Answer = { id?: unknown; ok?: unknown; error?: string };

async function answers(input: string): Promise<Answer[]> {
  let text = '';
  const output = new Writable({
    write(chunk: Buffer, _encoding, done) {
      text += chunk.toString();
      done();
    },
  });
  await answerLines(Readable.from([Buffer.from(input)]), output, (given) => {
    const { id, fails } = given as { id?: unknown; fails?: boolean };
    if (fails) throw new Error('the engine broke');
    return { id, ok: true };
  });
  return text
    .split('\n')
    .filter((line) => line !== '')
    .map((line) => JSON.parse(line) as Answer);
}

describe('cli - script run --json-lines', () => {
  it('answers each line in order and survives all of them', async () => {
    const got = await answers('{"id":1}\nnope\n\n7\n[1]\n{"id":"b","fails":true}\n{"id":2}');
    assert.deepEqual(
      got.map(({ id, ok, error }) => [id, ok ?? error]),
      [
        [1, true],
        [null, 'ErrorSystem'],
        [null, 'ErrorSystem'],
        [null, 'ErrorSystem'],
        ['b', 'ErrorSystem'],
        [2, true],
      ],
    );
  });

  it('finds the same lines however the bytes are cut', async () => {
    const texts = fc.array(fc.string({ unit: 'binary' }), { maxLength: 20 });
    await fc.assert(
      fc.asyncProperty(texts, fc.array(fc.nat(40)), async (parts, cuts) => {
        const bytes = Buffer.from(parts.join('\n'));
        const chunks: Buffer[] = [];
        let from = 0;
        for (const cut of cuts) {
          chunks.push(bytes.subarray(from, from + cut));
          from += cut;
        }
        chunks.push(bytes.subarray(from));
        const lines: string[] = [];
        for await (const line of splitLines(Readable.from(chunks), 1_000_000)) {
          lines.push(line.toString());
        }
        const wanted = bytes.toString().split('\n');
        if (wanted.at(-1) === '') wanted.pop();
        assert.deepEqual(lines, wanted);
      }),
    );
  });

  it('passes over a line that is too long and goes on', async () => {
    const input = Readable.from([Buffer.alloc(30, 'x'), Buffer.from('y\nok\n')]);
    const lines: string[] = [];
    for await (const line of splitLines(input, 10)) lines.push(line.toString());
    assert.deepEqual(lines, ['too long', 'ok']);
  });

  it('waits for who reads: it never runs ahead of its output', async () => {
    let running = 0;
    let most = 0;
    const output = new Writable({
      highWaterMark: 1,
      write(_chunk, _encoding, done) {
        setImmediate(() => {
          running -= 1;
          done();
        });
      },
    });
    const input = Readable.from([Buffer.from('{}\n'.repeat(200))]);
    await answerLines(input, output, () => {
      most = Math.max(most, ++running);
      return {};
    });
    assert.ok(most <= 2, `${most} answers were waiting at once`);
  });

  it('runs real cases on the engine', async (t) => {
    const home = temporaryFolder(t);
    const cases = [
      { id: 1, mode: 'eval', script: '40 + 2' },
      { id: 2, mode: 'eval', script: 'let x =' },
      { id: 3, mode: 'eval', script: 'print("hi"); throw 5' },
      {
        id: 4,
        mode: 'eval',
        script: 'x',
        scope: [{ name: 'x', value: { type: 'bool', value: true } }],
      },
    ];
    const input = cases.map((each) => JSON.stringify(each)).join('\n');
    const { code, stdout } = await runCli(home, ['script', 'run', '--json-lines'], input);
    assert.equal(code, 0);
    const got = stdout
      .trimEnd()
      .split('\n')
      .map((line) => JSON.parse(line) as Answer);
    assert.deepEqual(got[0], { id: 1, ok: { type: 'i64', value: '42' } });
    assert.equal(got[1]?.error, 'ErrorParsing');
    assert.equal(got[2]?.error, 'ErrorRuntime');
    assert.deepEqual(got[3], { id: 4, ok: { type: 'bool', value: true } });
  });
});
