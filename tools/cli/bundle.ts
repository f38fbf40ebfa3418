/**
 * A script file with the files it imports, as they are signed together.
 *
 * An import is read relative to the file it stands in, with `.rhai` added; what those files import comes
 * along too. Only paths that are written out can be followed. That the whole fits together is judged by
 * the same code as on a node (actors/flow/bundle.ts).
 */
import { dirname, join } from 'node:path';
import { type Bundle, explain, moduleName } from '../../actors/flow/bundle.ts';
import { MODULES_MAX } from '../../schemas/deployment.ts';
import { HeroError } from '../../schemas/errors.ts';
import { Engine, type ImportSite, RhaiError } from '../../rhai/engine.ts';
import { readScript, readText } from './files.ts';

/** The script `path` names, and all it imports. Standard input imports from the folder it is read in. */
export async function readBundle(path: string): Promise<Bundle> {
  const script = await readScript(path);
  const folder = path === '-' ? '.' : dirname(path);
  const modules: Record<string, string> = {};
  const bundle: Bundle = { script, modules };
  const engine = new Engine();
  const waiting = [''];
  for (let from = waiting.shift(); from !== undefined; from = waiting.shift()) {
    for (const site of importsIn(engine, from === '' ? script : (modules[from] ?? ''))) {
      const name = moduleName(site.path, from);
      if (Object.hasOwn(modules, name)) continue;
      if (Object.keys(modules).length >= MODULES_MAX) {
        throw new HeroError('too_large', `${path} imports more than ${MODULES_MAX} files`);
      }
      modules[name] = await readModule(join(folder, `${name}.rhai`), { site, name, from }, bundle);
      waiting.push(name);
    }
  }
  return bundle;
}

/** What does not compile imports nothing; that it does not is said by who compiles it. */
function importsIn(engine: Engine, source: string): readonly ImportSite[] {
  try {
    return engine.importsOf(source);
  } catch (error) {
    if (error instanceof RhaiError) return [];
    throw error;
  }
}

async function readModule(
  file: string,
  { site, name, from }: { site: ImportSite; name: string; from: string },
  bundle: Bundle,
): Promise<string> {
  const refused = (why: string): HeroError => {
    const error = new RhaiError('ErrorParsing', { name: why }, site.pos);
    const placed =
      from === '' ? error : new RhaiError('ErrorInModule', { name: from, inner: error });
    return new HeroError(
      'script_syntax',
      `an import cannot be followed\n${explain(placed, bundle)}`,
      {
        fix: 'Imports are paths relative to the file they stand in, without .rhai. Nothing was published.',
      },
    );
  };
  if (name.startsWith('/')) throw refused(`"${site.path}" is absolute`);
  try {
    return await readText(file, 'module');
  } catch (error) {
    if (error instanceof HeroError) throw refused(error.message);
    throw error;
  }
}
