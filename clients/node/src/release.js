// The release of a lock, also after the death of its agent.
import { pause } from './backoff.js';
import { LostError, ReleaseUnknownError } from './errors.js';
import { ask } from './question.js';

/** How much longer than the lock is held anyway its release may take; and if it is lost. */
const longer = 5000;
const lateLimit = 1000;

/** How long after a failed attempt the next one follows. */
const again = 100;

/**
 * Releases a lock whose work has returned, within `left` milliseconds and a little more: after that it has expired. `what` is
 * release, or done.
 */
export async function release(hold, token, what, left) {
  const deadline = performance.now() + left;
  for (let attempts = 1; ; attempts++) {
    try {
      return await attempt(hold, token, what, deadline, attempts > 1);
    } catch (error) {
      if (error.code !== 'unreachable') throw error;
      if (performance.now() + again >= deadline) throw new ReleaseUnknownError(hold.names, unknown(what), error);
      await pause(again);
    }
  }
}

function unknown(what) {
  return what === 'done'
    ? 'the agent did not answer, so it is not known whether the run is recorded as done: if it is not, another program runs it again'
    : 'the agent did not answer, so it is not known whether the lock is released';
}

async function attempt(hold, token, what, deadline, repeated) {
  const limit = hold.lost.signal.aborted ? lateLimit : Math.max(deadline - performance.now(), 0) + longer;
  const answer = await ask(hold.socket, 'POST', `/v1/holds/${hold.id}/${what}`, limit);
  if (answer.body.code !== 'no-such-hold') return judge(hold, answer);
  // The agent was started again, and does not know the hold. It releases the lock for a program that knows the hold's id.
  const query = new URLSearchParams([...hold.heldNames.map((name) => ['name', name]), ['token', token], ['hold', hold.id]]);
  const orphan = await ask(hold.socket, 'POST', `/v1/release?${query}`, limit);
  if (repeated && orphan.status !== 200) throw new ReleaseUnknownError(hold.names, 'the agent ended before it answered: either it released the lock, or the lock was lost before');
  if (what === 'done') throw new LostError(hold.names, 'agent', 'the agent was started again, so the run is not recorded as done, and another program runs it again');
  judge(hold, orphan);
}

function judge(hold, { status, body }) {
  if (status === 200) return;
  if (status === 404 || status === 410) throw new LostError(hold.names, 'expired', `it was not held any more when it was released (${body.detail})`);
  throw new ReleaseUnknownError(hold.names, `the agent does not know whether it is released (${body.detail ?? status})`);
}
