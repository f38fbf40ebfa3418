/** What a host function or getter returns when its answer will come later: the machine stops there. */
export class Suspend {
  readonly payload: unknown;
  constructor(payload: unknown) {
    this.payload = payload;
  }
}
