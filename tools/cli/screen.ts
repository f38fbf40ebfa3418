/**
 * Where people read: lines that stay and, on a terminal, one line below them that says how far it is.
 *
 * Calm: the last line is written in place and only when it says something new, at most ten times a second;
 * a line that stays and the last line under it go out in one write, so that nothing flickers. Anywhere else
 * than on a terminal there is no last line, no colour and no control character.
 */
const REDRAW_MS = 100;
const DEFAULT_COLUMNS = 80;
const CLEAR = '\r\x1b[K';
const COLOURS = { good: 32, bad: 31, warning: 33, bar: 36 } as const;
const CELLS = 20;

export type Mood = keyof typeof COLOURS;

export type Output = {
  readonly isTTY?: boolean;
  readonly columns?: number;
  write(text: string): unknown;
};

/** A share of a whole, and what to say beside it. */
export type Progress = { done: number; total: number; text: string };

export class Screen {
  readonly #out: Output;
  readonly #colours: boolean;
  /** Is there a terminal that can rewrite its last line? */
  readonly live: boolean;
  #wanted: (() => Progress | undefined) | undefined;
  #drawn = '';
  #drawnAt = Number.NEGATIVE_INFINITY;
  #timer: NodeJS.Timeout | undefined;

  constructor(out: Output, env: NodeJS.ProcessEnv) {
    this.#out = out;
    this.live = out.isTTY === true && env['TERM'] !== 'dumb';
    this.#colours = this.live && (env['NO_COLOR'] ?? '') === '';
  }

  /** A line that stays. */
  line(text: string): void {
    if (this.#drawn === '') this.#out.write(`${text}\n`);
    else this.#out.write(`${CLEAR}${text}\n${this.#drawn}`);
  }

  /** What the last line says from now on, asked when it is drawn; undefined: there is none. */
  progress(progress: (() => Progress | undefined) | undefined): void {
    if (!this.live) return;
    this.#wanted = progress;
    if (progress === undefined) return this.#draw();
    const waitMs = this.#drawnAt + REDRAW_MS - performance.now();
    if (waitMs <= 0) return this.#draw();
    this.#timer ??= setTimeout(() => this.#draw(), waitMs).unref();
  }

  paint(text: string, mood: Mood | undefined): string {
    if (!this.#colours || mood === undefined) return text;
    return `\x1b[${COLOURS[mood]}m${text}\x1b[39m`;
  }

  #draw(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    this.#drawnAt = performance.now();
    const progress = this.#wanted?.();
    const text = progress === undefined ? '' : this.#bar(progress);
    if (text === this.#drawn) return;
    // Written over, not cleared first: what stays the same never leaves the screen.
    this.#out.write(text === '' ? CLEAR : `\r${text}\x1b[K`);
    this.#drawn = text;
  }

  /** One line at most, or it could not be written over. */
  #bar({ done, total, text }: Progress): string {
    const share = Math.min(Math.max(done / total, 0), 1);
    const full = Math.floor(share * CELLS);
    const bar = '█'.repeat(full) + '░'.repeat(CELLS - full);
    const room = (this.#out.columns ?? DEFAULT_COLUMNS) - CELLS - 2;
    const said = Array.from(visible(text));
    if (room < 1) return '';
    const cut = said.length > room ? [...said.slice(0, room - 1), '…'] : said;
    return `${this.paint(bar, 'bar')} ${cut.join('')}`;
  }
}

/** Control characters of what others wrote do nothing on our terminal; lines and tabs stay. */
export const visible = (text: string): string =>
  // oxlint-disable-next-line no-control-regex -- they are what is meant
  text.replace(/[\u0000-\u0008\u000b-\u001f\u007f-\u009f]/g, '�');
