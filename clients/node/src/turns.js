// Tasks of one process take turns, because the agent gives each process a lock only once.

/** For each key whose turn a task has: the tasks that wait for theirs. */
const queues = new Map();

/**
 * Waits until it is this task's turn at all keys, and returns a function that ends the turn. Rejects with the signal's
 * reason if that aborts first.
 */
export async function takeTurns(keys, signal) {
  const ends = [];
  const endAll = () => ends.splice(0).forEach((end) => end());
  try {
    // In one order, or two sets could wait for each other.
    for (const key of [...new Set(keys)].sort()) ends.push(await takeTurn(key, signal));
    return endAll;
  } catch (error) {
    endAll();
    throw error;
  }
}

/** Reports whether no task has a turn at any of the keys. */
export function allFree(keys) {
  return keys.every((key) => !queues.has(key));
}

function takeTurn(key, signal) {
  signal.throwIfAborted();
  const queue = queues.get(key);
  if (queue === undefined) {
    queues.set(key, []);
    return () => endTurn(key);
  }
  return new Promise((resolve, reject) => {
    const next = () => {
      signal.removeEventListener('abort', leave);
      resolve(() => endTurn(key));
    };
    const leave = () => {
      queue.splice(queue.indexOf(next), 1);
      reject(signal.reason);
    };
    signal.addEventListener('abort', leave, { once: true });
    queue.push(next);
  });
}

function endTurn(key) {
  const next = queues.get(key).shift();
  if (next) next();
  else queues.delete(key);
}
