/** Placeholder of printing, filled in next. */
import type { Value } from './values.ts';
export function displayText(value: Value): string {
  return String(value);
}
