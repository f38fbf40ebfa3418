/**
 * The worker thread that runs scripts: the main thread with the heartbeat never does. Talks to
 * `script-pool.ts` only.
 */
import { parentPort } from 'node:worker_threads';
import { ScriptSessions, type ToWorker } from './script-sessions.ts';

const port = parentPort;
if (port === null) throw new Error('script-worker is started as a worker thread by script-pool');

const sessions = new ScriptSessions((message) => port.postMessage(message));
port.on('message', (message: ToWorker) => sessions.take(message));
