// From the wait for a turn in this process to a lock that is held.
import { Backoff, pause } from './backoff.js';
import { BusyError, TimeoutError } from './errors.js';
import { Held } from './held.js';
import { Hold, longestTimer } from './hold.js';
import { describe, pathOf } from './query.js';
import { allFree, takeTurns } from './turns.js';

/** Acquires a lock. Resolves with a Held, or with undefined if the key is done already. */
export async function acquire(kind, names, options) {
  const query = describe(kind, names, options);
  query.signal?.throwIfAborted();
  const deadline = performance.now() + query.wait;
  const endTurns = await turnsOf(query);
  let hold;
  try {
    return await attempts(query, deadline, (latest) => (hold = latest));
  } finally {
    if (hold) hold.gone.then(endTurns);
    else endTurns();
  }
}

/** Waits until no other task of this process wants the names. A process may have several slots of a semaphore. */
async function turnsOf({ kind, names, socket, wait, signal }) {
  if (kind === 'semaphores') return () => {};
  const keys = names.map((name) => JSON.stringify([socket, name]));
  if (wait === 0 && !allFree(keys)) throw new BusyError(names, 'another task of this program holds it, or waits for it');
  const limit = limited(signal, wait, wait === 0 ? new BusyError(names, 'another task of this program asks for it') : new TimeoutError(names));
  try {
    return await takeTurns(keys, limit.signal);
  } finally {
    limit.clear();
  }
}

/** Returns a signal that aborts with the given one, or with an error after some time, unless that is weeks. */
function limited(signal, ms, error) {
  const controller = new AbortController();
  const pass = () => controller.abort(signal.reason);
  signal?.addEventListener('abort', pass, { once: true });
  const timer = ms < longestTimer && setTimeout(() => controller.abort(error), ms);
  return {
    signal: controller.signal,
    clear() {
      clearTimeout(timer);
      signal?.removeEventListener('abort', pass);
    },
  };
}

/**
 * Asks the agent, again while it answers that this process has the lock already: the agent may not have seen yet that an
 * earlier request is over, and a worker thread has its own turns. It also asks again when the agent says after how many
 * seconds, because this program has too many holds.
 */
async function attempts(query, deadline, begun) {
  const backoff = new Backoff(20, 500);
  for (;;) {
    query.signal?.throwIfAborted(); // it may have aborted after the turn or a pause, and aborts only once
    const hold = new Hold(query, pathOf(query, remaining(query.wait, deadline)));
    begun(hold);
    try {
      const line = await orAborted(hold, query.signal);
      return line && new Held(hold, line);
    } catch (error) {
      const left = query.wait === 0 ? 0 : deadline - performance.now();
      if (error?.after && left > 0) await pause(Math.min(error.after * 1000, left, longestTimer), query.signal);
      else if (error?.code !== 'already-held') throw error;
      else if (query.wait === 0) throw new BusyError(query.names, 'this program holds it already, or waits for it');
      else if (left <= 0) throw new TimeoutError(query.names);
      else await backoff.pause(query.signal, left);
    }
  }
}

function remaining(wait, deadline) {
  if (wait === 0 || wait === Infinity) return wait;
  return Math.max(Math.ceil(deadline - performance.now()), 1);
}

/** Waits for a hold. If the signal aborts before, it rejects at once; the hold is gone when the agent has given it up. */
function orAborted(hold, signal) {
  if (!signal) return hold.acquired;
  return new Promise((resolve, reject) => {
    const abort = () => {
      reject(signal.reason);
      hold.cancel();
    };
    signal.addEventListener('abort', abort, { once: true });
    const first = (settle) => (value) => {
      signal.removeEventListener('abort', abort);
      settle(value);
    };
    hold.acquired.then(first(resolve), first(reject));
  });
}
