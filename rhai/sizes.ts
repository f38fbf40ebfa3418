/** How large a value is, nested values included: what the size limits measure. */
import { utf8Length } from './tokens.ts';
import { RArray, RBlob, RMap, type Value } from './values.ts';

export interface Sizes {
  items: number;
  entries: number;
  /** UTF-8 bytes. */
  text: number;
}

export function dataSizes(value: Value): Sizes {
  const sizes: Sizes = { items: 0, entries: 0, text: 0 };
  if (value instanceof RBlob) sizes.items = value.bytes.length;
  else add(value, sizes);
  return sizes;
}

function add(value: Value, sizes: Sizes): void {
  if (typeof value === 'string') sizes.text += utf8Length(value);
  else if (value instanceof RArray) {
    sizes.items += value.items.length;
    for (const item of value.items) {
      if (typeof item === 'string' || (typeof item === 'object' && item !== null)) add(item, sizes);
    }
  } else if (value instanceof RMap) {
    sizes.entries += value.items.size;
    for (const item of value.items.values()) add(item, sizes);
  } else if (value instanceof RBlob) sizes.items += 1 + value.bytes.length;
}
