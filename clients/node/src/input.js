/**
 * Calls a function when the input that waits already has been read. After this process was stopped, or its event loop was
 * blocked, timers fire before that.
 */
export function afterInput(then) {
  setImmediate(then);
}
