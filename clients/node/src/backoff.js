// How long to wait before the next attempt.

/** Pauses for so many milliseconds, or until the signal aborts: then it rejects with the signal's reason. */
export function pause(ms, signal) {
  return new Promise((resolve, reject) => {
    signal?.throwIfAborted();
    const stop = () => {
      clearTimeout(timer);
      reject(signal.reason);
    };
    const timer = setTimeout(() => {
      signal?.removeEventListener('abort', stop);
      resolve();
    }, ms);
    signal?.addEventListener('abort', stop, { once: true });
  });
}

/** Pauses that double, up to a limit, with a part that is random so that programs do not attempt together. */
export class Backoff {
  #next;

  constructor(first, longest) {
    this.first = first;
    this.longest = longest;
    this.reset();
  }

  reset() {
    this.#next = this.first;
  }

  async pause(signal, most = Infinity) {
    const ms = this.#next * (0.5 + Math.random() / 2);
    this.#next = Math.min(this.#next * 2, this.longest);
    await pause(Math.min(ms, most), signal);
  }
}
