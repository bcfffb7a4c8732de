// Until when a program may act.
import { latest } from './clocks.js';

/** A time by each of several clocks. It is over as soon as one of them that can be read says so. */
export class Until {
  #at = {};

  /** Moves it to a later time. An earlier one changes nothing: what was promised stays promised. */
  extend(until) {
    for (const [clock, at] of Object.entries(until ?? {})) {
      if (Number.isFinite(at)) this.#at[clock] = Math.max(at, this.#at[clock] ?? at);
    }
  }

  /** Returns how many milliseconds are left, 0 if it is over. */
  left() {
    const now = latest();
    const left = Object.keys(this.#at).filter((clock) => clock in now).map((clock) => this.#at[clock] - now[clock]);
    return left.length === 0 ? 0 : Math.max(Math.min(...left), 0);
  }

  /** Reports whether the time is over. */
  get over() {
    return this.left() <= 0;
  }
}
