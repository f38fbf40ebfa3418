/** The standard library: all families, registered in one table. */
import type { Settings } from '../limits.ts';
import { NativeTable } from '../natives.ts';
import { arrayCallbackFunctions, arrayFunctions, arrayPartFunctions } from './arrays.ts';
import { blobFunctions, blobNumberFunctions, blobPartFunctions } from './blobs.ts';
import { coreFunctions, languageFunctions, textFunctions, timeFunctions } from './core.ts';
import { mapFunctions } from './maps.ts';
import { bitFunctions, floatFunctions, integerFunctions, rangeFunctions } from './numbers.ts';
import { charFunctions, searchFunctions, splitFunctions, stringFunctions } from './strings.ts';

const FAMILIES = [
  languageFunctions,
  textFunctions,
  timeFunctions,
  integerFunctions,
  floatFunctions,
  bitFunctions,
  rangeFunctions,
  charFunctions,
  stringFunctions,
  searchFunctions,
  splitFunctions,
  arrayFunctions,
  arrayPartFunctions,
  arrayCallbackFunctions,
  blobFunctions,
  blobPartFunctions,
  blobNumberFunctions,
  mapFunctions,
];

/** Made once in a process: an engine costs no more than what its host adds. */
let core: NativeTable | undefined;
let whole: NativeTable | undefined;

export function standardLibrary(settings: Settings): NativeTable {
  core ??= registered([coreFunctions]);
  if (!settings.standardLibrary) return new NativeTable(core);
  whole ??= registered(FAMILIES, core);
  return new NativeTable(whole);
}

function registered(
  families: readonly ((table: NativeTable) => void)[],
  base?: NativeTable,
): NativeTable {
  const table = new NativeTable(base);
  for (const family of families) family(table);
  return table;
}
