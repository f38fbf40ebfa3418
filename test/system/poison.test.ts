/** Jobs that kill their runner: they end with their cause after their attempts, and hold up nobody. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { herobus, startNode } from './nodes.ts';

type Told = {
  status: string;
  value: unknown;
  error: { code: string; message: string } | null;
  jobs: { status: string; attempt: number; error: { code: string; message: string } | null }[];
};

const KILLS_ITS_RUNNER = `"sh", args: ["-c", "kill -9 $PPID; sleep 60"]`;
/** What a runner's death may cost others: a restart with back-off, not the death of each attempt. */
const MEANWHILE_WITHIN_MS = 60_000;

test('poison - a job that kills its runner fails with its cause, once or after its attempts; others finish', async (t) => {
  const node = await startNode(t, ['--runners', 'process=4,sal=4']);
  const server = node.ready?.server ?? '';
  const deploy = async (script: string): Promise<Told> => {
    const args = ['--server', server, '--json', 'deploy', '-', '--grant', 'noop'];
    const { stdout, stderr } = await herobus(node.home, args, script);
    const last = stdout.trim().split('\n').at(-1) ?? '';
    assert.notEqual(last, '', stderr);
    return JSON.parse(last) as Told;
  };
  const poisoned = Promise.all([
    deploy(`join(process(#{cmd: ${KILLS_ITS_RUNNER}}))`),
    deploy(`join(process(#{cmd: ${KILLS_ITS_RUNNER}, idempotent: true}))`),
  ]);
  const begun = performance.now();
  const others = await Promise.all([
    deploy('for i in 0..5 { join(process(#{cmd: "true", idempotent: true})); } "other class"'),
    deploy('join(process(#{cmd: "sleep", args: ["2"], idempotent: true})); "long"'),
    deploy('for i in 0..20 { join(sal("noop.run", #{})); } "other runner"'),
  ]);
  assert.ok(performance.now() - begun < MEANWHILE_WITHIN_MS, 'held up for too long');
  for (const { status, error } of others) assert.equal(status, 'completed', JSON.stringify(error));
  const [once, again] = await poisoned;
  for (const { status, error, jobs } of [once, again]) {
    assert.equal(status, 'failed');
    assert.equal(jobs[0]?.error?.code, 'outcome_unknown');
    assert.match(
      JSON.stringify(error),
      /was begun by process-0, which was lost before it reported/,
    );
  }
  assert.match(once.jobs[0]?.error?.message ?? '', /not marked idempotent/);
  assert.match(again.jobs[0]?.error?.message ?? '', /its runner died with it \d+ times/);
  assert.ok((again.jobs[0]?.attempt ?? 99) <= 6, 'it was begun too often');
  assert.equal((await deploy('join(process("true")).code')).value, 0, 'the runner is back');
});
