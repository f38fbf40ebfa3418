// Makes sure that a fresh clone can run: dependencies, a nats-server of at least
// 2.12, the built dist. Plain ES2022 for Node 20 with nothing but node: imports,
// because it runs before `npm ci` and under the user's own Node.
//
// Whatever is there already is used without touching the network, so a second run
// works offline. Where the running product looks for the same server is written in
// bus/server-binary.ts; the two orders must agree.

import { spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { accessSync, chmodSync, constants, existsSync, mkdirSync, readFileSync } from 'node:fs';
import { readdirSync, renameSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { delimiter, dirname, join, relative } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';

const ROOT = dirname(dirname(fileURLToPath(import.meta.url)));
const CACHE = join(ROOT, '.cache', 'nats-server');
const SERVER_MIN = [2, 12, 0];
const NODE_MIN = 24;
// sid first: trixie's server is older than 2.12 today, and each index is a download.
const SUITES = ['sid', 'trixie-backports', 'trixie'];
const APT_TIMEOUT_MS = 180_000;

/**
 * Which Debian package brings a command that the system tests call.
 * `npm test` skips a test by the name of the package it misses.
 */
export const SYSTEM_PACKAGES = {
  setpriv: 'util-linux',
  unshare: 'util-linux',
  ip: 'iproute2',
  strace: 'strace',
  busybox: 'busybox-static',
  mke2fs: 'e2fsprogs',
  'qemu-system-x86_64': 'qemu-system-x86',
};

/** @typedef {{ what: string, why: string, fix: string }} SetupProblem */

export class SetupError extends Error {
  /** @param {SetupProblem} problem */
  constructor({ what, why, fix }) {
    super(`${what}\n  why: ${why}\n  fix: ${fix}`);
    this.name = 'SetupError';
  }
}

/** @param {string} text */
function say(text) {
  process.stderr.write(`setup: ${text}\n`);
}

/** @param {number} startMs */
function seconds(startMs) {
  return `${((Date.now() - startMs) / 1000).toFixed(1)} s`;
}

/** @param {string} file */
function isExecutable(file) {
  try {
    accessSync(file, constants.X_OK);
    return statSync(file).isFile();
  } catch {
    return false;
  }
}

/**
 * The first executable of this name on PATH.
 * @param {string} name
 */
export function onPath(name) {
  for (const dir of (process.env.PATH ?? '').split(delimiter)) {
    if (dir !== '' && isExecutable(join(dir, name))) return join(dir, name);
  }
  return null;
}

/** The commands of SYSTEM_PACKAGES that are not on PATH, with their package. */
export function missingSystemPackages() {
  return Object.entries(SYSTEM_PACKAGES)
    .filter(([command]) => onPath(command) === null)
    .map(([command, name]) => ({ command, package: name }));
}

/** @param {string} command @param {string[]} args @param {object} [options] */
function run(command, args, options = {}) {
  const done = spawnSync(command, args, { encoding: 'utf8', maxBuffer: 64 << 20, ...options });
  const output = `${done.stdout ?? ''}${done.stderr ?? ''}`.trim();
  return { ok: done.status === 0, output, stdout: (done.stdout ?? '').trim(), error: done.error };
}

/** @param {string} text */
function lastLines(text) {
  return text.split('\n').slice(-6).join('\n       ');
}

/** The one line of apt's output that says what went wrong. */
function aptReason(/** @type {string} */ output) {
  const lines = output.split('\n').map((line) => line.trim());
  return lines.find((line) => line.startsWith('E: ')) ?? lines.at(-1) ?? '';
}

/** @param {string} file */
function digestOf(file) {
  return createHash('sha256').update(readFileSync(file)).digest('hex');
}

/** Installed when the stamp names this very lock file, or npm's own record is newer than it. */
function dependenciesInstalled(lock, stamp) {
  const record = join(ROOT, 'node_modules', '.package-lock.json');
  if (!existsSync(record)) return false;
  if (existsSync(stamp) && readFileSync(stamp, 'utf8') === digestOf(lock)) return true;
  return statSync(record).mtimeMs >= statSync(lock).mtimeMs;
}

function packagedNode() {
  return join(ROOT, 'node_modules', '.bin', 'node');
}

/** The npm package `node` brings its binary by a preinstall script, which can be switched off. */
function packagedNodeWorks() {
  const version = run(packagedNode(), ['--version']);
  return version.ok && Number.parseInt(version.stdout.slice(1), 10) >= NODE_MIN;
}

function ensureDependencies() {
  const lock = join(ROOT, 'package-lock.json');
  const stamp = join(ROOT, 'node_modules', '.herobus-lock');
  if (!dependenciesInstalled(lock, stamp)) {
    const start = Date.now();
    say('npm ci …');
    const done = run('npm', ['ci', '--no-audit', '--no-fund'], { cwd: ROOT });
    if (!done.ok) {
      throw new SetupError({
        what: 'The npm dependencies could not be installed.',
        why: lastLines(done.output || String(done.error)),
        fix: 'Connect to the npm registry (or set `npm config set registry`), then run `npm ci`.',
      });
    }
    say(`npm ci done in ${seconds(start)}`);
  }
  if (!packagedNodeWorks()) {
    const done = run('npm', ['rebuild', 'node', '--ignore-scripts=false'], { cwd: ROOT });
    if (!packagedNodeWorks()) {
      throw new SetupError({
        what: `The packaged Node ${NODE_MIN} (npm package \`node\`) does not run.`,
        why: lastLines(done.output || String(done.error)),
        fix: 'Run `npm ci --ignore-scripts=false`; on a system without glibc there is no such package.',
      });
    }
  }
  if (!existsSync(stamp) || readFileSync(stamp, 'utf8') !== digestOf(lock)) {
    writeFileSync(stamp, digestOf(lock));
  }
}

/** @param {string} file */
function serverVersion(file) {
  const answer = run(file, ['--version'], { timeout: 10_000 });
  const match = /v(\d+)\.(\d+)\.(\d+)/.exec(answer.output);
  return answer.ok && match !== null ? match.slice(1, 4).map(Number) : null;
}

/** @param {number[]} version */
function isNewEnough(version) {
  for (let i = 0; i < SERVER_MIN.length; i++) {
    if (version[i] !== SERVER_MIN[i]) return version[i] > SERVER_MIN[i];
  }
  return true;
}

/** A usable server that is there already: the same order as bus/server-binary.ts. */
export function findServer() {
  const named = process.env.HEROBUS_NATS_SERVER;
  if (named !== undefined && named !== '') {
    const version = isExecutable(named) ? serverVersion(named) : null;
    if (version !== null && isNewEnough(version)) return { file: named, version };
    throw new SetupError({
      what: `HEROBUS_NATS_SERVER names ${named}, which is not usable.`,
      why: version === null ? 'it does not run' : `it is ${version.join('.')}, older than 2.12`,
      fix: 'Point it at a nats-server of at least 2.12, or unset it.',
    });
  }
  for (const file of [onPath('nats-server'), join(CACHE, 'nats-server')]) {
    if (file === null || !isExecutable(file)) continue;
    const version = serverVersion(file);
    if (version !== null && isNewEnough(version)) return { file, version };
  }
  return null;
}

/** @param {string} file */
function deb822Sources(file) {
  const sources = [];
  for (const stanza of readFileSync(file, 'utf8').split(/\n\s*\n/)) {
    const fields = new Map();
    let name = '';
    for (const line of stanza.split('\n')) {
      if (line.startsWith('#')) continue;
      const field = /^([A-Za-z-]+):\s*(.*)$/.exec(line);
      if (field !== null) name = field[1].toLowerCase();
      const value = field === null ? line.trim() : field[2].trim();
      if (name !== '')
        fields.set(name, `${fields.get(name) ?? ''}${field === null ? '\n' : ''}${value}`);
    }
    if (fields.get('enabled')?.toLowerCase() === 'no') continue;
    if (!(fields.get('types') ?? '').split(/\s+/).includes('deb')) continue;
    for (const uri of (fields.get('uris') ?? '').split(/\s+/).filter(Boolean)) {
      const suites = (fields.get('suites') ?? '').split(/\s+/);
      sources.push({ uri, suites, signedBy: fields.get('signed-by') ?? '' });
    }
  }
  return sources;
}

/** @param {string} file */
function oneLineSources(file) {
  const sources = [];
  for (const line of readFileSync(file, 'utf8').split('\n')) {
    const match = /^\s*deb\s+(?:\[([^\]]*)\]\s+)?(\S+)\s+(\S+)/.exec(line);
    if (match === null) continue;
    const signedBy = /signed-by=(\S+)/i.exec(match[1] ?? '')?.[1] ?? '';
    sources.push({ uri: match[2], suites: [match[3]], signedBy });
  }
  return sources;
}

/**
 * The Debian archive this machine itself installs from: a mirror that works here,
 * with the keyring it is trusted by.
 * @param {string} [etcApt]
 * @param {string} [codename]
 */
export function debianMirror(etcApt = '/etc/apt', codename = osRelease().VERSION_CODENAME ?? '') {
  const parts = join(etcApt, 'sources.list.d');
  const files = existsSync(parts) ? readdirSync(parts).map((name) => join(parts, name)) : [];
  if (existsSync(join(etcApt, 'sources.list'))) files.unshift(join(etcApt, 'sources.list'));
  const sources = files.flatMap((file) => {
    if (file.endsWith('.sources')) return deb822Sources(file);
    return file.endsWith('.list') ? oneLineSources(file) : [];
  });
  // The suite of the release itself (not -updates, not -security) marks the main archive.
  const main = sources.find(({ suites }) =>
    suites.some((suite) => [codename, 'stable', 'testing', 'sid', 'unstable'].includes(suite)),
  );
  return main ?? null;
}

function osRelease() {
  /** @type {Record<string, string>} */
  const fields = {};
  if (!existsSync('/etc/os-release')) return fields;
  for (const line of readFileSync('/etc/os-release', 'utf8').split('\n')) {
    const match = /^([A-Z_]+)="?([^"]*)"?$/.exec(line);
    if (match !== null) fields[match[1]] = match[2];
  }
  return fields;
}

