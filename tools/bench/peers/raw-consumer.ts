/**
 * The consumer process of the raw peer: keeps pulls standing and answers each message by what was asked for,
 * a confirmed acknowledgement or one fenced publish.
 */
import { connect } from '../../../bus/connect.ts';
import { HEADER, toHeaders } from '../../../bus/jetstream.ts';
import { RAW } from './raw-subjects.ts';

const [url = '', batchText = ''] = process.argv.slice(2);
const batch = Number(batchText);
const PULL_EXPIRES_NS = 30e9;
const TIMEOUT_MS = 60_000;

const { nats } = await connect({ server: url, inboxPrefix: '_INBOX' });
let left = 0;
let mode: 'confirm' | 'fence' = 'confirm';
let waits: number[] = [];
let claims = 0;

function settled(): void {
  left -= 1;
  if (left > 0) return;
  process.send?.({ done: waits });
  waits = [];
}

async function confirm(reply: string): Promise<void> {
  await nats.request(reply, '+ACK', { timeout: TIMEOUT_MS });
  settled();
}

async function fence(reply: string, data: Uint8Array): Promise<void> {
  const subject = `${RAW.claim}.${++claims}`;
  const headers = toHeaders({ [HEADER.expected]: '0', [HEADER.expectedFilter]: subject });
  await nats.request(subject, '{}', { timeout: TIMEOUT_MS, headers });
  const sent = Buffer.from(data).readBigUInt64LE();
  waits.push(Number(process.hrtime.bigint() - sent) / 1e6);
  nats.publish(reply, '+ACK');
  settled();
}

/** Half a batch of room is asked for again at once, so that the server never waits for a pull. */
const half = Math.ceil(batch / 2);
const inbox = `_INBOX.raw.${process.pid}`;
let requested = 0;
function pull(): void {
  requested += half;
  const body = JSON.stringify({ batch: half, expires: PULL_EXPIRES_NS });
  nats.publish(`$JS.API.CONSUMER.MSG.NEXT.${RAW.queue}.${RAW.consumer}`, body, { reply: inbox });
}
nats.subscribe(inbox, {
  callback: (error, message) => {
    if (error) throw error;
    const status = message.headers?.code ?? 0;
    if (status !== 0 || message.reply === undefined) {
      requested -= Number(message.headers?.get('Nats-Pending-Messages') ?? half);
    } else {
      requested -= 1;
      void (mode === 'confirm' ? confirm(message.reply) : fence(message.reply, message.data));
    }
    if (requested <= half) pull();
  },
});
pull();
pull();
process.on('message', (asked: { expect: number; mode: typeof mode }) => {
  left = asked.expect;
  mode = asked.mode;
});
process.on('disconnect', () => process.exit(0));
process.on('SIGTERM', () => process.exit(0));
await nats.flush();
process.send?.({ ready: true });
