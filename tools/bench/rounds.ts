/** Interleaved rounds: each contestant once a round, in turns, so that all meet the same disturbances. */
import type { Sample } from './measure.ts';

export type Contestant = {
  system: string;
  /** Roots of the processes it consists of, this one not counted. */
  pids: readonly number[];
  /** A small load before anything counts. */
  warmUp: () => Promise<unknown>;
  measure: () => Promise<Sample>;
};

export async function interleave(
  contestants: readonly Contestant[],
  rounds: number,
  tell: (text: string) => void,
): Promise<Map<string, Sample[]>> {
  const samples = new Map<string, Sample[]>(contestants.map(({ system }) => [system, []]));
  for (let round = 0; round < rounds; round++) {
    for (let i = 0; i < contestants.length; i++) {
      // Nobody is always the one who runs after the same other.
      const contestant = contestants[(i + round) % contestants.length];
      if (contestant === undefined) continue;
      const sample = await contestant.measure();
      samples.get(contestant.system)?.push(sample);
      tell(`round ${round + 1}/${rounds}  ${contestant.system}  ${figures(sample)}`);
    }
  }
  return samples;
}

const figures = (sample: Sample): string =>
  Object.entries(sample)
    .map(([name, value]) => `${name} ${value.toPrecision(4)}`)
    .join(', ');
