import { acquire } from './acquire.js';
import { Backoff } from './backoff.js';
import { format, milliseconds } from './duration.js';
import { optional } from './optional.js';
import { errorOf } from './problem.js';
import { socketOf } from './query.js';
import { ask } from './question.js';

/** How long the agent may take to read who leads. */
const answerLimit = 35_000;

/** What passes: the agent is not there, is being replaced, or can't reach the database, or this process did not read for long. */
const passing = new Set(['unreachable', 'stalled', 'stopping', 'unavailable']);

/** What a term may end with. */
const usual = new Set(['lost', 'release-unknown']);

/** Leads, as often as it can: each term is one step of the iteration. */
export async function* lead(name, ...rest) {
  const [options] = optional(rest);
  const backoff = backoffOf(options);
  while (!options.signal?.aborted) {
    const term = await nextTerm(name, options, backoff);
    if (!term) continue;
    backoff.reset();
    try {
      yield term;
    } finally {
      await end(term);
    }
  }
}

/** Returns the pauses while no agent answers. They stay shorter than the lease, after which another agent leads. */
export function backoffOf({ lease = '10s' }) {
  return new Backoff(100, Math.min(Math.max(milliseconds('lease', format('lease', lease)) / 3, 100), 5000));
}

async function nextTerm(name, options, backoff) {
  try {
    return await acquire('elections', [name], options);
  } catch (error) {
    if (options.signal?.aborted) return undefined;
    if (!passing.has(error.code)) throw error;
    await backoff.pause(options.signal).catch(() => {}); // if the signal aborts, the loop ends
    return undefined;
  }
}

async function end(term) {
  try {
    await term.release();
  } catch (error) {
    if (!usual.has(error.code)) throw error;
  }
}

/** Asks who leads. */
export async function leader(name, options = {}) {
  const socket = socketOf(options);
  const answer = await ask(socket, 'GET', `/v1/elections?${new URLSearchParams({ name })}`, answerLimit);
  if (answer.status !== 200) throw errorOf(socket, [name], answer);
  return answer.body.leader;
}
