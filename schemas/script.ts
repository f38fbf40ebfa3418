/** What `herobus script check` and `script run --json-lines` answer: values and errors of the engine, typed. */
import { z } from 'zod';

const Digits = z.string().regex(/^-?[0-9]+$/);

/** A value of a script with its type. Integers are decimal text, so that every reader keeps them. */
export type TypedValue = { type: string; value?: unknown; curry?: TypedValue[] | undefined };
export const TypedValue: z.ZodType<TypedValue> = z.lazy(() =>
  z.discriminatedUnion('type', [
    z.object({ type: z.literal('unit') }),
    z.object({ type: z.literal('bool'), value: z.boolean() }),
    z.object({ type: z.literal('i64'), value: Digits }),
    z.object({
      type: z.literal('f64'),
      value: z.union([z.number(), z.enum(['NaN', 'inf', '-inf', '-0'])]),
    }),
    z.object({ type: z.enum(['char', 'string']), value: z.string() }),
    z.object({ type: z.literal('array'), value: z.array(TypedValue) }),
    z.object({ type: z.literal('map'), value: z.array(z.tuple([z.string(), TypedValue])) }),
    z.object({ type: z.literal('blob'), value: z.string().regex(/^([0-9a-f]{2})*$/) }),
    z.object({ type: z.enum(['range', 'range_inclusive']), value: z.tuple([Digits, Digits]) }),
    z.object({ type: z.literal('Fn'), value: z.string(), curry: z.array(TypedValue) }),
    z.object({ type: z.literal('other'), value: z.string() }),
  ]),
);

export type ScriptError = {
  error: string;
  message: string;
  pos?: [number, number] | undefined;
  parse?: string | undefined;
  lex?: string | undefined;
  inner?: ScriptError | undefined;
  thrown?: TypedValue | undefined;
};
const errorFields = {
  /** The name of the error: `ErrorParsing`, `ErrorRuntime`, … */
  error: z.string(),
  message: z.string(),
  /** Line and column, from 1. */
  pos: z.tuple([z.int(), z.int()]).optional(),
  /** Of `ErrorParsing`: what was wrong with the syntax, and for `BadInput` with the token. */
  parse: z.string().optional(),
  lex: z.string().optional(),
  /** The error inside the function that was called. */
  inner: z.lazy(() => ScriptError).optional(),
  thrown: TypedValue.optional(),
};
export const ScriptError: z.ZodType<ScriptError> = z.object(errorFields);

const Answered = z.object({
  id: z.unknown(),
  /** What `print` and `debug` said, the latter with line and column. */
  output: z
    .array(
      z.union([
        z.tuple([z.literal('print'), z.string()]),
        z.tuple([z.literal('debug'), z.string(), z.int(), z.int()]),
      ]),
    )
    .optional(),
  /** Name, is it a constant, value; where the case asks for it. */
  scope: z.array(z.tuple([z.string(), z.boolean(), TypedValue])).optional(),
});

/** One answer for one script: its value, or its error. */
export const ScriptAnswer = z.union([
  Answered.extend({ ok: TypedValue }),
  Answered.extend({
    ...errorFields,
    /** The imported file that the error is in. */
    module: z.string().optional(),
    /** What can be done about it. */
    hint: z.string().optional(),
  }),
]);
export type ScriptAnswer = z.infer<typeof ScriptAnswer>;
