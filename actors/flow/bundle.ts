/**
 * The bundle: a script with the modules that were signed with it. Pure.
 *
 * Names are paths seen from the script's folder, without `.rhai`; an import is read relative to who imports.
 * What is wrong with a bundle is found before it runs (`bundleFault`), with the place it is wrong at, so
 * that whoever seals one and whoever is to run it refuse the same.
 */
import {
  type Engine,
  originOf,
  type Position,
  prettyError,
  RhaiError,
  type Settings,
} from '../../rhai/engine.ts';

export type Bundle = { script: string; modules: Readonly<Record<string, string>> };

/** Of script and modules together, in UTF-8. */
export const SCRIPT_BYTES_MAX = 512 * 1024;
/** An import that goes round is refused beforehand; one whose path is computed, when it starts so often. */
const STARTS_MAX = 8;

/** What an import means: its path as written, seen from the module it stands in ('': the script). */
export function moduleName(path: string, from: string): string {
  if (path.startsWith('/')) return path;
  const parts = from.split('/').slice(0, -1);
  for (const part of path.replace(/\.rhai$/, '').split('/')) {
    if (part === '' || part === '.') continue;
    if (part === '..' && parts.length > 0 && parts.at(-1) !== '..') parts.pop();
    else parts.push(part);
  }
  return parts.join('/');
}

export const moduleSource = ({ modules }: Bundle, name: string): string | undefined =>
  Object.hasOwn(modules, name) ? modules[name] : undefined;

/** What an engine needs to find a bundle's modules and no others. */
export function moduleSettings(bundle: Bundle): Pick<Settings, 'resolveModule' | 'modulePath'> {
  const starts = new Map<string, number>();
  return {
    modulePath: moduleName,
    resolveModule: (name) => {
      const count = (starts.get(name) ?? 0) + 1;
      starts.set(name, count);
      if (count > STARTS_MAX) throw new RhaiError('ErrorTooManyModules');
      return moduleSource(bundle, name);
    },
  };
}

/** An error of a bundle with the source line it points at, whichever source that is. */
export const explain = (error: RhaiError, bundle: Bundle): string =>
  prettyError(error, bundle.script, (name) => moduleSource(bundle, name));

/** Where an error happened, in words: `line 3`, `lib/util line 3`; undefined when nobody knows. */
export function placeOf(error: RhaiError): string | undefined {
  const { error: innermost, path } = originOf(error);
  const { line } = innermost.position;
  if (line === 0) return undefined;
  return path === '' ? `line ${line}` : `${path} line ${line}`;
}

export function isTooLarge({ script, modules }: Bundle): boolean {
  const texts = [script, ...Object.values(modules)];
  const characters = texts.reduce((sum, text) => sum + text.length, 0);
  if (characters > SCRIPT_BYTES_MAX) return true;
  if (characters * 3 <= SCRIPT_BYTES_MAX) return false;
  const encoder = new TextEncoder();
  return texts.reduce((sum, text) => sum + encoder.encode(text).length, 0) > SCRIPT_BYTES_MAX;
}

/**
 * What is wrong with the modules before anything runs: one does not compile, or imports what is not there,
 * or itself. The script itself is left to who compiles it.
 */
export function bundleFault(engine: Engine, bundle: Bundle): RhaiError | undefined {
  const alone = Object.keys(bundle.modules).length === 0;
  if (alone && !bundle.script.includes('import')) return undefined;
  for (const name of Object.keys(bundle.modules)) {
    try {
      engine.checkModule(moduleSource(bundle, name) ?? '', name);
    } catch (error) {
      if (!(error instanceof RhaiError)) throw error;
      return inModule(name, error);
    }
  }
  return new Imports(engine, bundle).fault();
}

const inModule = (name: string, error: RhaiError): RhaiError =>
  name === '' ? error : new RhaiError('ErrorInModule', { name, inner: error });

/** The graph of who imports whom, walked from the script on. */
class Imports {
  readonly #engine: Engine;
  readonly #bundle: Bundle;
  readonly #done = new Set<string>();

  constructor(engine: Engine, bundle: Bundle) {
    this.#engine = engine;
    this.#bundle = bundle;
  }

  fault(from = '', trail: readonly string[] = []): RhaiError | undefined {
    const source = from === '' ? this.#bundle.script : moduleSource(this.#bundle, from);
    for (const { path, pos } of this.#engine.importsOf(source ?? '')) {
      const name = moduleName(path, from);
      const fault = this.#faultOf(name, [...trail, from], pos);
      if (fault !== undefined)
        return fault.at === undefined ? fault.error : inModule(from, fault.error);
    }
    this.#done.add(from);
    return undefined;
  }

  /** `at`: the fault is the import's own, not one further on. */
  #faultOf(
    name: string,
    trail: readonly string[],
    at: Position,
  ): { error: RhaiError; at?: Position } | undefined {
    if (moduleSource(this.#bundle, name) === undefined) {
      const known = Object.keys(this.#bundle.modules).join(', ');
      const there = known === '' ? 'none was signed with the script' : `there are ${known}`;
      return { at, error: refusal(`there is no module "${name}"; ${there}`, at) };
    }
    if (trail.includes(name)) {
      const round = [...trail.slice(trail.indexOf(name)), name].join(' -> ');
      return { at, error: refusal(`imports go round: ${round}`, at) };
    }
    if (this.#done.has(name)) return undefined;
    const error = this.fault(name, trail);
    return error === undefined ? undefined : { error };
  }
}

const refusal = (message: string, at: Position): RhaiError =>
  new RhaiError('ErrorParsing', { name: message, parse: 'BadImport' }, at);
