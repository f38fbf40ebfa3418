/**
 * What each command of the CLI answers with `--json`: one value on stdout, or one a line.
 *
 * `ANSWERS` holds the schemas, by which the commands' own output is typed (tools/cli/output.ts); records
 * that are more than an answer stand in their families. `COMMAND_ANSWERS` says which command answers what;
 * docs/schemas is made of both.
 */
import { z } from 'zod';
import { Command } from './command.ts';
import { Deployment } from './deployment.ts';
import { ErrorRecord } from './errors.ts';
import { Flow, FlowStatus, Job } from './flow.ts';
import { AddressText, ContextName, FlowId, JobNumber, Principal } from './ids.ts';
import { JobKind, OutputLine } from './job.ts';
import { ContextRecord, PrincipalRecord } from './ledger.ts';
import { NodeObject } from './node.ts';
import { ScriptAnswer } from './script.ts';

const Time = z.iso.datetime();
const Digest = z.string().regex(/^[0-9a-f]{64}$/);
const Signers = z.array(z.string());

/** `up`: when a deploy would be accepted, and when all has stopped. */
const UpEvent = z.discriminatedUnion('event', [
  z.object({
    event: z.literal('ready'),
    principal: Principal,
    address: AddressText,
    server: z.string(),
    web: z.string().nullable(),
  }),
  z.object({ event: z.literal('stopped') }),
]);

const Plan = z.object({
  creates: z.array(
    z.object({
      job: JobNumber,
      kind: JobKind,
      name: z.string(),
      /** Where it would go by the roster as it stands now; null where no node fits. */
      node: AddressText.nullable(),
      /** Jobs that have to complete before it. */
      after: z.array(JobNumber),
      needs: z.array(z.string()),
      line: z.int(),
      payload: z.unknown(),
    }),
  ),
  /** `job`: null where it is the deployment itself that would be refused. */
  refusals: z.array(z.object({ job: JobNumber.nullable(), code: z.string(), message: z.string() })),
  /** Of what would be signed, and of the jobs as far as they are seen: the same plan has the same hash. */
  hash: Digest,
  /** The node that would run the script. */
  supervisor: AddressText.nullable(),
  /** How far the plan sees. */
  until: z.string(),
});

/** What stands in sealed bytes: the payload as it was signed, and who signed it. */
const Verified = { flow: FlowId, digest: Digest, message: z.string(), signers: Signers };

const PrincipalObject = PrincipalRecord.pick({
  principal: true,
  kind: true,
  name: true,
  status: true,
  roles: true,
  by: true,
}).extend({
  address: AddressText,
  created_at: Time,
  /** For a node: by whose order it takes no flows and jobs. */
  drained: z.object({ by: Principal, at: Time, reason: z.string().nullable() }).nullable(),
});

const ContextObject = ContextRecord.pick({
  context: true,
  admins: true,
  executors: true,
  readers: true,
  policy: true,
  allowed: true,
  quotas: true,
}).extend({ created_at: Time });

