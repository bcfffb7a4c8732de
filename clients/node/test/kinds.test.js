// Semaphores, elections, and work that is done once, at a real agent.
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { lead, leader, once, semaphore } from '../src/index.js';
import { agentOfSuite, newName, newSocket, startAgent } from './support/agent.js';
import { aborted } from './support/aborted.js';
import { startProgram } from './support/program.js';

const options = { concurrency: true, timeout: 40_000 };
const socket = agentOfSuite();

describe('semaphore', options, () => {
  it('has as many holders as slots, also in one process', async (t) => {
    const name = newName();
    const program = await startProgram(t, socket);
    const [a, b] = await Promise.all([semaphore(name, { slots: 2, socket }), semaphore(name, { slots: 2, socket })]);
    await assert.rejects(semaphore(name, { slots: 2, socket, wait: 0 }), { code: 'busy' });
    const next = program.call('acquire', 'semaphore', name, { slots: 2 });
    await a.release();
    await next;
    assert.ok(b.still());
    await b.release();
    assert.equal(await semaphore(name, { slots: 2, socket }, (held) => held.still()), true);
  });
});

describe('lead', options, () => {
  it('leads one term for each step, and again after it', async () => {
    const name = newName();
    const tokens = [];
    for await (const term of lead(name, { socket, value: 'me' })) {
      assert.ok(term.still());
      const now = await leader(name, { socket });
      assert.equal(now.token, term.token);
      assert.equal(now.value, 'me');
      tokens.push(term.token);
      if (tokens.length === 2) break;
    }
    assert.ok(tokens[1] > tokens[0]);
    assert.equal(await leader(name, { socket }), null, 'break ends the term');
  });

  it('ends the term if the step throws', async () => {
    const name = newName();
    const run = async () => {
      for await (const _ of lead(name, { socket })) throw new Error('step');
    };
    await assert.rejects(run(), { message: 'step' });
    assert.equal(await leader(name, { socket }), null);
  });

  it('ends when its signal aborts, while it waits and while it leads', async () => {
    const name = newName();
    const [first, second] = [new AbortController(), new AbortController()];
    let terms = 0;
    const count = async (controller, onEvent) => {
      for await (const term of lead(name, { socket, signal: controller.signal, onEvent })) {
        terms++;
        const waits = count(second, () => {});
        second.abort();
        await waits;
        controller.abort();
        assert.ok(term.still(), 'a term that has begun is not interrupted');
      }
    };
    await count(first);
    assert.equal(terms, 1);
  });

  it('leaves the wait when its signal aborts while another leads', async (t) => {
    const name = newName();
    const other = await startAgent(t);
    const controller = new AbortController();
    const terms = lead(name, { socket });
    await terms.next();
    const seen = [];
    const onEvent = (event) => {
      seen.push(event);
      if (event.event === 'leader') controller.abort();
    };
    const waiting = lead(`${name}`, { socket: other.socket, signal: controller.signal, onEvent });
    // The other agent knows this process as another program: the turns are those of one agent.
    assert.deepEqual(await waiting.next(), { done: true, value: undefined });
    assert.ok(seen.some(({ leader: now }) => now?.token));
    await terms.return();
  });

  it('hands over when it is asked to', async () => {
    const name = newName();
    for await (const term of lead(name, { socket, lease: '5s', handover: true })) {
      await term.stepDown();
      assert.equal((await aborted(term.stopSignal)).code, 'stop');
      break;
    }
  });

  it('yields to a higher priority', async (t) => {
    const name = newName();
    const other = await startAgent(t);
    const low = lead(name, { socket, lease: '2s', priority: 1, handover: true });
    const { value: term } = await low.next();
    const high = lead(name, { socket: other.socket, lease: '2s' });
    const next = high.next();
    assert.equal((await aborted(term.stopSignal)).reason, 'handover');
    await low.return();
    assert.ok((await next).value.token > term.token);
    await high.return();
  });

  it('leads again after the agent was killed and started again', async (t) => {
    const name = newName();
    const where = newSocket();
    const mortal = await startAgent(t, where);
    const tokens = [];
    for await (const term of lead(name, { socket: where, lease: '3s' })) {
      tokens.push(term.token);
      if (tokens.length === 2) break;
      await mortal.end();
      assert.equal((await aborted(term.signal)).reason, 'agent');
      setTimeout(() => startAgent(t, where), 300); // so that an attempt finds no agent
    }
    assert.ok(tokens[1] > tokens[0]);
  });

  it('says what is wrong with its arguments', async () => {
    await assert.rejects(lead(newName(), { socket, priority: 10 }).next(), { name: 'RequestError', status: 400 });
  });
});

describe('once', options, () => {
  it('runs once for a key, in one of two processes', async (t) => {
    const name = newName();
    const program = await startProgram(t, socket);
    const run = await once(name, { key: 'v1', socket });
    assert.equal(run.key, 'v1');
    assert.ok(run.record.length > 0);
    const theirs = program.call('acquire', 'once', name, { key: 'v1' });
    await run.done();
    assert.equal(await theirs, null, 'it is done');
    assert.equal(await once(name, { key: 'v1', socket }), null);
    assert.equal(await once(name, { key: 'v1', socket, wait: 0 }), null);
    assert.equal(await once(name, { key: 'v1', socket }, assert.fail), false);
  });

  it('does work, and records it when the work has returned', async () => {
    const name = newName();
    assert.equal(await once(name, { key: 'v1', socket }, async (run) => run.check()), true);
    assert.equal(await once(name, { key: 'v1', socket }, assert.fail), false);
    assert.equal(await once(name, { key: 'v2', socket }, () => {}), true);
    await assert.rejects(once(name, { key: 'v1', socket }), { name: 'RefusedError', code: 'passed' });
    await assert.rejects(once(name, { key: 'v1', socket, wait: 0 }), { name: 'RefusedError', code: 'passed' });
  });

  it('leaves the key to the next if the work throws', async () => {
    const name = newName();
    const fails = () => Promise.reject(new Error('work'));
    await assert.rejects(once(name, { key: 'v1', socket }, fails), { message: 'work' });
    assert.equal(await once(name, { key: 'v1', socket }, () => {}), true);
  });

  it('runs once for each time of a schedule', async () => {
    const name = newName();
    assert.equal(await once(name, { every: '240h', offset: 0, socket }, (run) => assert.match(run.key, /T00:00:00Z$/)), true);
    assert.equal(await once(name, { every: '240h', offset: 0, socket }, assert.fail), false);
  });

  it('does not record what was released', async () => {
    const name = newName();
    const run = await once(name, { key: 'v1', socket });
    const released = run.release();
    await assert.rejects(run.done(), { code: 'released' });
    await released;
    const again = await once(name, { key: 'v1', socket });
    await Promise.all([again.done(), again.release()]);
    assert.equal(await once(name, { key: 'v1', socket }), null);
  });
});
