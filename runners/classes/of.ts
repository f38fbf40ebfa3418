/** The class of a runner by its name, with what each needs from the node. */
import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { Registry } from '../../sal/driver.ts';
import { fileFamily } from '../../sal/file.ts';
import { kvFamily } from '../../sal/kv.ts';
import { HeroError } from '../../schemas/errors.ts';
import type { JobKind } from '../../schemas/job.ts';
import type { KvSocket } from '../../schemas/kv.ts';
import type { RunnerClass } from './class.ts';
import { processClass } from './process.ts';
import { salClass } from './sal.ts';

export type ClassSetup = {
  /** The node's data folder: `work` and `files` are made in it, `undo` keeps what the file SAL changed. */
  data: string;
  kv: KvSocket;
};

export function classOf(kind: JobKind, { data, kv }: ClassSetup): RunnerClass {
  const folder = (name: string): string => {
    const path = join(data, name);
    mkdirSync(path, { recursive: true, mode: 0o700 });
    return path;
  };
  switch (kind) {
    case 'process':
      return processClass({ directory: folder('work') });
    case 'sal': {
      const files = fileFamily({ root: folder('files'), undo: folder('undo') });
      return salClass(new Registry([kvFamily(kv), files]));
    }
    default:
      throw new HeroError('bad_request', `this version has no runner of class ${kind}`);
  }
}
