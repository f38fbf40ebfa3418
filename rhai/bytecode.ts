/** Placeholder of the compiled form, filled in next. */
export interface FnProto {
  readonly name: string;
}
export interface Library {
  readonly functions: ReadonlyMap<string, FnProto>;
}
