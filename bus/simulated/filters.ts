/** Which subjects a filter means: `*` is one token, `>` is all that follow. */

export type Matcher = (subject: string) => boolean;

const known = new Map<string, Matcher>();
const KNOWN_MAX = 20_000;

export function matcher(filter: string): Matcher {
  const before = known.get(filter);
  if (before !== undefined) return before;
  if (known.size >= KNOWN_MAX) known.clear();
  const made = make(filter);
  known.set(filter, made);
  return made;
}

export const isLiteral = (filter: string): boolean =>
  !filter.includes('*') && !filter.endsWith('>');

function make(filter: string): Matcher {
  if (isLiteral(filter)) return (subject) => subject === filter;
  if (filter.endsWith('.>') && !filter.includes('*')) {
    const prefix = filter.slice(0, -1);
    return (subject) => subject.length > prefix.length && subject.startsWith(prefix);
  }
  const tokens = filter.split('.').map((token) => {
    if (token === '*') return '[^.]+';
    return token === '>' ? '.+' : token.replaceAll(/[$^\\|?+(){}[\]]/g, '\\$&');
  });
  const pattern = new RegExp(`^${tokens.join('\\.')}$`);
  return (subject) => pattern.test(subject);
}
