// A lock that is held.
import { LostError, SpindleError } from './errors.js';
import { errorOf } from './problem.js';
import { ask } from './question.js';
import { release } from './release.js';

/** How long the agent may take to answer a request to step down. */
const answerLimit = 5000;

/** How long the agent may take to answer the late release of a lost lock. */
const tellLimit = 1000;

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
    const left = this.#hold.leave();
    if (this.signal.aborted) {
      this.#tell();
      throw this.signal.reason;
    }
    try {
      await release(this.#hold, this.token, what, left);
    } finally {
      this.#hold.over();
    }
  }

  /** Tells the agent that the work has returned. Other programs can then get the lost lock before it expires. */
  #tell() {
    ask(this.#hold.socket, 'POST', `/v1/holds/${this.#hold.id}/release`, tellLimit).catch(() => {});
  }
}

// Before Node 18.18 and 20.4 there is no such symbol, and no program that uses it.
if (Symbol.asyncDispose) {
  Held.prototype[Symbol.asyncDispose] = function dispose() {
    return this.release();
  };
}
