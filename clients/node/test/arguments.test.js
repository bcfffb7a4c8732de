// What is wrong with arguments, as programmers read it.
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import * as api from '../src/index.js';
import { agentOfSuite, newName } from './support/agent.js';

const { lock, once, semaphore } = api;

describe('arguments', { timeout: 30_000 }, () => {
  const socket = agentOfSuite();

  const wrong = (promise, message) => assert.rejects(promise, (error) => error.name === 'RequestError' && error.status === 400 && message.test(error.message));

  it('are checked before a request', async () => {
    await wrong(lock([]), /a lock has a name/);
    await wrong(lock(''), /a lock has a name/);
    await wrong(lock(undefined), /a lock has a name/);
    await wrong(lock('a', 'b'), /options are an object/);
    await wrong(lock('a', {}, 'b'), /the work is a function/);
    for (const time of ['10', '10 s', 'ten', -1, NaN, Infinity, '', null, {}]) await wrong(lock('a', { wait: time }), /^wait: .* is not a time/);
  });

  it('are checked by the agent, which says what it knows', async () => {
    await wrong(lock(newName(), { socket, colour: 'red' }), /unknown parameter "colour"/);
    await wrong(lock(newName(), { socket, lease: '1ms' }), /lease/);
    await wrong(semaphore(newName(), { socket }), /slots/);
    await wrong(once(newName(), { socket }), /every=.*key=/);
    await wrong(once(newName(), { socket, every: '1h', key: 'k' }), /every=.*key=/);
  });

  it('done() is for runs', async () => {
    const held = await lock(newName(), { socket });
    await assert.rejects(held.done(), { code: 'not-once' });
    await held.release();
  });

  it('times are text or milliseconds', async () => {
    for (const wait of [20_000, 20_000.5, '20000ms', '1m30s', '.5m', '1.5h']) await (await lock(newName(), { socket, wait })).release();
    const name = newName();
    const held = await lock(name, { socket });
    for (const wait of [0, '0', '0s']) await assert.rejects(lock(name, { socket, wait }), { code: 'busy' });
    for (const wait of [1, 0.5, '1us']) await assert.rejects(lock(name, { socket, wait }), { code: 'timeout' });
    await held.release();
  });

  it('SPINDLE_AGENT names the socket', async (t) => {
    process.env.SPINDLE_AGENT = '/from/environment';
    t.after(() => delete process.env.SPINDLE_AGENT);
    await assert.rejects(lock('a'), /the agent at \/from\/environment/);
    process.env.SPINDLE_AGENT = '';
    await assert.rejects(lock('a'), /the agent at \/run\/spindle\/agent.sock/);
  });

  it('a held lock can\'t be sent to a worker', async () => {
    const held = await lock(newName(), { socket });
    assert.equal(typeof structuredClone(held).still, 'undefined');
    await held.release();
  });

  it('every public name is one of the types', () => {
    assert.deepEqual(Object.keys(api).sort(), [
      'AgentError', 'BusyError', 'Held', 'LostError', 'RefusedError', 'ReleaseUnknownError', 'RequestError', 'SpindleError', 'StopError',
      'TimeoutError', 'addFence', 'addRecord', 'lead', 'leader', 'lock', 'once', 'runFence', 'semaphore',
    ]);
  });
});
