/**
 * Wrong inputs: each has its exit code and a message that names what was wrong, on stderr, and with --json
 * as one value on stdout. None of them needs a bus.
 */
import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import { type Ran, runCli, runMany, temporaryFolder } from './cli.ts';

const GOOD = 'let a = 1;\na';
const FLOW = 'aaaaaaaaaaaaaaaaaaaaaaaaaa';
const KEY = 'UAB2CB576PHBBPQ5ODORRZ2LYCMWPZGWGCN2KDK7DXOIMZASKUY3RLKK';

type Wrong = {
  args: string[];
  input?: string;
  code: number;
  says: RegExp;
};

const deploy = (...args: string[]): string[] => ['deploy', '-', ...args];

const WRONG: Wrong[] = [
  { args: [], code: 64, says: /Usage: herobus/ },
  { args: ['flow', FLOW], code: 3, says: /no bus runs/ },
  { args: ['frob'], code: 64, says: /unknown command 'frob'/ },
  { args: ['deplo', 'x'], code: 64, says: /Did you mean deploy/ },
  { args: ['--frob', 'flows'], code: 64, says: /unknown option '--frob'/ },
  { args: ['flows', '--frob'], code: 64, says: /unknown option '--frob'/ },
  { args: ['deploy'], code: 64, says: /missing required argument 'file'/ },
  { args: ['deploy', 'a.rhai', 'b.rhai'], code: 64, says: /too many arguments/ },
  { args: ['deploy', 'nosuch.rhai'], code: 64, says: /nosuch\.rhai cannot be read: no such file/ },
  { args: ['deploy', '.'], code: 64, says: /cannot be read: .*directory/ },
  { args: deploy(), input: '', code: 64, says: /is no script: it is empty/ },
  { args: deploy(), input: 'let x = ;', code: 2, says: /1: let x = ;\n +\^ Syntax error/ },
  { args: deploy(), input: '('.repeat(10_000), code: 2, says: /\[script_(limit|syntax)\]/ },
  { args: deploy('-c', 'No_Such'), code: 64, says: /"No_Such" is no context/ },
  { args: deploy('-c', `${'a'.repeat(33)}`), code: 64, says: /is no context/ },
  { args: deploy('--arg', 'novalue'), code: 64, says: /"novalue" is neither k=v nor k:=json/ },
  { args: deploy('--arg', '=x'), code: 64, says: /neither k=v nor/ },
  { args: deploy('--arg', ':=1'), code: 64, says: /neither k=v nor/ },
  { args: deploy('--arg', 'a=1', '--arg', 'a:=2'), code: 64, says: /--arg a is given twice/ },
  { args: deploy('--arg', 'a:=nope'), code: 64, says: /--arg a: not valid JSON/ },
  { args: deploy('--arg', 'a:=9223372036854775808'), code: 64, says: /is not an i64/ },
  { args: deploy('--arg', 'a:=1e999'), code: 64, says: /too large for a float/ },
  { args: deploy('--arg', 'a:={"x":1,"x":2}'), code: 64, says: /the key x stands twice/ },
  { args: deploy('--arg', 'a:=[1,]'), code: 64, says: /not valid JSON/ },
  { args: deploy('--grant', 'kv write'), code: 64, says: /"kv write" is no capability/ },
  { args: deploy('--grant', 'kv:write,'), code: 64, says: /"" is no capability/ },
  { args: deploy('--on', 'zone=eu'), code: 64, says: /"zone=eu" is no selector term/ },
  { args: deploy('--on', ''), code: 64, says: /is no selector term/ },
  { args: deploy('--expires', 'soon'), code: 64, says: /--expires "soon" is no duration/ },
  { args: deploy('--expires', '25h'), code: 64, says: /at most 24 h/ },
  { args: deploy('--expires', '0s'), code: 64, says: /more than nothing/ },
  { args: deploy('--sign', 'nosuch.nk'), code: 64, says: /key file nosuch\.nk cannot be read/ },
  { args: deploy('--sign', 'BAD_KEY'), code: 64, says: /holds no key of a user/ },
  { args: deploy('--detach', '--out', 'x'), code: 64, says: /exclude each other/ },
  { args: deploy('--out', '/nosuch/folder/x'), code: 64, says: /cannot be written/ },
  { args: deploy('--place-within', 'x'), code: 64, says: /--place-within "x" is no duration/ },
  { args: deploy(), code: 3, says: /no bus runs for .*and no server is named/ },
  { args: deploy('--server', 'localhost'), code: 64, says: /"localhost" is no server/ },
  { args: deploy('--server', 'nats://127.0.0.1:1'), code: 3, says: /no bus answers at nats/ },
  { args: ['flow', 'x'], code: 64, says: /"x" is no flow/ },
  { args: ['flow', `${FLOW}.x`], code: 64, says: /is no flow/ },
  { args: ['watch', `${FLOW}.1`], code: 64, says: /not a job/ },
  { args: ['logs', 'x'], code: 64, says: /"x" is no flow/ },
  { args: ['logs', FLOW, '--from', '1.5'], code: 64, says: /--from "1\.5" is no seq/ },
  { args: ['logs', FLOW, '--since', 'lately'], code: 64, says: /--since "lately" is no duration/ },
  { args: ['logs', FLOW, '--since', '2026-13-01'], code: 64, says: /"2026-13-01" is no time/ },
  { args: ['flows', '--status', 'happy'], code: 64, says: /"happy" is none of received/ },
  { args: ['cancel', 'x'], code: 64, says: /"x" is no flow/ },
  { args: ['cancel', FLOW, '--reason', 'r'.repeat(2000)], code: 64, says: /1024 characters/ },
  { args: ['why', 'x'], code: 64, says: /"x" is no flow/ },
  { args: ['retry', `${FLOW}.x`], code: 64, says: /is no flow/ },
  { args: ['retry', FLOW, '--place-within', 'x'], code: 64, says: /--place-within "x" is no/ },
  { args: ['pause', `${FLOW}.1`], code: 64, says: /pause is of a whole flow/ },
  { args: ['node'], code: 64, says: /missing required argument 'node'|Usage: herobus node/ },
  { args: ['node', 'drain'], code: 64, says: /missing required argument 'node'/ },
  { args: ['principal', 'revoke', 'U1'], code: 64, says: /"U1" is no principal/ },
  { args: ['principal', 'revoke', KEY, '--kind', 'cat'], code: 64, says: /--kind is user or node/ },
  { args: ['token', 'create', '--uses', '0'], code: 64, says: /--uses "0" is no whole number/ },
  { args: ['token', 'create', '--ttl', '500d'], code: 64, says: /at most 365 days/ },
  { args: ['up', '--open', '--closed'], code: 64, says: /cannot be used with/ },
  { args: ['plan'], code: 64, says: /missing required argument 'file'/ },
  { args: deploy('--dry-run', '--out', 'x'), code: 64, says: /exclude each other/ },
  { args: ['context'], code: 64, says: /Usage: herobus context|which command/ },
  { args: ['context', 'grant', 'acme', KEY], code: 64, says: /missing required argument 'role'/ },
  { args: ['context', 'grant', 'acme', KEY, 'boss'], code: 64, says: /"boss" is no role/ },
  { args: ['context', 'quota', 'acme'], code: 64, says: /name a quota: --open-flows/ },
  {
    args: ['context', 'quota', 'acme', '--open-jobs', '0'],
    code: 64,
    says: /--open-jobs is a whole number from 1 on, or none/,
  },
  { args: ['context', 'policy', 'acme', '--m', '0'], code: 64, says: /--m is a whole number/ },
  { args: ['context', 'policy', 'acme', '--m', '1.5'], code: 64, says: /--m is a whole number/ },
  {
    args: ['context', 'policy', 'acme', '--require', 'U1'],
    code: 64,
    says: /"U1" is no principal/,
  },
  { args: ['kv', 'set', 'k', 'nope', '--typed'], code: 64, says: /the value: not valid JSON/ },
  { args: ['kv', 'set', 'k'], code: 64, says: /missing required argument 'value'/ },
  { args: ['init', '--name', ' '], code: 64, says: /--name takes/ },
  { args: ['sign', 'nosuch'], code: 64, says: /sealed message nosuch cannot be read/ },
  { args: ['sign', '-'], input: 'junk', code: 2, says: /not valid JSON.*\[bad_envelope\]/ },
  { args: ['verify', '-'], input: '{}', code: 2, says: /\[bad_envelope\]/ },
  {
    args: ['verify', '-'],
    input: '{"payload":"","payload":"","payloadType":"x","signatures":[]}',
    code: 2,
    says: /\[duplicate_key\]/,
  },
  { args: ['script', 'check', '-'], input: 'fn (', code: 1, says: /1: fn \(\n +\^ / },
  { args: ['script', 'run', '-'], input: 'throw "no"', code: 1, says: /Runtime error: no/ },
  {
    args: ['script', 'run', '-'],
    input: 'process("ls")',
    code: 1,
    says: /process\(\) needs a deployment: line 1/,
  },
  { args: ['script', 'run', '-'], input: 'arg("n")', code: 1, says: /argument "n" is missing/ },
  { args: ['script', 'run'], code: 64, says: /which script/ },
];

describe('cli - wrong inputs', () => {
  it(`names ${WRONG.length} wrong inputs with their exit codes`, async (t) => {
    const home = temporaryFolder(t);
    assert.equal((await runCli(home, ['init'])).code, 0);
    const badKey = join(home, 'bad.nk');
    writeFileSync(badKey, 'SUnope\n');
    const lines = WRONG.map(({ args, input = GOOD }, n) => {
      const file = join(home, `input-${n}`);
      writeFileSync(file, input);
      const named = args.map((arg) => (arg === 'BAD_KEY' ? badKey : arg === '-' ? file : arg));
      return n % 2 === 1 ? ['--json', ...named] : named;
    });
    const ran = await runMany(home, lines);
    for (const [n, { args, code, says }] of WRONG.entries()) {
      await t.test(`${n}: herobus ${args.join(' ').slice(0, 60)}`, () => {
        const { stdout, stderr, ...end } = ran[n] as Ran;
        assert.equal(end.code, code, `${stdout}${stderr}`);
        if (n % 2 === 1) assertJsonError(stdout, code, says);
        else assert.match(stderr, says);
      });
    }
  });

  it('asks for a key before anything that needs one', async (t) => {
    const empty = temporaryFolder(t);
    const ran = await runCli(empty, ['nodes']);
    assert.equal(ran.code, 64);
    assert.match(ran.stderr, /there is no key in .*\n +fix: Make one with `herobus init`/);
  });
});

/** Human text puts the code in brackets; in JSON it is a field, so the text is matched without it. */
function assertJsonError(stdout: string, exit: number, says: RegExp): void {
  const lines = stdout.trimEnd().split('\n');
  const { error } = JSON.parse(lines.at(-1) ?? '') as {
    error: { code?: string; kind?: string; message?: string; fix?: string | null } | string;
  };
  if (typeof error === 'string') return assert.match(error, /^Error/);
  assert.equal(lines.length, 1);
  if (exit === 64) assert.equal(error.code, 'usage');
  if (exit === 3) assert.equal(error.code, 'unreachable');
  assert.match(`${error.message} [${error.code}]\n${error.fix}`, says);
}