/** Apt under a configuration of its own: its lists, its cache, its one source; the machine's stay as they are. */
function aptArguments(dir) {
  const lists = join(dir, 'lists');
  const cache = join(dir, 'cache');
  for (const made of [join(lists, 'partial'), join(cache, 'archives', 'partial')]) {
    mkdirSync(made, { recursive: true });
  }
  const options = {
    'Dir::Etc::SourceList': join(dir, 'none.list'),
    'Dir::Etc::SourceParts': join(dir, 'sources.d'),
    'Dir::State::Lists': lists,
    'Dir::State::Status': join(dir, 'status'),
    'Dir::Cache': cache,
    // A frozen mirror's newer suites are past their date; their signatures are still checked.
    'Acquire::Check-Valid-Until': 'false',
    'Acquire::Languages': 'none',
    'Acquire::Retries': '2',
    // Without it a mirror that cannot be reached is only a warning.
    'APT::Update::Error-Mode': 'any',
    'APT::Sandbox::User': 'root',
    'Debug::NoLocking': 'true',
  };
  return Object.entries(options).flatMap(([key, value]) => ['-o', `${key}=${value}`]);
}

/** @param {{ uri: string, signedBy: string }} mirror @param {string} suite @param {string} dir */
function writeAptSource(mirror, suite, dir) {
  rmSync(dir, { recursive: true, force: true });
  mkdirSync(join(dir, 'sources.d'), { recursive: true });
  writeFileSync(join(dir, 'none.list'), '');
  writeFileSync(join(dir, 'status'), '');
  const keyring = mirror.signedBy || '/usr/share/keyrings/debian-archive-keyring.gpg';
  const signedBy = mirror.signedBy !== '' || existsSync(keyring) ? [`Signed-By: ${keyring}`] : [];
  const stanza = ['Types: deb', `URIs: ${mirror.uri}`, `Suites: ${suite}`, 'Components: main'];
  writeFileSync(
    join(dir, 'sources.d', 'newer.sources'),
    `${[...stanza, ...signedBy].join('\n')}\n`,
  );
}

