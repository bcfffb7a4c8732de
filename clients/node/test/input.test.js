import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import test from 'node:test';
import { afterInput } from '../src/input.js';

test('what comes while a handler of input blocks the event loop is read first', async () => {
  const echo = spawn('cat');
  let read = '';
  const seen = await new Promise((resolve) => {
    echo.stdout.on('data', (data) => {
      read += data;
      if (read !== 'a') return;
      echo.stdin.write('b');
      Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 500);
      afterInput(() => resolve(read));
    });
    echo.stdin.write('a');
  });
  echo.kill();
  assert.equal(seen, 'ab');
});
