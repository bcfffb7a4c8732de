// What a program does with lines, clocks and answers that a real agent seldom sends.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { describe, it } from 'node:test';
import { lead, leader, lock, once } from '../src/index.js';
import { backoffOf } from '../src/lead.js';
import { aborted } from './support/aborted.js';
import { newSocket } from './support/agent.js';
import { held, hello, reply, say, startFake, until } from './support/fake.js';

const hour = 3_600_000;

describe('an agent', { timeout: 30_000 }, () => {
  it('may send lines, events and fields that are not known', async (t) => {
    const { socket } = await startFake(t, (request, response, { pathname }) => {
      if (pathname !== '/v1/locks') return reply(response, 200, { state: 'released' });
      say(response, '', { ...hello(), colour: 'red' }, ' ', { event: 'weather', until: 1 }, {}, 7, { ...held(5000), shape: 'round' }, { event: 'weather' });
    });
    const events = [];
    const lock1 = await lock('a', { socket, onEvent: (event) => events.push(event.event) });
    assert.ok(lock1.still());
    assert.equal(lock1.token, 7);
    await lock1.release();
    assert.deepEqual(events.slice(0, 2), ['hello', 'weather']);
  });

  it('may send a line in parts, and several at once', async (t) => {
    const { socket } = await startFake(t, async (request, response, { pathname }) => {
      if (pathname !== '/v1/locks') return reply(response, 200, {});
      const text = [hello(), { event: 'waiting', detail: 'ä€😀' }, held(5000)].map((event) => JSON.stringify(event)).join('\n');
      const bytes = Buffer.from(`${text}\n`);
      for (let i = 0; i < bytes.length; i += 7) {
        response.write(bytes.subarray(i, i + 7));
        await new Promise(setImmediate);
      }
    });
    await (await lock('a', { socket })).release();
  });

  it('extends a lock by later lines, and a loss is the last', async (t) => {
    let stream;
    const { socket } = await startFake(t, (request, response) => say((stream = response), hello(), held(300)));
    const mine = await lock('a', { socket });
    say(stream, until(60_000), until(100), { event: 'jeopardy', detail: 'no answer' });
    await new Promise((resolve) => setTimeout(resolve, 400));
    assert.ok(mine.still(), 'what was promised stays promised');
    assert.ok(mine.left() > 50_000);
    say(stream, { event: 'lost', reason: 'superseded', detail: 'another has it' });
    const error = await aborted(mine.signal);
    assert.deepEqual([error.reason, mine.still(), mine.left()], ['superseded', false, 0]);
    assert.match(error.message, /another has it/);
    await assert.rejects(mine.release(), error);
  });

  it('may set its clocks: the latest times of several promises are no promise', async (t) => {
    let stream;
    const { socket } = await startFake(t, (request, response, { pathname }) => {
      if (pathname !== '/v1/locks') return reply(response, 200, {});
      say((stream = response), hello(), held(60_000));
    });
    const last = Object.keys(hello().now).at(-1);
    let onEvent;
    const heard = new Promise((resolve) => (onEvent = ({ shortened }) => shortened === last && resolve()));
    const mine = await lock('a', { socket, onEvent });
    const short = until(100);
    for (const clock of Object.keys(short.until)) {
      say(stream, { ...short, until: { ...until(90_000).until, [clock]: short.until[clock] }, shortened: clock });
    }
    await heard;
    assert.ok(mine.left() <= 60_000, `left: ${mine.left()}`);
    await mine.release();
  });

  it('may leave out a clock that was compared: then it is asked', async (t) => {
    let questions = 0;
    const { socket } = await startFake(t, (request, response, { pathname }) => {
      const { unix_ms } = held(60_000).until;
      if (pathname === '/v1/locks') return say(response, hello(), { ...held(60_000), until: { unix_ms } });
      questions++;
      reply(response, 200, { left_ms: 1000 });
    }, { asked: true });
    const mine = await lock('a', { socket });
    assert.deepEqual([questions, mine.left() <= 1000], [1, true]);
    await mine.release();
  });

  for (const [what, off] of [['behind', -hour], ['ahead', hour]]) {
    it(`may have clocks that are ${what}: then what is left counts from before a question`, async (t) => {
      let questions = 0;
      let stream;
      const { socket } = await startFake(t, async (request, response, { pathname }) => {
        if (pathname === '/v1/locks') return say((stream = response), hello(off), held(60_000, off));
        if (request.method === 'POST') return reply(response, 200, {});
        questions++;
        // An answer that takes long counts from before the question.
        await new Promise((resolve) => setTimeout(resolve, 150));
        reply(response, 200, { hold: 'id', state: 'held', left_ms: questions === 1 ? 5000 : 30_000 });
      }, { asked: true });
      const mine = await lock('a', { socket });
      assert.equal(questions, 1);
      assert.ok(mine.still());
      assert.ok(mine.left() <= 4850, `left: ${mine.left()}`);
      say(stream, until(60_000, off));
      while (mine.left() <= 5000) {
        await new Promise(setImmediate);
        mine.check();
      }
      assert.ok(mine.left() <= 29_900);
      assert.equal(questions, 2);
      await mine.release();
    });
  }

  for (const [what, ms, most] of [
    ['late: what its clocks may differ by is subtracted', 50, 59_950],
    ['so late that its clocks can\'t be compared: then it is asked', 150, 1000],
  ]) {
    it(`may answer ${what}`, async (t) => {
      const { socket } = await startFake(t, async (request, response, { pathname }) => {
        if (pathname !== '/v1/locks') return reply(response, 200, { left_ms: 1000 });
        const first = hello();
        await new Promise((resolve) => setTimeout(resolve, ms));
        say(response, first, held(60_000));
      }, { asked: true });
      const mine = await lock('a', { socket });
      assert.ok(mine.left() <= most, `left: ${mine.left()}`);
      await mine.release();
    });
  }

  it('may have only a clock that can be set: then it is asked, too', async (t) => {
    let questions = 0;
    const { socket } = await startFake(t, (request, response, { pathname }) => {
      const only = (reading) => ({ unix_ms: reading.unix_ms });
      const [first, second] = [hello(), held(60_000)];
      if (pathname === '/v1/locks') return say(response, { ...first, now: only(first.now) }, { ...second, until: only(second.until) });
      if (request.method === 'GET') questions++;
      reply(response, 200, { left_ms: 1000 });
    }, { asked: true });
    const mine = await lock('a', { socket });
    assert.equal(questions, 1);
    assert.ok(mine.left() <= 1000);
    await mine.release();
  });

  it('may lose a lock between two questions', async (t) => {
    const { socket } = await startFake(t, (request, response, { pathname }) => {
      if (pathname === '/v1/locks') return say(response, hello(hour), held(60_000, hour));
      if (request.method === 'GET') return reply(response, 200, { state: 'held', left_ms: 300 });
      reply(response, 410, { code: 'lost', title: 'Gone', status: 410, detail: 'superseded' });
    }, { asked: true });
    const mine = await lock('a', { socket });
    assert.equal((await aborted(mine.signal)).reason, 'expired');
    await assert.rejects(mine.release(), { code: 'lost' });
  });

  it('that ends its answer is no loss before the time of the lock', async (t) => {
    let stream;
    const { socket } = await startFake(t, (request, response, { pathname }) => {
      if (pathname !== '/v1/locks') return request.destroy();
      say((stream = response), hello(), held(2000));
    });
    const mine = await lock('a', { socket });
    const [left, began] = [mine.left(), performance.now()];
    stream.end();
    assert.equal((await aborted(mine.signal)).reason, 'agent');
    assert.ok(performance.now() - began >= left - 20);
  });

  it('that is silent while a program waits is given up', async (t) => {
    const { socket } = await startFake(t, (request, response) => say(response, hello(), { event: 'waiting' }));
    await assert.rejects(lock('a', { socket, silence: 200 }), { name: 'AgentError', message: /silent for 0\.2 s/ });
  });

  it('that sends an empty line in time is not', async (t) => {
    const { socket } = await startFake(t, (request, response, { pathname }) => {
      if (pathname !== '/v1/locks') return reply(response, 200, {});
      say(response, hello());
      let beats = 0;
      const timer = setInterval(() => {
        say(response, ++beats < 10 ? '' : held(5000));
        if (beats === 10) clearInterval(timer);
      }, 100);
    });
    await (await lock('a', { socket, silence: 800 })).release();
  });

  it('that is no agent is reported', async (t) => {
    const web = await startFake(t, (request, response) => response.end('<html>\n'));
    await assert.rejects(lock('a', { socket: web.socket }), { name: 'AgentError', message: /is it a spindle agent/ });
    const broken = await startFake(t, (request, response) => response.writeHead(502).end('bad gateway'));
    await assert.rejects(lock('a', { socket: broken.socket }), { name: 'AgentError', message: /502/ });
    const mute = createServer((connection) => connection.destroy()).listen(newSocket());
    t.after(() => mute.close());
    await assert.rejects(lock('a', { socket: mute.address() }), { name: 'AgentError' });
  });

  it('that is not there is reported, with what to do', async () => {
    await assert.rejects(lock('a', { socket: '/no/such.sock' }), { name: 'AgentError', code: 'unreachable', message: /\/no\/such.sock.*start "spindle agent"/ });
    await assert.rejects(leader('a', { socket: '/no/such.sock' }), { code: 'unreachable' });
  });

  it('refuses with a code', async (t) => {
    const { socket } = await startFake(t, (request, response, { searchParams }) => {
      const status = Number(searchParams.get('label'));
      if (status) return reply(response, status, { code: searchParams.get('value'), title: '', status, detail: 'the detail' });
      say(response, hello(), { event: 'refused', reason: 'stopping', detail: 'the detail' });
    });
    const ask = (label, value) => lock('a', { socket, label: String(label), value });
    await assert.rejects(ask(503, 'stopping'), { name: 'RefusedError', code: 'stopping', message: /the detail: try again/ });
    await assert.rejects(ask(503, 'unavailable'), { name: 'RefusedError', code: 'unavailable' });
    await assert.rejects(ask(429, 'too-many'), { name: 'RefusedError', code: 'too-many' });
    await assert.rejects(ask(403, 'name-not-allowed'), { name: 'RequestError', code: 'name-not-allowed', status: 403 });
    await assert.rejects(lock('a', { socket }), { name: 'RefusedError', code: 'stopping' });
  });

  it('may answer for a while that this program has the lock already', async (t) => {
    let requests = 0;
    const { socket } = await startFake(t, (request, response, { pathname }) => {
      if (pathname !== '/v1/locks') return reply(response, 200, {});
      if (++requests < 3) return reply(response, 409, { code: 'already-held', title: 'Conflict', status: 409, detail: 'by another request' });
      say(response, hello(), held(5000));
    });
    await (await lock('a', { socket })).release();
    assert.equal(requests, 3);
    requests = 0;
    await assert.rejects(lock('a', { socket, wait: 0 }), { code: 'busy' });
    requests = -1000;
    await assert.rejects(lock('a', { socket, wait: 100 }), { code: 'timeout' });
  });

  it('may say after how long to ask again, because this program has too many holds', async (t) => {
    const times = [];
    const { socket } = await startFake(t, (request, response, { pathname, searchParams }) => {
      if (pathname !== '/v1/locks') return reply(response, 200, {});
      times.push(performance.now());
      if (times.length === 2) return say(response, hello(), held(5000));
      response.writeHead(429, { 'Retry-After': searchParams.get('label') });
      response.end(JSON.stringify({ code: 'too-many', title: '', status: 429, detail: 'the detail' }));
    });
    await (await lock('a', { socket, label: '1', wait: '1h' })).release();
    assert.ok(times[1] - times[0] >= 990, `asked again after ${times[1] - times[0]} ms`);
    await assert.rejects(lock('a', { socket, label: '60', wait: 0 }), { name: 'RefusedError', code: 'too-many' });
    assert.equal(times.length, 3);
    await assert.rejects(lock('a', { socket, label: '60', wait: 100 }), { name: 'RefusedError', code: 'too-many' });
    const hurried = lock('a', { socket, label: '60', signal: AbortSignal.timeout(100) });
    await assert.rejects(hurried, { name: 'TimeoutError' });
  });

  it('may not know what became of a release', async (t) => {
    const { socket } = await startFake(t, (request, response, { pathname }) => {
      if (pathname === '/v1/locks') return say(response, hello(), held(5000));
      reply(response, 202, { state: 'unknown', detail: 'deadline exceeded' });
    });
    await assert.rejects(lock('a', { socket }, () => 'result'), { name: 'ReleaseUnknownError', message: /deadline exceeded.*expires by itself/ });
    await assert.rejects(lock('a', { socket }, () => assert.fail('the work')), { message: 'the work' });
  });

  it('that was started again can release a run, but not record it', async (t) => {
    const paths = [];
    const { socket } = await startFake(t, (request, response, url) => {
      if (url.pathname === '/v1/once') return say(response, hello(), { ...held(5000), names: ['a'], key: 'k', record: [] });
      paths.push(`${url.pathname}${url.search}`);
      if (url.pathname === '/v1/release') return reply(response, 200, { state: 'released' });
      reply(response, 404, { code: 'no-such-hold', title: '', status: 404, detail: '' });
    });
    const run = await once('a', { socket, key: 'k' });
    await assert.rejects(run.done(), { name: 'LostError', message: /not recorded as done.* runs it again/ });
    assert.deepEqual(paths, ['/v1/holds/id/done', '/v1/release?name=a&token=7&hold=id']);
  });

  it('that is not there is tried again by an election, later each time, until the signal aborts', async (t) => {
    const times = [];
    const controller = new AbortController();
    const { socket } = await startFake(t, (request) => {
      times.push(performance.now());
      request.destroy();
      if (times.length === 4) controller.abort();
    });
    assert.deepEqual(await lead('a', { socket, signal: controller.signal }).next(), { done: true, value: undefined });
    assert.ok(times[3] - times[0] >= 50 + 100 + 200);
  });

  it('that is not there is asked more often than the lease ends', () => {
    assert.equal(backoffOf({ lease: '2s' }).longest, 2000 / 3);
    assert.equal(backoffOf({}).longest, 10_000 / 3);
    assert.equal(backoffOf({ lease: '1h' }).longest, 5000);
  });

  it('is not asked for a lock if the signal aborts between the turn and the request', async (t) => {
    let requests = 0;
    const { socket } = await startFake(t, (request, response, { pathname }) => {
      if (pathname !== '/v1/locks') return reply(response, 200, {});
      requests++;
      say(response, hello(), held(60_000));
    });
    const first = await lock('a', { socket });
    const controller = new AbortController();
    const second = lock('a', { socket, signal: controller.signal });
    await first.release();
    controller.abort(new Error('enough'));
    await assert.rejects(second, { message: 'enough' });
    assert.equal(requests, 1);
    await (await lock('a', { socket })).release();
  });

  it('hears of an abort: the wait is over, and the next task has its turn', async (t) => {
    const released = [];
    let requests = 0;
    const { socket } = await startFake(t, (request, response, { pathname }) => {
      if (pathname !== '/v1/locks') return reply(response, 200, released.push(pathname));
      say(response, hello(), ...(requests++ ? [held(5000)] : []));
    });
    const controller = new AbortController();
    const onEvent = () => controller.abort(new Error('enough'));
    const first = lock('a', { socket, signal: controller.signal, onEvent });
    const second = lock('a', { socket });
    await assert.rejects(first, { message: 'enough' });
    assert.deepEqual(released, [], 'the error does not wait for the agent');
    const held2 = await second;
    assert.deepEqual(released, ['/v1/holds/id/release']);
    await held2.release();
  });
});

