/** Two local nodes, one killed with SIGKILL in the midst of its work: the other finishes, nothing is done twice. */
import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { assertOnce, connectAs, storyOf, traceLines } from './evidence.ts';
import { flowOf, herobus, Node, startNode, temporaryFolder, until } from './nodes.ts';

const JOBS = 100;
const RUNNERS = ['--runners', 'process=6,sal=1'];
const SCRIPT = `
let jobs = [];
for n in 0..${JOBS} {
    jobs.push(process(#{
        name: \`work-\${n}\`,
        cmd: "sh",
        args: ["-c", \`echo "$HEROBUS_JOB $HEROBUS_ATTEMPT" >> "$TRACE"; sleep 0.5; printf %s "$N"\`],
        env: #{ TRACE: arg("trace"), N: \`\${n}\` },
        idempotent: true
    }));
}
let sum = 0;
for result in join_all(jobs) { sum += parse_int(result.stdout); }
sum`;

/** The first node with the bus, and a second with a home of its own that joins it. */
async function startTwo(t: Parameters<typeof startNode>[0]): Promise<[Node, Node]> {
  const first = await startNode(t, RUNNERS);
  const folder = temporaryFolder(t);
  const args = ['--join', first.ready?.server ?? '', '--name', 'second', ...RUNNERS];
  const second = new Node(t, join(folder, 'home'), join(folder, 'data'), args);
  await second.start();
  return [first, second];
}

test(`one of two nodes killed during ${JOBS} idempotent jobs: all complete on the other`, async (t) => {
  const [first, second] = await startTwo(t);
  const server = first.ready?.server ?? '';
  const killed = second.ready?.address;
  const folder = temporaryFolder(t);
  const trace = join(folder, 'trace');
  const script = join(folder, 'work.rhai');
  writeFileSync(script, SCRIPT);
  const args = ['--json', 'deploy', script, '--detach', '--arg', `trace=${trace}`];
  const { stdout, stderr, code } = await herobus(first.home, args);
  assert.equal(code, 0, stderr);
  const { flow } = JSON.parse(stdout) as { flow: string };

  const before = await until(
    'work on the second node',
    async () => {
      const seen = await flowOf(first.home, server, flow);
      const there = seen.jobs.filter(({ node }) => node === killed);
      const states = new Set(there.map(({ status }) => status));
      return states.has('completed') && states.has('running') ? seen : undefined;
    },
    30_000,
  );
  await second.kill('SIGKILL');
  const open = before.jobs.filter(({ status }) => status !== 'completed').map(({ job }) => job);
  assert.ok(open.length > 10, 'it was killed in the midst of it');

  const shown = await until(
    'the end of the flow',
    async () => {
      const seen = await flowOf(first.home, server, flow);
      return ['completed', 'failed'].includes(seen.status) ? seen : undefined;
    },
    90_000,
  );
  assert.equal(shown.status, 'completed', JSON.stringify(shown.error));
  assert.equal(shown.value, (JOBS * (JOBS - 1)) / 2);
  assert.equal(shown.jobs.length, JOBS);
  assert.ok(shown.jobs.every(({ status }) => status === 'completed'));
  const again = shown.jobs.filter(({ attempt }) => attempt > 1);
  assert.ok(again.length > 0, 'what ran there was lost and run again');
  assert.ok(
    again.every(({ node }) => node === first.ready?.address),
    'the other node has what was lost',
  );

  const why = await herobus(first.home, ['why', again[0]?.job ?? '']);
  assert.match(why.stdout, /attempt 1 was lost: what ran it on second/, 'and it is told why');

  const nats = await connectAs(first.home, first.data, server);
  t.after(() => nats.close());
  const story = await storyOf(nats, flow);
  const lines = traceLines(trace);
  assertOnce(story, lines);
  assert.equal(story.finished.length, JOBS, 'each job finished once');
  const where = before.supervisor === killed ? 'the killed node had' : 'the other node had';
  t.diagnostic(
    `${where} the flow; ${story.begun.length} attempts begun, ${lines.length} ran, ${again.length} lost`,
  );
});

test('a sleep outlives the node: killed and started again, it ends when it was to end', async (t) => {
  const node = await startNode(t);
  const server = node.ready?.server ?? '';
  const script = 'let t = now(); let id = uuid(); sleep("8s"); [id.len, t, now()]';
  const deploy = ['--json', 'deploy', '-', '--detach'];
  const { stdout, stderr } = await herobus(node.home, deploy, script);
  const { flow } = JSON.parse(stdout || assert.fail(stderr)) as { flow: string };
  const dueMs = await until(
    'the sleep',
    async () => {
      const why = await herobus(node.home, ['--json', 'why', flow]);
      const due = /sleeps until ([\d:TZ.-]+)/.exec(why.stdout)?.[1];
      return due === undefined ? undefined : Date.parse(due);
    },
    20_000,
  );
  await node.kill('SIGKILL');
  await node.start();
  const upAgainMs = Date.now();
  const ended = await until(
    'the end of the flow',
    async () => {
      const seen = await flowOf(node.home, server, flow);
      return seen.status === 'completed' ? seen : undefined;
    },
    60_000,
  );
  const endedMs = Date.parse(ended.ended_at ?? '');
  const [id, askedMs, wokeMs] = ended.value as [number, number, number];
  assert.equal(id, 36);
  assert.ok(endedMs >= dueMs, 'not before');
  assert.ok(endedMs < Math.max(dueMs, upAgainMs) + 15_000, `${endedMs - dueMs} ms late`);
  assert.ok(wokeMs - askedMs >= 8000, `it slept ${wokeMs - askedMs} ms`);
  assert.ok(wokeMs < upAgainMs + 8000, 'the deadline was not set anew after the restart');
});
