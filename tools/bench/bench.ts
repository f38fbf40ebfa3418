/** `npm run bench -- NAME`: the benchmarks of this folder by name; what follows is the benchmark's own. */
type Bench = { run: (argv: string[]) => Promise<number> };

const BENCHES: Record<string, () => Promise<Bench>> = {
  jobs: () => import('./jobs.ts'),
  memory: () => import('./memory.ts'),
  rhai: () => import('./rhai/rhai.ts'),
};

const [name = '', ...argv] = process.argv.slice(2);
const load = Object.hasOwn(BENCHES, name) ? BENCHES[name] : undefined;
if (load === undefined) {
  console.error(`usage: npm run bench -- ${Object.keys(BENCHES).join('|')} [--json]`);
  process.exitCode = 64;
} else {
  process.exitCode = await (await load()).run(argv);
}
