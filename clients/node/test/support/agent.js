// Agents that tests start and end.
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync } from 'node:fs';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { after, before } from 'node:test';

const running = new Set();
process.on('exit', () => running.forEach((child) => child.kill('SIGKILL')));

let names = 0;

/** Returns the name of a lock that no other test has. */
export function newName() {
  return `test/${process.pid}/${++names}`;
}

/** Returns a path for a socket that no other test has. */
export function newSocket() {
  if (!process.env.SPINDLE_TEST_FOLDER) throw new Error('run the tests with npm test');
  return join(mkdtempSync(join(process.env.SPINDLE_TEST_FOLDER, 'a')), 's');
}

/** Starts an agent, and resolves when programs can connect. It ends with the test. */
export async function startAgent(t, socket = newSocket()) {
  const child = spawn(process.env.SPINDLE, ['agent', '--listen', `unix:${socket}`], { stdio: ['ignore', 'ignore', 'pipe'] });
  running.add(child);
  const exited = once(child, 'exit').then(() => running.delete(child));
  const agent = {
    socket,
    kill: (signal = 'SIGKILL') => child.kill(signal),
    async end() {
      child.kill('SIGKILL');
      await exited;
    },
    exited,
  };
  t?.after(() => agent.end());
  const log = [];
  const lines = createInterface({ input: child.stderr });
  await new Promise((resolve, reject) => {
    lines.on('line', (line) => {
      log.push(line);
      if (line.includes('serving locks')) resolve();
    });
    lines.on('close', () => reject(new Error(`the agent has ended: ${log.join('\n')}`)));
  });
  return agent;
}

/** Runs an agent for all tests of a suite, and returns its socket. */
export function agentOfSuite() {
  const socket = newSocket();
  let agent;
  before(async () => {
    agent = await startAgent(undefined, socket);
  });
  after(() => agent.end());
  return socket;
}
