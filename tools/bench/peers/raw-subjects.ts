/** Names on the raw peer's server, for its publisher and its consumer. */
export const RAW = {
  queue: 'RAW',
  log: 'RAW_LOG',
  consumer: 'worker',
  job: 'raw.job',
  claim: 'raw.claim',
} as const;