/** The newest version of nats-server in the private lists, by its three numbers. */
function offeredVersion(apt, dir) {
  const policy = run('apt-cache', [...apt, 'policy', 'nats-server'], { cwd: dir }).stdout;
  const candidate = /Candidate:\s*(?:\d+:)?((\d+)\.(\d+)\.(\d+)\S*)/.exec(policy);
  return candidate === null
    ? null
    : { text: candidate[1], numbers: candidate.slice(2, 5).map(Number) };
}

/** Unpacks the server of one suite into the cache; answers why not where it cannot. */
function unpackFrom(mirror, suite) {
  const dir = join(CACHE, 'apt');
  writeAptSource(mirror, suite, dir);
  const apt = aptArguments(dir);
  const start = Date.now();
  const limits = { cwd: dir, timeout: APT_TIMEOUT_MS };
  const update = run('apt-get', [...apt, 'update', '-q'], limits);
  if (!update.ok || /^E: /m.test(update.output)) return `${suite}: ${aptReason(update.output)}`;
  const fetched = /Fetched ([\d.,]+ \S+)/.exec(update.output)?.[1] ?? 'index';
  say(`index of ${suite} (${fetched}) in ${seconds(start)}`);
  const offered = offeredVersion(apt, dir);
  if (offered === null) return `${suite}: has no nats-server`;
  if (!isNewEnough(offered.numbers)) return `${suite}: has ${offered.text}, older than 2.12`;
  const startDownload = Date.now();
  const download = run('apt-get', [...apt, 'download', '-q', 'nats-server'], limits);
  const deb = readdirSync(dir).find((name) => name.endsWith('.deb'));
  if (!download.ok || deb === undefined) return `${suite}: ${aptReason(download.output)}`;
  const mebibytes = (statSync(join(dir, deb)).size / (1 << 20)).toFixed(1);
  say(`nats-server ${offered.text} (${mebibytes} MiB) in ${seconds(startDownload)}`);
  const unpack = run('dpkg-deb', ['-x', join(dir, deb), join(dir, 'root')]);
  if (!unpack.ok) return `${suite}: ${lastLines(unpack.output)}`;
  const unpacked = ['usr/sbin', 'usr/bin'].map((bin) => join(dir, 'root', bin, 'nats-server'));
  const file = unpacked.find((path) => isExecutable(path));
  const version = file === undefined ? null : serverVersion(file);
  if (file === undefined || version === null) return `${suite}: ${offered.text} does not run here`;
  chmodSync(file, 0o755);
  renameSync(file, join(CACHE, 'nats-server'));
  rmSync(dir, { recursive: true, force: true });
  return null;
}

