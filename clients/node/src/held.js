// A lock that is held.
import { LostError, SpindleError } from './errors.js';
import { errorOf } from './problem.js';
import { ask } from './question.js';
import { release } from './release.js';

/** How long the agent may take to answer a request to step down. */
const answerLimit = 5000;

/** A lock that this program holds. index.d.ts has the contract. */
export class Held {
  #hold;
  #released;
  #releasedAs;

  constructor(hold, { token, fence = [], key, record }) {
    this.#hold = hold;
    this.names = Object.freeze([...hold.names]);
    this.token = token;
    this.fence = fence;
    if (key !== undefined) Object.assign(this, { key, record: record ?? [] });
    Object.freeze(this);
  }

  get signal() {
    return this.#hold.lost.signal;
  }

  get stopSignal() {
    return this.#hold.stop.signal;
  }

  still() {
    return this.#hold.still;
  }

  check() {
    if (this.#hold.still) return;
    if (this.signal.aborted) throw this.signal.reason;
    throw new LostError(this.names, this.#released ? 'released' : 'expired');
  }

  left() {
    return this.#hold.left;
  }

  release() {
    this.#released ??= this.#end('release');
    return this.#released;
  }

  done() {
    if (this.key === undefined) return Promise.reject(new SpindleError('done() is for once(): release this lock', 'not-once'));
    if (this.#releasedAs === 'release') return Promise.reject(new SpindleError('done() after release(): the run is not recorded as done', 'released'));
    this.#released ??= this.#end('done');
    return this.#released;
  }

  async stepDown() {
    this.check();
    const answer = await ask(this.#hold.socket, 'POST', `/v1/holds/${this.#hold.id}/stepdown`, answerLimit);
    if (answer.status >= 400) throw errorOf(this.#hold.socket, this.names, answer);
  }

  async #end(what) {
    this.#releasedAs = what;
    if (!this.#hold.still) await this.#hold.catchUp();
    const left = this.#hold.leave();
    // A lost lock is released, too: the agent may not know it, and then keeps the lock from others, or says that it was held.
    try {
      await release(this.#hold, this.token, what, left);
    } catch (error) {
      throw this.signal.aborted ? this.signal.reason : error;
    } finally {
      this.#hold.over();
    }
  }
}

// Before Node 18.18 and 20.4 there is no such symbol, and no program that uses it.
if (Symbol.asyncDispose) {
  Held.prototype[Symbol.asyncDispose] = function dispose() {
    return this.release();
  };
}
