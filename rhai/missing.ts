/**
 * The latest reads of properties that a map did not have. Such a read gives `()`, and the script fails
 * later and elsewhere: then this tells which property it was. Entries are made once and overwritten, so
 * that a script which reads such properties on purpose, with `??`, pays nearly nothing.
 */
import { type FnProto, OP, positionAt } from './bytecode.ts';
import { nearNames } from './near.ts';
import type { RMap } from './values.ts';

const KEPT = 16;
/** Of the instructions that read a property or an element. */
const READ_LENGTH = 4;
/** More keys than this are not listed. */
const KEYS_SHOWN = 8;

export class MissingRead {
  proto: FnProto | null = null;
  pc = 0;
  register = -1;
  key = '';
  map: RMap | null = null;

  /** Was the result passed on to that register, at once? */
  reaches(register: number): boolean {
    const { proto } = this;
    if (this.register === register || proto === null) return this.register === register;
    const { code } = proto;
    const at = this.pc + READ_LENGTH;
    const bp = this.register - (code[this.pc + 1] as number);
    const moves = code[at] === OP.MOVE || code[at] === OP.COPY;
    return (
      moves &&
      bp + (code[at + 2] as number) === this.register &&
      bp + (code[at + 1] as number) === register
    );
  }

  /** What was missing, where, and what there is instead. */
  tell(): string {
    const line = this.proto === null ? 0 : positionAt(this.proto, this.pc).line;
    const what = `the map has no property "${this.key}" (read on line ${line})`;
    const keys = [...(this.map?.items.keys() ?? [])];
    const near = nearNames(this.key, keys);
    if (near.length > 0) return `${what}: did you mean "${near.join('" or "')}"?`;
    const some = keys.length > 0 && keys.length <= KEYS_SHOWN;
    const has = some ? `, it has "${keys.join('", "')}"` : '';
    return `${what}${has}; \`x.${this.key} ?? 0\` gives it a value for that case`;
  }
}

export class MissingReads {
  private readonly entries: MissingRead[] = [];
  private at = 0;

  /** A read whose result, unit, goes to that absolute register. */
  note(proto: FnProto | null, pc: number, register: number, key: string, map: RMap): void {
    const entry = (this.entries[this.at] ??= new MissingRead());
    entry.proto = proto;
    entry.pc = pc;
    entry.register = register;
    entry.key = key;
    entry.map = map;
    this.at = (this.at + 1) % KEPT;
  }

  private find(fits: (entry: MissingRead) => boolean): MissingRead | undefined {
    for (let back = 1; back <= this.entries.length; back++) {
      const entry = this.entries[(this.at - back + KEPT) % KEPT];
      if (entry !== undefined && fits(entry)) return entry;
    }
    return undefined;
  }

  /** The latest read into that register. */
  into(register: number): MissingRead | undefined {
    return this.find((entry) => entry.reaches(register));
  }

  /** The latest read in that function, or else anywhere. */
  latest(proto: FnProto): MissingRead | undefined {
    return this.find((entry) => entry.proto === proto) ?? this.find(() => true);
  }
}
