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

export function standardLibrary(settings: Settings): NativeTable {
  const table = new NativeTable();
  coreFunctions(table);
  if (settings.standardLibrary) for (const family of FAMILIES) family(table);
  return table;
}
