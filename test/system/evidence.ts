/**
 * What a flow leaves behind, for tests that kill things: its log as a stranger reads it, and the lines its
 * processes wrote. The two must tell the same story.
 */
import assert from 'node:assert/strict';
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import type { NatsConnection } from '@nats-io/transport-node';
import { follow, type Followed, join as joinBus, makeKey, seedOf } from './foreign-client.ts';

type Attempt = { n: number; attempt: number };
type Body = {
  type?: string;
  begun?: Attempt[];
  results?: (Attempt & { outcome: string })[];
  status?: string;
};

export type Story = { begun: string[]; finished: string[]; end: string; entries: Followed[] };

/** Connects with the home's own key. */
export async function connectAs(
  home: string,
  data: string,
  server: string,
): Promise<NatsConnection> {
  const key = makeKey(seedOf(readFileSync(join(home, 'key.nk'), 'utf8')));
  return joinBus(server, readFileSync(join(data, 'join.creds')), key);
}

/** Reads a flow's log to its end. */
export async function storyOf(nats: NatsConnection, flow: string): Promise<Story> {
  const entries = await follow(nats, 'default', flow);
  const begun: string[] = [];
  const finished: string[] = [];
  for (const { subject, body } of entries) {
    if (subject.split('.')[4] === 'main') continue;
    const { begun: begins = [], results = [] } = body as Body;
    for (const { n, attempt } of begins) begun.push(`${flow}.${n} ${attempt}`);
    for (const { n, attempt } of results) finished.push(`${flow}.${n} ${attempt}`);
  }
  return {
    begun,
    finished,
    end: (entries.at(-1)?.body as Body | undefined)?.status ?? '',
    entries,
  };
}

/** Lines of the trace: `<job> <attempt>`, one for each attempt that ran. */
export function traceLines(path: string): string[] {
  return existsSync(path)
    ? readFileSync(path, 'utf8')
        .split('\n')
        .filter((line) => line !== '')
    : [];
}

/**
 * No attempt began twice, none ran without being begun first, and each that reported ran exactly once. An
 * attempt that was begun and lost may have been killed before its first instruction.
 */
export function assertOnce(story: Story, lines: string[]): void {
  const twice = (list: string[]): string[] => list.filter((each, i) => list.indexOf(each) !== i);
  assert.deepEqual(twice(story.begun), [], 'an attempt was begun twice');
  assert.deepEqual(twice(lines), [], 'an attempt ran twice');
  assert.deepEqual(
    lines.filter((line) => !story.begun.includes(line)),
    [],
    'an attempt ran that was not begun',
  );
  assert.deepEqual(
    story.finished.filter((each) => !lines.includes(each)),
    [],
    'an attempt reported that never ran',
  );
}
