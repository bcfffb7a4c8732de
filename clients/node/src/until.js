// How long a program may act.
import { latest } from './clocks.js';

/** One time by each of several clocks. It is over as soon as one clock that can be read says so. */
export class Until {
  #at = {};

  /**
   * Moves it to a later time. An earlier time changes nothing, because the agent keeps what it has promised. The clocks of
   * two promises are never mixed: if a clock was set in between, the latest time of each clock may be in neither promise.
   */
  extend(until) {
    if (leftUntil(until) > leftUntil(this.#at)) this.#at = until;
  }

  /** Returns how many milliseconds are left, 0 if it is over. */
  left() {
    return Math.max(leftUntil(this.#at), 0);
  }

  /** Reports whether the time is over. */
  get over() {
    return this.left() <= 0;
  }
}

function leftUntil(until) {
  const now = latest();
  const left = Object.keys(until).filter((clock) => clock in now).map((clock) => until[clock] - now[clock]);
  return left.length === 0 ? 0 : Math.min(...left);
}
