/**
 * What a SAL is to its callers: a family of operations, each callable by name with plain JSON arguments.
 *
 * An operation converges: called again by the same job it finds what it did and does nothing twice. Its
 * inverse undoes what one job did, and refuses where somebody else has changed it since.
 */
import type { z } from 'zod';
import type { Capability } from '../schemas/deployment.ts';
import { HeroError } from '../schemas/errors.ts';
import type { JsonValue } from '../schemas/json.ts';

/** Who calls, for which attempt of which job, and how long it may take. */
export type SalContext = {
  /** `<flow>.<n>`: the same for every attempt. */
  jobId: string;
  attempt: number;
  /** The principal the flow acts for. */
  caller: string;
  /** On the monotonic clock; null for none. */
  deadlineMs: number | null;
  signal: AbortSignal;
  log: (line: string) => void;
};

export interface Operation<Args> {
  /** `family.operation` */
  readonly name: string;
  /** The capability a job must have been granted for it. */
  readonly needs: Capability;
  readonly args: z.ZodType<Args>;
  run(args: Args, context: SalContext): Promise<JsonValue>;
  /** Undoes what the job named by the context did with these arguments; twice is once. */
  inverse?(args: Args, context: SalContext): Promise<void>;
}

/** An operation whose arguments have been checked against its schema. */
export type BoundOperation = {
  readonly name: string;
  readonly needs: Capability;
  run: (context: SalContext) => Promise<JsonValue>;
  inverse: ((context: SalContext) => Promise<void>) | undefined;
};

/** Is the tool there, and in which version? */
export interface Fingerprint {
  fingerprint(): Promise<{ found: boolean; detail: string }>;
}

export interface Family extends Fingerprint {
  readonly name: string;
  readonly operations: readonly FamilyOperation[];
}

/** An operation whatever its arguments are; made by `operation`. */
export type FamilyOperation = {
  readonly name: string;
  readonly needs: Capability;
  bind: (args: unknown) => BoundOperation;
};

/** Joins an operation to its argument schema, so that it can stand in a list with others. */
export function operation<Args>(of: Operation<Args>): FamilyOperation {
  return {
    name: of.name,
    needs: of.needs,
    bind: (given) => {
      const parsed = of.args.safeParse(given);
      if (!parsed.success) throw badArguments(of.name, parsed.error);
      const args = parsed.data;
      return {
        name: of.name,
        needs: of.needs,
        run: (context) => of.run(args, context),
        inverse:
          of.inverse === undefined ? undefined : (context) => of.inverse?.(args, context) ?? none(),
      };
    },
  };
}

const none = (): Promise<void> => Promise.resolve();

function badArguments(name: string, error: z.ZodError): HeroError {
  const [issue] = error.issues;
  const field = issue === undefined ? '' : issue.path.map(String).join('.');
  const where = field === '' ? name : `${name}: \`${field}\``;
  return new HeroError('bad_job', `${where}: ${issue?.message ?? 'bad arguments'}`);
}

export class Registry {
  readonly families: readonly Family[];
  readonly #operations: ReadonlyMap<string, FamilyOperation>;

  constructor(families: readonly Family[]) {
    this.families = families;
    const operations = families.flatMap((family) => family.operations);
    this.#operations = new Map(operations.map((each) => [each.name, each]));
  }

  names(): string[] {
    return [...this.#operations.keys()].sort();
  }

  /** The operation of this name; the error names what the family has. */
  operation(name: string): FamilyOperation {
    const found = this.#operations.get(name);
    if (found !== undefined) return found;
    const family = name.split('.')[0] ?? name;
    const siblings = this.names().filter((each) => each.startsWith(`${family}.`));
    const known = siblings.length > 0 ? siblings : this.families.map((each) => `${each.name}.*`);
    throw new HeroError(
      'bad_job',
      `there is no ${name} on this node; there is ${known.join(', ')}`,
    );
  }

  /** The capabilities of the families whose tool is there. */
  async offers(): Promise<Capability[]> {
    const found = await Promise.all(
      this.families.map(async (family) =>
        (await family.fingerprint()).found ? family : undefined,
      ),
    );
    const needs = found.flatMap((family) => family?.operations.map((each) => each.needs) ?? []);
    return [...new Set(needs)].sort();
  }
}
