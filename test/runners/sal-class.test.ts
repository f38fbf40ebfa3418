/** The class `sal`: arguments and values are typed JSON text, rights are checked, faults are the job's. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { z } from 'zod';
import type { JobRun } from '../../runners/classes/class.ts';
import { salClass } from '../../runners/classes/sal.ts';
import { operation, Registry, type SalContext } from '../../sal/driver.ts';
import { HeroError } from '../../schemas/errors.ts';
import type { JsonValue } from '../../schemas/json.ts';

const seen: SalContext[] = [];
const registry = new Registry([
  {
    name: 'echo',
    fingerprint: async () => ({ found: true, detail: '' }),
    operations: [
      operation({
        name: 'echo.say',
        needs: 'echo:say',
        args: z.object({ what: z.custom<JsonValue>((value) => value !== undefined) }),
        run: async ({ what }, context) => {
          seen.push(context);
          context.log('said');
          return what;
        },
      }),
    ],
  },
]);

const lines: string[] = [];

function run(payload: unknown, needs = ['echo:say'], signal = new AbortController().signal) {
  const job: JobRun = {
    ref: { context: 'acme', flow: 'e'.repeat(26) },
    job: {
      n: 4,
      attempt: 2,
      spec: {
        v: 1,
        kind: 'sal',
        name: 'say',
        payload,
        needs,
        on: null,
        timeout_ms: null,
        retries: 0,
        backoff_ms: 0,
        after: [],
        idempotent: true,
      },
    },
    caller: 'Uxyz',
    signal,
    deadlineMs: 123,
    output: (stream, batch) => void lines.push(...batch.map((line) => `${stream} ${line}`)),
  };
  return salClass(registry).run(job);
}

const fails = (code: string, message: RegExp) => (error: unknown) => {
  assert.ok(error instanceof HeroError, String(error));
  assert.equal(error.code, code);
  assert.match(error.message, message);
  return true;
};

test('sal class - typed text in, typed text out, with the job named', async () => {
  assert.equal(
    await run({ op: 'echo.say', args: '{"what":[1.0,9223372036854775807]}' }),
    '[1.0,9223372036854775807]',
  );
  const [context] = seen;
  assert.equal(context?.jobId, `${'e'.repeat(26)}.4`);
  assert.equal(context?.attempt, 2);
  assert.equal(context?.caller, 'Uxyz');
  assert.deepEqual(lines, ['log said']);
});

test('sal class - what a job was not granted is refused; a family grant is enough', async () => {
  const payload = { op: 'echo.say', args: '{"what":1}' };
  await assert.rejects(run(payload, ['file']), fails('capability_not_granted', /echo:say/));
  assert.equal(await run(payload, ['echo:*']), '1');
});

test('sal class - faults of the payload name the field', async () => {
  await assert.rejects(run({ op: 'echo.say' }), fails('bad_job', /`args`/));
  await assert.rejects(run({ op: 'echo.say', args: '{' }), fails('bad_job', /not valid JSON/));
  await assert.rejects(run({ op: 'echo.say', args: '{}' }), fails('bad_job', /`what`/));
  await assert.rejects(run({ op: 'echo.sing', args: '{}' }), fails('bad_job', /echo\.say/));
});

test('sal class - an abort wins over a value that came too late', async () => {
  const signal = AbortSignal.abort(new HeroError('cancelled', 'enough'));
  await assert.rejects(
    run({ op: 'echo.say', args: '{"what":1}' }, ['echo:say'], signal),
    fails('cancelled', /enough/),
  );
});

test('sal class - offers what its families need', async () => {
  assert.deepEqual(await salClass(registry).offers(), ['echo:say']);
});
