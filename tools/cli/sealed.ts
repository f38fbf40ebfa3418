/** Sealed bytes in a file, read without judging them: what they say they are, as far as it can be read. */
import { envelopeDigest, open, type OpenedEnvelope } from '../../bus/envelope.ts';
import { COMMAND_PAYLOAD_TYPE, Command } from '../../schemas/command.ts';
import { DEPLOY_PAYLOAD_TYPE, Deployment } from '../../schemas/deployment.ts';
import { ensureError } from '../../schemas/errors.ts';
import { parseStrictBytes } from '../../schemas/json.ts';
import { readInput } from './files.ts';

export type Sealed = {
  bytes: Uint8Array;
  /** Digest of the message's bytes. */
  digest: string;
  opened: OpenedEnvelope | undefined;
  content: SealedContent | undefined;
  /** Why it cannot be read, where it cannot. */
  fault: Error | undefined;
};

export type SealedContent =
  | { type: 'deployment'; deployment: Deployment }
  | { type: 'command'; command: Command };

export async function readSealed(path: string): Promise<Sealed> {
  const bytes = await readInput(path, 'sealed message');
  const sealed: Sealed = {
    bytes,
    digest: envelopeDigest(bytes),
    opened: undefined,
    content: undefined,
    fault: undefined,
  };
  try {
    sealed.opened = open(bytes);
    sealed.content = contentOf(sealed.opened);
  } catch (error) {
    sealed.fault = ensureError(error);
  }
  return sealed;
}

function contentOf({ payload, payloadType }: OpenedEnvelope): SealedContent | undefined {
  const value = parseStrictBytes(payload, 'bad_envelope');
  if (payloadType === DEPLOY_PAYLOAD_TYPE) {
    return { type: 'deployment', deployment: Deployment.parse(value) };
  }
  if (payloadType === COMMAND_PAYLOAD_TYPE) {
    return { type: 'command', command: Command.parse(value) };
  }
  return undefined;
}

export function contextIn({ content }: Sealed): string | undefined {
  if (content === undefined) return undefined;
  return content.type === 'deployment' ? content.deployment.context : content.command.context;
}
