// Agents that say what a test lets them say, to one program.
import { once } from 'node:events';
import { createServer } from 'node:http';
import { newSocket } from './agent.js';
import { earliest } from '../../src/clocks.js';

/**
 * Starts a server at a new socket. `answer` is called with each request, and its path; unless it answers, the test does. How
 * much is left of a hold is answered here, unless the test does it: on a busy machine, any program may have to ask.
 */
export async function startFake(t, answer, { asked = false } = {}) {
  const server = createServer((request, response) => {
    const url = new URL(request.url, 'http://agent');
    const about = request.method === 'GET' && url.pathname.startsWith('/v1/holds/');
    if (about && !asked) reply(response, 200, { left_ms: Math.max(Math.floor(server.promised - performance.now()), 0) });
    else answer(request, response, url);
  });
  server.promised = 0;
  const socket = newSocket();
  server.listen(socket);
  await once(server, 'listening');
  t.after(() => {
    server.closeAllConnections();
    server.close();
  });
  return { socket, close: () => server.closeAllConnections() };
}

/** Writes lines. */
export function say(response, ...events) {
  const { server } = response.socket;
  for (const { left_ms: ms = 0 } of events) server.promised = Math.max(server.promised, performance.now() + ms);
  for (const event of events) response.write(typeof event === 'string' ? `${event}\n` : `${JSON.stringify(event)}\n`);
}

/** The first line, of an agent whose clocks are so far from this machine's. */
export function hello(off = 0) {
  return { event: 'hello', hold: 'id', now: clocks(off) };
}

/** The line that says that a lock is held for so long. */
export function held(ms, off = 0) {
  return { event: 'held', names: ['a'], token: 7, until: clocks(ms + off), left_ms: ms, fence: [] };
}

/** The line that says that it is held for longer. */
export function until(ms, off = 0) {
  return { event: 'until', until: clocks(ms + off), left_ms: ms };
}

function clocks(off) {
  return Object.fromEntries(Object.entries(earliest()).map(([clock, at]) => [clock, at + off]));
}

/** Answers a question. */
export function reply(response, status, body) {
  response.writeHead(status, { 'Content-Type': status < 300 ? 'application/json' : 'application/problem+json' });
  response.end(JSON.stringify(body));
}
