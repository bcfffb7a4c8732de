// Agents that say what a test lets them say, to one program.
import { once } from 'node:events';
import { createServer } from 'node:http';
import { newSocket } from './agent.js';
import { earliest } from '../../src/clocks.js';

/** Starts a server at a new socket. `answer` is called with each request, and its path; unless it answers, the test does. */
export async function startFake(t, answer) {
  const server = createServer((request, response) => answer(request, response, new URL(request.url, 'http://agent')));
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
