/**
 * How large a value is, nested values included: what the size limits measure.
 *
 * Measuring a large value at every change would make building it quadratic, so measuring has a price in
 * steps that the script's own operations pay for (`Measure`): small values are measured at every change,
 * large ones whenever the script has worked enough since.
 */
import { utf8Length } from './tokens.ts';
import { RArray, RBlob, RMap, type Value } from './values.ts';

export interface Sizes {
  items: number;
  entries: number;
  /** UTF-8 bytes. */
  text: number;
}

/** The size of a value, or undefined when measuring it would take more steps than it may. */
export function dataSizes(value: Value, stepsMax = Number.POSITIVE_INFINITY): Sizes | undefined {
  const count: Count = { items: 0, entries: 0, text: 0, steps: stepsMax };
  if (value instanceof RBlob) count.items = value.bytes.length;
  else add(value, count);
  return count.steps < 0 ? undefined : count;
}

type Count = Sizes & { steps: number };

/** Counts a value and what is in it; with its own stack, so that no nesting is too deep for the host's. */
function add(root: Value, count: Count): void {
  const open: Value[] = [root];
  for (let value = open.pop(); value !== undefined && count.steps >= 0; value = open.pop()) {
    if (typeof value === 'string') {
      count.steps -= value.length / UNITS_PER_STEP;
      if (count.steps >= 0) count.text += utf8Length(value);
    } else if (value instanceof RArray) {
      count.items += value.items.length;
      count.steps -= value.items.length;
      if (count.steps >= 0) for (const item of value.items) if (hasSize(item)) open.push(item);
    } else if (value instanceof RMap) {
      count.entries += value.items.size;
      count.steps -= value.items.size;
      if (count.steps >= 0)
        for (const item of value.items.values()) if (hasSize(item)) open.push(item);
    } else if (value instanceof RBlob) count.items += 1 + value.bytes.length;
  }
}

const hasSize = (value: Value): boolean =>
  typeof value === 'string' || (typeof value === 'object' && value !== null);

/** Text is measured faster than values are visited. */
const UNITS_PER_STEP = 16;
/** Steps of measuring that one operation of the script pays for, and what a script begins with. */
const STEPS_PER_OPERATION = 16;
const STEPS_FIRST = 65_536;
/** What can be saved up: enough for the largest value a limit allows; what takes more is beyond any limit. */
const STEPS_MAX = 16_777_216;
const BEYOND: Sizes = {
  items: Number.POSITIVE_INFINITY,
  entries: Number.POSITIVE_INFINITY,
  text: Number.POSITIVE_INFINITY,
};

export class Measure {
  private steps = STEPS_FIRST;
  private operations = 0;
  /** After a measuring that could not be paid for, the next try waits for twice as much. */
  private wanted = 0;

  /** The size of a value, or undefined when it is not measured this time. */
  of(value: Value, operations: number): Sizes | undefined {
    const earned = (operations - this.operations) * STEPS_PER_OPERATION;
    this.steps = Math.min(STEPS_MAX, this.steps + earned);
    this.operations = operations;
    if (this.steps < this.wanted) return undefined;
    const sizes = dataSizes(value, this.steps);
    if (sizes === undefined && this.steps >= STEPS_MAX) {
      this.steps = 0;
      return BEYOND;
    }
    if (sizes === undefined) {
      this.wanted = Math.min(STEPS_MAX, Math.max(1, this.steps * 2));
      return undefined;
    }
    this.wanted = 0;
    this.steps -= sizes.items + sizes.entries + sizes.text / UNITS_PER_STEP;
    return sizes;
  }
}

/** The size of a value without what is nested in it: known at once. */
export function ownSize(value: Value): Sizes {
  return {
    items:
      value instanceof RArray
        ? value.items.length
        : value instanceof RBlob
          ? value.bytes.length
          : 0,
    entries: value instanceof RMap ? value.items.size : 0,
    // At least as many bytes as UTF-16 units.
    text: typeof value === 'string' ? value.length : 0,
  };
}
