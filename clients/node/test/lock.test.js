// Locks and sets, at a real agent.
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { describe, it } from 'node:test';
import { promisify } from 'node:util';
import { lock } from '../src/index.js';
import { agentOfSuite, newName } from './support/agent.js';
import { aborted } from './support/aborted.js';
import { startProgram } from './support/program.js';

/** Far less than a long lease: what is acquired so soon was released. With wait: 0, a lock may be busy because another wanted it. */
const [soon, long] = ['25s', '60s'];

describe('lock', { concurrency: true, timeout: 40_000 }, () => {
  const socket = agentOfSuite();

  it('is held until its release, and not after that', async () => {
    const name = newName();
    const held = await lock(name, { socket });
    assert.deepEqual(held.names, [name]);
    assert.ok(Number.isSafeInteger(held.token));
    assert.equal(held.fence.length, 1);
    assert.ok(held.still());
    held.check();
    assert.ok(held.left() > 5000 && held.left() < 10_000);

    const released = held.release();
    assert.equal(held.still(), false, 'the work has returned: it may not act while the release is in progress');
    assert.throws(() => held.check(), { code: 'lost', reason: 'released' });
    await released;
    await held.release();
    assert.equal(held.left(), 0);
    assert.equal(held.signal.aborted, false, 'a release is no loss');
  });

  it('does work while it is held, resolves with its result, and releases it', async () => {
    const name = newName();
    let inside;
    const result = await lock(name, { socket, lease: long }, async (held) => {
      inside = held;
      assert.ok(held.still());
      return 'result';
    });
    assert.equal(result, 'result');
    assert.equal(inside.still(), false);
    await lock(name, { socket, wait: soon }, () => {});
  });

  it('is released if the work throws, and the error is the work\'s', async () => {
    const name = newName();
    const work = () => {
      throw new Error('work');
    };
    await assert.rejects(lock(name, { socket, lease: long }, work), { message: 'work' });
    await (await lock(name, { socket, wait: soon })).release();
  });

  it('leaves nothing behind if its wait is aborted while its lines lie unread', async () => {
    for (const turns of [2, 4, 6]) {
      const name = newName();
      const waits = lock(name, { socket, lease: long, signal: AbortSignal.timeout(50) });
      waits.catch(() => {});
      for (let n = 0; n < turns; n++) await new Promise((then) => setImmediate(then));
      Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 300); // the lines come, and the signal's time passes
      await waits.then((held) => held.release(), (error) => assert.equal(error.name, 'TimeoutError'));
      await (await lock(name, { socket, wait: soon })).release();
    }
  });

  it('is busy, and not too late, if another task asks for a part of the set at the same time', async () => {
    const names = [newName(), newName()];
    const all = await Promise.allSettled([lock(names, { socket, wait: 0 }), lock(names[1], { socket, wait: 0 })]);
    for (const { status, reason, value } of all) {
      if (status === 'rejected') assert.equal(reason.code, 'busy');
      else await value.release();
    }
  });

  it('is released at the end of a block that uses it', { skip: !Symbol.asyncDispose }, async () => {
    const name = newName();
    const held = await lock(name, { socket, lease: long });
    await held[Symbol.asyncDispose]();
    await (await lock(name, { socket, wait: soon })).release();
  });

  it('excludes another process, which gets it at the release with a larger token', async (t) => {
    const name = newName();
    const program = await startProgram(t, socket);
    const mine = await lock(name, { socket });
    let theirs;
    const acquired = program.call('acquire', 'lock', name, {}).then((held) => (theirs = held));
    await assert.rejects(program.call('acquire', 'lock', name, { wait: 0 }), { code: 'busy' });
    assert.equal(theirs, undefined);
    await mine.release();
    await acquired;
    assert.ok(theirs.token > mine.token);
    await assert.rejects(lock(name, { socket, wait: 0 }), { code: 'busy' });
    await program.call('release');
  });

  it('with wait: 0 says at once that another process has it', async (t) => {
    const name = newName();
    const program = await startProgram(t, socket);
    await program.call('acquire', 'lock', name, {});
    await assert.rejects(lock(name, { socket, wait: 0 }), (error) => error.code === 'busy' && error.name === 'BusyError' && /wait/.test(error.message));
  });

  it('gives up when the time to wait is over', async (t) => {
    const name = newName();
    const program = await startProgram(t, socket);
    await program.call('acquire', 'lock', name, {});
    const began = performance.now();
    await assert.rejects(lock(name, { socket, wait: 300 }), { code: 'timeout', name: 'TimeoutError' });
    assert.ok(performance.now() - began >= 299);
  });

  it('gives up when its signal aborts, and leaves nothing behind', async (t) => {
    const name = newName();
    const program = await startProgram(t, socket);
    await program.call('acquire', 'lock', name, {});
    const controller = new AbortController();
    const onEvent = ({ event }) => event === 'waiting' && controller.abort(new Error('enough'));
    await assert.rejects(lock(name, { socket, signal: controller.signal, onEvent }), { message: 'enough' });
    await assert.rejects(lock(name, { socket, signal: controller.signal }), { message: 'enough' });
    await program.call('release');
    await (await lock(name, { socket })).release();
  });

  it('takes all names of a set, or none', async (t) => {
    const [a, b, c] = [newName(), newName(), newName()];
    const program = await startProgram(t, socket);
    const set = await lock([a, b], { socket, lease: long });
    assert.equal(set.fence.length, 2);
    await assert.rejects(program.call('acquire', 'lock', b, { wait: 0 }), { code: 'busy' });
    await assert.rejects(program.call('acquire', 'lock', [b, c], { wait: 0 }), { code: 'busy' });
    await (await lock(c, { socket, wait: soon })).release();
    await set.release();
    await program.call('acquire', 'lock', [b, c], {});
    await program.call('release');
  });

  it('lets tasks of one process take turns', async () => {
    const name = newName();
    let inside = 0;
    const order = [];
    const task = (i) =>
      lock(name, { socket }, async (held) => {
        assert.equal(++inside, 1);
        order.push(i);
        await new Promise(setImmediate);
        held.check();
        inside--;
      });
    await Promise.all([1, 2, 3, 4].map(task));
    assert.deepEqual(order, [1, 2, 3, 4]);
  });

  it('lets tasks take sets in any order', async () => {
    const [a, b] = [newName(), newName()];
    await Promise.all([lock([a, b], { socket }, () => {}), lock([b, a], { socket }, () => {}), lock([b], { socket }, () => {})]);
  });

  it('counts the turns of other tasks as waiting', async () => {
    const name = newName();
    const held = await lock(name, { socket });
    await assert.rejects(lock(name, { socket, wait: 0 }), { code: 'busy' });
    await assert.rejects(lock(name, { socket, wait: 100 }), { code: 'timeout' });
    await assert.rejects(lock(name, { socket, signal: AbortSignal.timeout(100) }), { name: 'TimeoutError' });
    const next = lock(name, { socket, wait: '1000h' }); // longer than a timer can be
    await held.release();
    await (await next).release();
  });

  it('is released on request, once the program has completed its work', async (t) => {
    const name = newName();
    const program = await startProgram(t, socket);
    const held = await lock(name, { socket });
    const next = program.call('acquire', 'lock', name, {});
    assert.equal(held.stopSignal.aborted, false);
    await held.stepDown();
    const reason = await aborted(held.stopSignal);
    assert.equal(reason.name, 'StopError');
    assert.equal(reason.reason, 'stepdown');
    assert.ok(held.still(), 'it is still held');
    await held.release();
    await next;
  });

  it('shows its label to operators', async () => {
    const name = newName();
    await lock(name, { socket, label: 'the label' }, async () => {
      const { stdout } = await promisify(execFile)(process.env.SPINDLE, ['ls', name]);
      assert.match(stdout, /the label/);
    });
  });
});
