/** The standard library: all families, registered in one table. */
import type { Settings } from '../limits.ts';
import { NativeTable } from '../natives.ts';

export function standardLibrary(_settings: Settings): NativeTable {
  return new NativeTable();
}
