// Programs and agents that are killed, stopped, or late.
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { describe, it } from 'node:test';
import { promisify } from 'node:util';
import { lock, semaphore } from '../src/index.js';
import { newName, newSocket, startAgent } from './support/agent.js';
import { aborted } from './support/aborted.js';
import { startProgram } from './support/program.js';

describe('faults', { concurrency: true, timeout: 50_000 }, () => {
  it('a program that is killed leaves its lock to the next in far less than a lease', async (t) => {
    const name = newName();
    const { socket } = await startAgent(t);
    const program = await startProgram(t, socket);
    await program.call('acquire', 'lock', name, { lease: '60s' });
    const next = lock(name, { socket, lease: '10s' });
    const began = performance.now();
    program.kill();
    const held = await next;
    assert.ok(performance.now() - began < 30_000, 'it did not wait for the end of the lease');
    await held.release();
  });

  it('a process that the program started does not keep the lock', async (t) => {
    const name = newName();
    const { socket } = await startAgent(t);
    const program = await startProgram(t, socket);
    await program.call('acquire', 'lock', name, { lease: '60s' });
    const child = await program.call('spawn');
    t.after(() => process.kill(child, 'SIGKILL'));
    program.kill();
    await (await lock(name, { socket, lease: '10s', wait: '20s' })).release();
    process.kill(child, 0); // it lives
  });

  it('after the agent was killed, a lock is held until its time, and then it is lost', async (t) => {
    const name = newName();
    const agent = await startAgent(t);
    const held = await lock(name, { socket: agent.socket, lease: '5s' });
    await agent.end();
    assert.ok(held.still(), 'the agent has promised it');
    const [left, began] = [held.left(), performance.now()];
    assert.ok(left > 500);
    const error = await aborted(held.signal);
    const took = performance.now() - began;
    assert.ok(took >= left - 20 && took < left + 5000, `lost after ${took} ms of ${left}`);
    assert.equal(held.still(), false);
    assert.deepEqual([error.name, error.reason], ['LostError', 'agent']);
    assert.throws(() => held.check(), error);
    await assert.rejects(held.release(), error);
  });

  it('after the agent was killed, a program that waits says so', async (t) => {
    const name = newName();
    const agent = await startAgent(t);
    const program = await startProgram(t, agent.socket);
    await program.call('acquire', 'lock', name, { lease: '1s' });
    const onEvent = ({ event }) => event === 'waiting' && agent.kill();
    await assert.rejects(lock(name, { socket: agent.socket, onEvent }), { name: 'AgentError', code: 'unreachable' });
    await agent.exited;
    await assert.rejects(lock(name, { socket: agent.socket }), /start "spindle agent"/);
  });

  it('a lock of an agent that was killed and started again is released before it expires', async (t) => {
    const name = newName();
    const socket = newSocket();
    const agent = await startAgent(t, socket);
    const held = await lock(name, { socket, lease: '60s' });
    await agent.end();
    const released = held.release();
    await startAgent(t, socket);
    await released;
    await (await lock(name, { socket, wait: '20s' })).release();
  });

  it('a slot of a semaphore is released in the same way', async (t) => {
    const name = newName();
    const socket = newSocket();
    const agent = await startAgent(t, socket);
    const slot = await semaphore(name, { socket, slots: 1, lease: '60s' });
    await agent.end();
    const released = slot.release();
    await startAgent(t, socket);
    await released;
    await (await semaphore(name, { socket, slots: 1, wait: '20s' })).release();
  });

  it('a release that no agent answers says that its outcome is not known', async (t) => {
    const name = newName();
    const agent = await startAgent(t);
    const held = await lock(name, { socket: agent.socket, lease: '5s' });
    await agent.end();
    await assert.rejects(held.release(), { name: 'ReleaseUnknownError', code: 'release-unknown' });
    assert.equal(held.signal.aborted, false, 'the work had returned');
  });

  it('while the agent is stopped, a lock is lost at its time', async (t) => {
    const name = newName();
    const agent = await startAgent(t);
    const held = await lock(name, { socket: agent.socket, lease: '1s' });
    agent.kill('SIGSTOP');
    assert.equal((await aborted(held.signal)).reason, 'expired');
    assert.equal(held.still(), false);
    // Another agent's program has it before the first agent knows.
    const other = await startAgent(t);
    const next = await lock(name, { socket: other.socket });
    assert.ok(next.token > held.token);
    agent.kill('SIGCONT');
    await assert.rejects(held.release(), { code: 'lost' });
    assert.ok(next.still());
    await next.release();
  });

  it('a program that was stopped while another got the lock knows it before it reads anything', async (t) => {
    const name = newName();
    const [agent, other] = [await startAgent(t), await startAgent(t)];
    const program = await startProgram(t, agent.socket);
    await program.call('acquire', 'lock', name, { lease: '4s' });
    const computing = program.next('computing');
    const lost = program.next('lost');
    const result = program.call('computeWhileHeld');
    assert.equal((await computing).still, true);
    agent.kill('SIGSTOP');
    program.kill('SIGSTOP');
    const next = await lock(name, { socket: other.socket });
    const acquired = process.hrtime.bigint();
    program.kill('SIGCONT');
    const { last, code, then } = await result;
    assert.ok(BigInt(last) < acquired, 'it acted while the other might');
    assert.deepEqual([code, then], ['lost', false]);
    await lost;
    assert.ok(next.still());
    await next.release();
  });

  it('a program that was stopped loses nothing if its agent runs', async (t) => {
    const name = newName();
    const { socket } = await startAgent(t);
    const program = await startProgram(t, socket);
    await program.call('acquire', 'lock', name, { lease: '6s' });
    program.kill('SIGSTOP');
    await assert.rejects(lock(name, { socket, wait: '7s' }), { code: 'timeout' });
    program.kill('SIGCONT');
    assert.equal((await program.call('block', 0)).then, true);
    await program.call('release');
  });

  it('a program whose event loop was blocked must not act at once, and loses nothing', async (t) => {
    const name = newName();
    const { socket } = await startAgent(t);
    const program = await startProgram(t, socket);
    await program.call('acquire', 'lock', name, { lease: '6s' });
    assert.deepEqual(await program.call('block', 7000), { before: true, first: false, then: true });
    await program.call('release');
  });

  it('a program that does not read for as long as stall allows loses its lock', async (t) => {
    const name = newName();
    const { socket } = await startAgent(t);
    const program = await startProgram(t, socket);
    await program.call('acquire', 'lock', name, { lease: '3s', stall: '1500ms' });
    const lost = program.next('lost');
    const next = lock(name, { socket });
    const blocked = program.call('block', 6000);
    const held = await next;
    assert.equal((await lost).reason, 'stalled');
    assert.deepEqual(await blocked, { before: true, first: false, then: false });
    await held.release();
  });

  it('a program is asked to release its lock before its agent ends', async (t) => {
    const name = newName();
    const agent = await startAgent(t);
    const program = await startProgram(t, agent.socket);
    await program.call('acquire', 'lock', name, { lease: '3s' });
    const stop = program.next('stop');
    agent.kill('SIGTERM');
    assert.equal((await stop).reason, 'agent-stops');
    assert.equal(await program.call('still'), true);
    // The agent ends after the release, and may not answer it any more.
    await program.call('release').catch((error) => assert.equal(error.code, 'release-unknown'));
    await agent.exited;
  });

  it('a lock that an operator released is lost', async (t) => {
    const name = newName();
    const { socket } = await startAgent(t);
    const held = await lock(name, { socket, lease: '6s' });
    await promisify(execFile)(process.env.SPINDLE, ['release', name, '--token', String(held.token), '--yes']);
    assert.equal((await aborted(held.signal)).reason, 'superseded');
    assert.equal(held.still(), false);
    await assert.rejects(held.release(), { code: 'lost' });
  });
});
