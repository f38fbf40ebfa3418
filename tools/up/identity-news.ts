/**
 * What an operator hears of the node's identity: that it waits to be let in, that it is off the bus, and that
 * it is on it again.
 *
 * Calm: a link that is back within moments is no news. New rights are connected with anew, and a server that
 * is started again is soon there; nothing of that asks for anybody.
 */
import type { IdentityState } from '../../actors/identity/identity.ts';
import { durationText } from '../cli/output.ts';

/** How long the bus may be away before it is told. */
const AWAY_TOLD_AFTER_MS = 3_000;

export function identityNews(
  tell: (message: string) => void,
  toldAfterMs = AWAY_TOLD_AFTER_MS,
): (now: IdentityState) => void {
  let told = '';
  let reason = '';
  let awayAt = 0;
  let timer: NodeJS.Timeout | undefined;
  const sayOnce = (text: string): void => {
    if (text !== told) tell(text);
    told = text;
  };
  const back = (): void => {
    clearTimeout(timer);
    timer = undefined;
    if (told !== '') tell(`on the bus, after ${durationText(performance.now() - awayAt)}`);
    told = '';
    awayAt = 0;
  };
  return (now) => {
    if (now.state === 'joined') return back();
    if (now.state !== 'awaitingApproval' && now.state !== 'offline') return;
    if (awayAt === 0) awayAt = performance.now();
    if (now.state === 'awaitingApproval') return sayOnce(`waits to be let in: ${now.reason}`);
    reason = now.reason;
    if (told !== '') return sayOnce(`off the bus: ${reason}`);
    timer ??= setTimeout(() => sayOnce(`off the bus: ${reason}`), toldAfterMs).unref();
  };
}
