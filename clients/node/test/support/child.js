// The program that program.js starts. It has at most one lock.
import { spawn } from 'node:child_process';
import { lock, once, semaphore } from '../../src/index.js';

const kinds = { lock, once, semaphore };
let held;

const functions = {
  async acquire(kind, name, options) {
    held = await kinds[kind](name, options);
    if (!held) return null;
    held.signal.addEventListener('abort', () => process.send({ event: 'lost', reason: held.signal.reason.reason }));
    held.stopSignal.addEventListener('abort', () => process.send({ event: 'stop', reason: held.stopSignal.reason.reason }));
    return { token: held.token, left: held.left() };
  },
  release: () => held.release(),
  done: () => held.done(),
  still: () => held.still(),

  /** Blocks the event loop, and says what still() is right after that, and when the event loop has read what has come. */
  async block(ms) {
    const before = held.still();
    Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, ms);
    const first = held.still();
    return { before, first, then: await settled() };
  },

  /** Computes, without reading anything, while it may. Returns when it last might, by a clock that all processes share. */
  async computeWhileHeld() {
    process.send({ event: 'computing', still: held.still() });
    for (let last = 0n; ; ) {
      const now = process.hrtime.bigint();
      if (!held.still()) return { last: String(last), code: codeOf(() => held.check()), then: await settled() };
      last = now;
    }
  },

  /** Starts a process that outlives this one. */
  spawn: () => spawn('sleep', ['60'], { detached: true, stdio: 'ignore' }).pid,
};

/** Reports still() once the event loop has read what has come, and has asked if the clocks could not be compared. */
async function settled() {
  while (!held.still() && !held.signal.aborted) await new Promise(setImmediate);
  return held.still();
}

function codeOf(f) {
  try {
    f();
    return 'ok';
  } catch (error) {
    return error.code;
  }
}

process.on('message', async ({ id, name, args }) => {
  try {
    process.send({ id, result: await functions[name](...args) });
  } catch (error) {
    process.send({ id, error: { name: error.name, message: error.message, code: error.code, reason: error.reason } });
  }
});