export const ANSWERS = {
  identity: z.object({ principal: Principal, address: AddressText }),
  'up-event': UpEvent,
  flow: Flow,
  flows: z.array(Flow),
  job: Job,
  plan: Plan,
  sealed: z.object({ flow: FlowId, context: ContextName, file: z.string(), signers: Signers }),
  signed: z.object({ flow: FlowId, file: z.string(), signers: Signers }),
  verified: z.discriminatedUnion('type', [
    Deployment.extend({ type: z.literal('deployment'), ...Verified }),
    Command.extend({ type: z.literal('command'), ...Verified }),
  ]),
  why: z.object({
    state: z.union([FlowStatus, Job.shape.status]),
    /** From the nearest cause to the farthest. `source`: an entry of the log, the roster, a policy, the ledger. */
    because: z.array(z.object({ fact: z.string(), source: z.string() })),
  }),
  'output-line': OutputLine,
  nodes: z.array(NodeObject),
  /** `registration`: null for who may not see it. A node that is only registered has no more to tell. */
  node: z.union([
    NodeObject.extend({ registration: PrincipalObject.nullable() }),
    z.object({
      address: AddressText,
      principal: Principal,
      name: z.string(),
      liveness: z.null(),
      registration: PrincipalObject,
    }),
  ]),
  principal: PrincipalObject,
  principals: z.array(PrincipalObject),
  context: ContextObject,
  contexts: z.array(ContextObject),
  token: z.object({ token: z.string(), uses: z.int(), expires_at: Time }),
  /** Any JSON: integers may be larger than 2^53. */
  value: z.unknown(),
  'kv-set': z.object({ key: z.string(), revision: z.int() }),
  'kv-del': z.object({ key: z.string(), deleted: z.boolean() }),
  keys: z.array(z.string()),
  'script-answer': ScriptAnswer,
  checks: z.object({
    checks: z.array(
      z.object({
        name: z.string(),
        ok: z.boolean(),
        detail: z.string(),
        /** The command that mends it; null where there is nothing to mend, or nothing that would. */
        fix: z.string().nullable(),
      }),
    ),
  }),
  /** In the place of any answer: the command could not give one. */
  failure: z.object({
    error: z.object({
      code: z.string(),
      message: z.string(),
      actor: z.string().nullable(),
      node: AddressText.nullable(),
      cause: ErrorRecord.nullable(),
      /** What to do about it. */
      fix: z.string().nullable(),
    }),
  }),
} as const;
export type AnswerName = keyof typeof ANSWERS;
export type Answer<N extends AnswerName> = z.infer<(typeof ANSWERS)[N]>;

/** `when`: the form of the command that answers so; `lines`: a stream, one value a line. */
export type CommandAnswer = { answer: AnswerName; when?: string; lines?: true };

const flow: CommandAnswer[] = [{ answer: 'flow' }];
const principal: CommandAnswer[] = [{ answer: 'principal' }];
const context: CommandAnswer[] = [{ answer: 'context' }];

export const COMMAND_ANSWERS: Record<string, readonly CommandAnswer[]> = {
  init: [{ answer: 'identity' }],
  up: [{ answer: 'up-event', lines: true }],
  deploy: [
    ...flow,
    { answer: 'plan', when: '--dry-run' },
    { answer: 'sealed', when: '--out FILE' },
  ],
  plan: [{ answer: 'plan' }],
  sign: [{ answer: 'signed' }],
  publish: flow,
  verify: [{ answer: 'verified' }],
  flows: [{ answer: 'flows' }],
  flow: [...flow, { answer: 'job', when: 'ID.N' }],
  watch: flow,
  why: [{ answer: 'why' }],
  logs: [{ answer: 'output-line', lines: true }],
  cancel: flow,
  retry: flow,
  pause: flow,
  resume: flow,
  nodes: [{ answer: 'nodes' }],
  node: [{ answer: 'node' }],
  'node approve': principal,
  'node revoke': principal,
  'node drain': principal,
  'node undrain': principal,
  'context create': context,
  'context grant': context,
  'context revoke': context,
  'context policy': context,
  'context quota': context,
  'context show': [{ answer: 'contexts' }, { answer: 'context', when: 'NAME' }],
  'principal list': [{ answer: 'principals' }],
  'principal approve': principal,
  'principal revoke': principal,
  'token create': [{ answer: 'token' }],
  'kv get': [{ answer: 'value' }],
  'kv set': [{ answer: 'kv-set' }],
  'kv del': [{ answer: 'kv-del' }],
  'kv list': [{ answer: 'keys' }],
  'script check': [{ answer: 'script-answer' }],
  'script run': [
    { answer: 'value' },
    { answer: 'script-answer', when: '--json-lines', lines: true },
  ],
  doctor: [{ answer: 'checks' }],
};
