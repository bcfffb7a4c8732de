/**
 * Calls a function when the input that waits already has been read. After this process was stopped, or its event loop was
 * blocked, timers fire before that. While the loop handles input, the first setImmediate comes before the loop reads more.
 */
export function afterInput(then) {
  setImmediate(() => setImmediate(then));
}