function ensureServer() {
  const found = findServer();
  if (found !== null) return found;
  const fix = 'Put a nats-server of at least 2.12 on PATH, or set HEROBUS_NATS_SERVER=/path/to/it.';
  const what = 'No nats-server of at least 2.12 was found.';
  const missing = ['apt-get', 'dpkg-deb'].filter((tool) => onPath(tool) === null);
  const mirror = missing.length === 0 ? debianMirror() : null;
  if (mirror === null) {
    const system = osRelease().PRETTY_NAME ?? process.platform;
    const why =
      missing.length > 0
        ? `it is unpacked from Debian's archive, and ${missing.join(', ')} cannot be found (${system})`
        : `no Debian archive stands in the sources of apt (${system})`;
    throw new SetupError({ what, why, fix });
  }
  mkdirSync(CACHE, { recursive: true });
  const reasons = [];
  for (const suite of SUITES) {
    const reason = unpackFrom(mirror, suite);
    if (reason === null) return findServer();
    reasons.push(reason);
  }
  rmSync(join(CACHE, 'apt'), { recursive: true, force: true });
  throw new SetupError({ what, why: `${mirror.uri}: ${reasons.join('\n       ')}`, fix });
}

const SOURCE_FOLDERS = 'actors bus efi herodb rhai runners sal schemas supervisors tools'.split(
  ' ',
);

