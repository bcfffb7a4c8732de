// One hold: one wait for a lock, and one term of holding it.
import { after, difference, earliest, hasClocksOf, latest } from './clocks.js';
import { LostError, RefusedError, StopError, TimeoutError } from './errors.js';
import { afterInput } from './input.js';
import { errorOf, unreachable } from './problem.js';
import { ask } from './question.js';
import { Stream } from './stream.js';
import { Until } from './until.js';

/** How long the answer to a question about a hold may take. */
const answerLimit = 5000;

/** How long the answer may take once the time is over. */
const lateAnswerLimit = 1000;

/** How long after a failed question the next one follows. */
const askAgainAfter = 200;

/** A timer that is so late shows that this process was stopped, or its event loop was blocked. */
const late = 100;

/** The longest time that setTimeout takes. */
export const longestTimer = 2 ** 31 - 1;

/** A hold on some names. Its state goes from waiting to held, and then to over. */
export class Hold {
  /** Resolves with the line `held`, or with undefined if the key is done. Rejects if the lock was not acquired. */
  acquired;
  /** Aborts when the lock is lost. */
  lost = new AbortController();
  /** Aborts when the agent asks for the lock. */
  stop = new AbortController();
  /** Resolves when the wait has failed, the lock is lost, or its release has ended. */
  gone;
  id;
  names;
  /** The names that the agent holds: of a semaphore, the slot. */
  heldNames;
  socket;

  #query;
  #stream;
  #settle;
  #setGone;
  #state = 'waiting';
  #until = new Until();
  #before = earliest();
  #difference; // by how many ms the agent's clocks can differ; undefined: they are others
  #asking = false;
  #askAgain = false;
  #connected = true;
  #timer;

  constructor(query, path) {
    this.#query = query;
    this.names = query.names;
    this.socket = query.socket;
    this.acquired = new Promise((resolve, reject) => (this.#settle = { resolve, reject }));
    this.gone = new Promise((resolve) => (this.#setGone = resolve));
    // Without waiting, the first byte comes when it is decided, which may take a request to Spanner.
    const silence = query.wait === 0 ? query.silence + query.lease : query.silence;
    this.#stream = new Stream(query.socket, path, silence, {
      line: (event) => this.#on(event),
      problem: (answer) => this.#answered(answer),
      end: (error) => this.#disconnected(error),
    });
  }

  /** Reports whether the program may act now. */
  get still() {
    return this.#state === 'held' && !this.#until.over;
  }

  /** Returns for how many milliseconds the program may act. */
  get left() {
    return this.#state === 'held' ? this.#until.left() : 0;
  }

  /** Reads what has come, if the time is over without it. After that, the lock is still held, or it is lost. */
  async catchUp() {
    if (this.#state === 'held') await this.#expire(true);
  }

  /** Ends the holding: the work has returned. Returns for how long the program might have acted. */
  leave() {
    const left = this.left;
    if (this.#state === 'held') this.#state = 'leaving';
    clearTimeout(this.#timer);
    return left;
  }

  /** Ends the hold, once the release has ended. */
  over() {
    this.#state = 'over';
    clearTimeout(this.#timer);
    this.#stream.close();
    this.#setGone();
  }

  /** Ends the wait. Resolves when the agent knows it, so that the next request of this process is no repetition. */
  async cancel() {
    if (this.#state === 'over') return;
    this.#state = 'leaving';
    if (!this.id) await new Promise(afterInput); // its lines may have come without having been read
    if (this.id) await ask(this.socket, 'POST', `/v1/holds/${this.id}/release`, answerLimit).catch(() => {});
    this.over();
  }

  #answered(answer) {
    if (answer.body.code === 'done') this.#isDone();
    else this.#refuse(errorOf(this.socket, this.names, answer));
  }

  #on(event) {
    this.#take(event);
    this.#query.onEvent?.(event);
  }

  #take(event) {
    switch (event.event) {
      case 'hello':
        this.id = event.hold;
        this.#difference = difference(event.now, this.#before, latest());
        return;
      case 'held':
      case 'until':
        return this.#extend(event);
      case 'stop':
        return this.stop.abort(new StopError(this.names, event.reason));
      case 'lost':
        return this.#lose(event.reason, event.detail);
      case 'timeout':
        return this.#refuse(new TimeoutError(this.names));
      case 'refused':
        return this.#refuse(new RefusedError(this.names, event.reason ?? 'refused', event.detail));
      case 'done':
        return this.#isDone();
    }
  }

  #extend(event) {
    if (this.#difference !== undefined && hasClocksOf(event.until, this.#before)) {
      this.#until.extend(after(event.until, -this.#difference));
      this.#hold(event);
    } else {
      this.#ask(event);
    }
  }

  /** Asks how much is left, by own clocks from before the question: when a line was sent can't be known. */
  async #askLeft(limit) {
    const before = earliest();
    const { status, body } = await ask(this.socket, 'GET', `/v1/holds/${this.id}`, limit);
    if (status === 200 && body.left_ms > 0) this.#until.extend(after(before, body.left_ms));
  }

  /** Asks after a line, and once more if another line came meanwhile. */
  async #ask(event) {
    if (this.#asking) {
      this.#askAgain = true;
      return;
    }
    this.#asking = true;
    try {
      await this.#askLeft(answerLimit);
      this.#hold(event);
    } catch (error) {
      if (this.#state === 'waiting') this.#refuse(error);
      else if (this.#state === 'held' && this.#connected) setTimeout(() => this.#ask(event), askAgainAfter).unref();
    }
    this.#asking = false;
    if (this.#askAgain) {
      this.#askAgain = false;
      this.#ask(event);
    }
  }

  /** Begins to hold the lock, or goes on. */
  #hold(event) {
    if (this.#state === 'waiting' && event.event === 'held') {
      this.#state = 'held';
      this.heldNames = event.names ?? this.names;
      this.#stream.allowSilence();
      this.#settle.resolve(event);
    }
    if (this.#state === 'held') this.#watch();
  }

  #watch() {
    clearTimeout(this.#timer);
    const ms = Math.min(Math.ceil(this.#until.left()), longestTimer);
    const due = performance.now() + ms;
    this.#timer = setTimeout(() => this.#expire(performance.now() > due + late), ms);
  }

  /** Loses the lock, unless lines that have come already extend it. */
  async #expire(isLate) {
    const heard = this.#stream.heard;
    await new Promise(afterInput);
    if (this.#state !== 'held') return;
    if (this.#until.over && heard !== this.#stream.heard) return this.#expire(isLate);
    if (this.#until.over && isLate && this.#difference === undefined) await this.#askLeft(lateAnswerLimit).catch(() => {});
    if (this.#state !== 'held') return;
    if (this.#until.over) this.#lose(this.#connected ? 'expired' : 'agent');
    else this.#watch();
  }

  #lose(reason, detail) {
    if (this.#state !== 'held') return;
    this.over();
    this.lost.abort(new LostError(this.names, reason, detail));
  }

  #refuse(error) {
    this.#finish(() => this.#settle.reject(error));
  }

  #isDone() {
    this.#finish(() => this.#settle.resolve(undefined));
  }

  #finish(settle) {
    if (this.#state !== 'waiting') return;
    this.over();
    settle();
  }

  /** After the agent's death, what it promised remains true until its time. */
  #disconnected(error) {
    this.#connected = false;
    this.#refuse(error ?? unreachable(this.socket));
  }
}
