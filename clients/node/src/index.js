// Locks of a spindle agent. index.d.ts has the contract of every name.
export { lock } from './lock.js';
export { semaphore } from './semaphore.js';
export { once } from './once.js';
export { lead, leader } from './lead.js';
export { Held } from './held.js';
export { addFence, addRecord, runFence } from './spanner.js';
export {
  AgentError,
  BusyError,
  LostError,
  RefusedError,
  ReleaseUnknownError,
  RequestError,
  SpindleError,
  StopError,
  TimeoutError,
} from './errors.js';