/** @param {string} dir @returns {string[]} */
function sourcesUnder(dir) {
  if (!existsSync(dir)) return [];
  return readdirSync(dir, { withFileTypes: true }).flatMap((entry) => {
    const path = join(dir, entry.name);
    return entry.isDirectory() ? sourcesUnder(path) : path.endsWith('.ts') ? [path] : [];
  });
}

/** A digest over names and contents: a checkout that only touches times needs no build. */
function sourceDigest() {
  const files = SOURCE_FOLDERS.flatMap((folder) => sourcesUnder(join(ROOT, folder))).sort();
  const hash = createHash('sha256');
  for (const file of [...files, join(ROOT, 'tsup.config.ts'), join(ROOT, 'package-lock.json')]) {
    hash
      .update(`${relative(ROOT, file)}\0`)
      .update(readFileSync(file))
      .update('\0');
  }
  return hash.digest('hex');
}

function ensureDist() {
  const stamp = join(ROOT, 'dist', '.sources');
  const digest = sourceDigest();
  if (existsSync(stamp) && readFileSync(stamp, 'utf8') === digest) return;
  const start = Date.now();
  const tsup = join(ROOT, 'node_modules', 'tsup', 'dist', 'cli-default.js');
  const done = run(packagedNode(), [tsup, '--silent'], { cwd: ROOT });
  if (!done.ok) {
    throw new SetupError({
      what: 'The build of dist failed.',
      why: lastLines(done.output || String(done.error)),
      fix: 'Run `npm run build` to see all of it; `npm run types` names the line.',
    });
  }
  writeFileSync(stamp, digest);
  say(`built dist in ${seconds(start)}`);
}

/** What the system tests miss: installed where that is ours to do, else the one command that does. */
function ensureSystemPackages() {
  const missing = missingSystemPackages();
  if (missing.length === 0) return;
  const names = [...new Set(missing.map((entry) => entry.package))];
  const command = `apt-get install -y --no-install-recommends ${names.join(' ')}`;
  const root = process.getuid?.() === 0;
  const debian = existsSync('/etc/debian_version') && onPath('apt-get') !== null;
  if (!root || !debian) {
    say(`some system tests will be skipped; to run them: ${root ? '' : 'sudo '}${command}`);
    return;
  }
  const start = Date.now();
  const env = { ...process.env, DEBIAN_FRONTEND: 'noninteractive' };
  const install = () => run('sh', ['-c', command], { env });
  let done = install();
  if (!done.ok) {
    run('apt-get', ['update', '-q'], { env });
    done = install();
  }
  if (done.ok) say(`installed ${names.join(' ')} in ${seconds(start)}`);
  else say(`could not install ${names.join(' ')}: ${lastLines(done.output)}`);
}

/** The kernel that virtual machines of the tests boot: unpacked into the cache, not installed. */
function ensureKernel() {
  if (existsSync(join(ROOT, '.cache', 'kernel')) || onPath('qemu-system-x86_64') === null) return;
  const start = Date.now();
  const fetch = () => run(packagedNode(), [join(ROOT, 'tools', 'kernel.ts')]);
  let done = fetch();
  if (!done.ok && process.getuid?.() === 0) {
    run('apt-get', ['update', '-q']);
    done = fetch();
  }
  if (done.ok) say(`unpacked ${done.stdout} in ${seconds(start)}`);
  else say(`some system tests will be skipped, no kernel: ${lastLines(done.output)}`);
}

function main() {
  ensureDependencies();
  const server = ensureServer();
  ensureDist();
  if (process.argv.includes('--system')) {
    ensureSystemPackages();
    ensureKernel();
  }
  if (process.argv.includes('--verbose')) {
    say(`nats-server ${server?.version.join('.')} at ${server?.file}`);
  }
}

if (process.argv[1] !== undefined && import.meta.url === pathToFileURL(process.argv[1]).href) {
  try {
    main();
  } catch (error) {
    if (!(error instanceof SetupError)) throw error;
    process.stderr.write(`setup: ${error.message}\n`);
    process.exitCode = 1;
  }
}