// Nothing runs beside it.
describe('a program that was blocked', { timeout: 30_000 }, () => {
  it('asks an agent with other clocks before it loses its lock', async (t) => {
    const left = [500, 60_000];
    const { socket } = await startFake(t, (request, response, { pathname }) => {
      if (pathname === '/v1/locks') return say(response, hello(hour), held(60_000, hour));
      reply(response, 200, { state: 'held', left_ms: left.shift() });
    }, { asked: true });
    const mine = await lock('a', { socket });
    Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 800);
    assert.equal(mine.still(), false);
    while (!mine.still() && !mine.signal.aborted) await new Promise(setImmediate);
    mine.check();
    await mine.release();
  });
});

// The table that all clients share.
describe('the end of a lock', { timeout: 60_000 }, () => {
  const { release, done } = JSON.parse(readFileSync(new URL('../../endings.json', import.meta.url)));
  const errors = { lost: 'LostError', unknown: 'ReleaseUnknownError' };
  for (const [what, table] of Object.entries({ release, done })) {
    for (const [answers, endings] of Object.entries(table)) {
      for (const [when, ending] of Object.entries(endings)) {
        it(`is ${ending} if the work returns ${when} and the agent says ${answers} to the ${what}`, async (t) => {
          const [first, second] = answers.split(' ');
          const { socket } = await startFake(t, (request, response, { pathname }) => {
            if (pathname === '/v1/once') return say(response, hello(), { ...held(when === 'late' ? 300 : first === 'none' || second === 'none' ? 1500 : 60_000), key: 'k' });
            const status = pathname === '/v1/release' ? second : first;
            if (status === 'none') return request.destroy();
            reply(response, Number(status), { code: status === '404' ? 'no-such-hold' : 'because', detail: 'because' });
          });
          const run = await once('a', { socket, key: 'k' });
          // Whether or not the program has been told of its loss.
          if (when === 'late' && what === 'release') Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 400);
          else if (when === 'late') await aborted(run.signal);
          assert.equal(run.still(), when !== 'late');
          const end = run[what]();
          if (ending === 'released') await end;
          else await assert.rejects(end, { name: errors[ending] });
          assert.equal(run.still(), false);
        });
      }
    }
  }
});
