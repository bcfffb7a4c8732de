// What can go wrong, each with what to do about it.

/** Every error of this module. */
export class SpindleError extends Error {
  constructor(message, code, options) {
    super(message, options);
    this.code = code;
  }
}

const define = (type, name) => Object.defineProperty(type.prototype, 'name', { value: name, configurable: true, writable: true });

/** Another holds the lock, and `wait` was 0. */
export class BusyError extends SpindleError {
  constructor(names, detail) {
    super(`${listed(names)}: ${detail}: try again later, or give wait: '30s' to wait`, 'busy');
  }
}

/** The time in `wait` is over. */
export class TimeoutError extends SpindleError {
  constructor(names) {
    super(`${listed(names)}: another held it for as long as wait allows: try again, or wait longer`, 'timeout');
  }
}

/** The agent did not acquire the lock. */
export class RefusedError extends SpindleError {
  constructor(names, code, detail) {
    super(`${listed(names)}: not acquired: ${detail || code}${advice[code] ?? ''}`, code);
  }
}

const advice = {
  stopping: ': try again when the agent runs again',
  unavailable: ': try again; spindle doctor says what is wrong with the database',
  'too-many': ': release locks, or start the agent with a larger --max-holds',
};

/** The lock is not held any more. */
export class LostError extends SpindleError {
  constructor(names, reason, detail) {
    const mend = reason === 'released' ? 'release() comes after the work' : 'stop the work, and acquire the lock again';
    super(`${listed(names)}: not held any more: ${detail ?? losses[reason] ?? reason}: ${mend}`, 'lost');
    this.reason = reason;
  }
}

const losses = {
  expired: 'no heartbeat was acknowledged in time, or this program did not see it in time',
  agent: 'the agent has ended, so the lock is no longer extended',
  released: 'this program has released it',
};

/** The agent asks for the lock. The lock is still held. */
export class StopError extends SpindleError {
  constructor(names, reason) {
    super(`${listed(names)}: asked to release it (${reason}): complete the work, then release it`, 'stop');
    this.reason = reason;
  }
}

/** The agent can't be reached, or does not answer. */
export class AgentError extends SpindleError {
  constructor(socket, what, cause) {
    super(`the agent at ${socket}: ${what}`, 'unreachable', { cause });
  }
}

/** The request is wrong. */
export class RequestError extends SpindleError {
  constructor(message, code, status = 400) {
    super(message, code);
    this.status = status;
  }
}

/** It is not known whether the lock was released. */
export class ReleaseUnknownError extends SpindleError {
  constructor(names, detail, cause) {
    super(`${listed(names)}: ${detail}. The lock expires by itself, at the latest after its lease: nothing needs to be done`, 'release-unknown', { cause });
  }
}

for (const [name, type] of Object.entries({ SpindleError, BusyError, TimeoutError, RefusedError, LostError, StopError, AgentError, RequestError, ReleaseUnknownError })) {
  define(type, name);
}

function listed(names) {
  const shown = names.slice(0, 3).map((name) => JSON.stringify(name)).join(', ');
  return names.length > 3 ? `${shown} and ${names.length - 3} more` : shown;
}
