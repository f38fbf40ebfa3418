import { defineConfig } from 'tsup';

// The entries are the composition roots: each is started by a name of its own
// (the CLI, which runs itself on the packaged Node; the worker thread that runs scripts).
export default defineConfig({
  entry: {
    cli: 'tools/cli/entry.ts',
    'script-worker': 'supervisors/script-worker.ts',
  },
  format: 'esm',
  platform: 'node',
  target: 'node24',
  outDir: 'dist',
  clean: true,
  splitting: true,
  sourcemap: true,
  dts: false,
});
