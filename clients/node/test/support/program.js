// Programs in processes of their own, which tests can kill and stop.
import { fork } from 'node:child_process';
import { once } from 'node:events';

const running = new Set();
process.on('exit', () => running.forEach((child) => child.kill('SIGKILL')));

/**
 * Starts a program. `call` calls a function of child.js there; `next` resolves with its next event of a kind. It ends with
 * the test.
 */
export async function startProgram(t, socket) {
  const child = fork(new URL('./child.js', import.meta.url), { env: { ...process.env, SPINDLE_AGENT: socket } });
  running.add(child);
  const exited = once(child, 'exit').then(() => running.delete(child));
  const answers = new Map();
  let calls = 0;
  child.on('message', ({ id, result, error }) => {
    if (!answers.has(id)) return;
    const { resolve, reject } = answers.get(id);
    answers.delete(id);
    if (error) reject(Object.assign(new Error(error.message), error));
    else resolve(result);
  });
  const program = {
    pid: child.pid,
    exited,
    kill: (signal = 'SIGKILL') => child.kill(signal),
    call(name, ...args) {
      const id = ++calls;
      const answer = new Promise((resolve, reject) => answers.set(id, { resolve, reject }));
      child.send({ id, name, args });
      return answer;
    },
    next(event) {
      return new Promise((resolve) => {
        child.on('message', function take(message) {
          if (message.event !== event) return;
          child.off('message', take);
          resolve(message);
        });
      });
    },
  };
  t.after(async () => {
    child.kill('SIGKILL');
    await exited;
  });
  return program;
}
