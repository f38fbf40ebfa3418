/**
 * Many command lines in one process: reads their arguments as JSON from standard input, runs each as the CLI
 * would, and writes what each said. A process for each would cost half a second of start.
 */
import { text } from 'node:stream/consumers';
import { run } from '../../tools/cli/main.ts';

type Write = typeof process.stdout.write;

/** Both streams, as long as `act` runs. */
async function captured(act: () => Promise<number>) {
  const said = { stdout: '', stderr: '' };
  const before = {
    stdout: process.stdout.write.bind(process.stdout),
    stderr: process.stderr.write.bind(process.stderr),
  };
  for (const name of ['stdout', 'stderr'] as const) {
    process[name].write = ((chunk: string | Uint8Array) => {
      said[name] += String(chunk);
      return true;
    }) as Write;
  }
  try {
    process.exitCode = undefined;
    return { code: await act(), ...said };
  } finally {
    process.stdout.write = before.stdout;
    process.stderr.write = before.stderr;
    process.exitCode = 0;
  }
}

const lines = JSON.parse(await text(process.stdin)) as string[][];
const ran = [];
for (const argv of lines) ran.push(await captured(() => run(argv)));
process.stdout.write(JSON.stringify(ran));
