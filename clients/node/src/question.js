// A question that the agent answers at once, or after a commit.
import http from 'node:http';
import { afterInput } from './input.js';
import { unreachable } from './problem.js';

/** Asks the agent, and returns the status and the body of its answer. Rejects with an AgentError if there is none in time. */
export function ask(socket, method, path, limit) {
  return new Promise((resolve, reject) => {
    const fail = (error) => {
      clearTimeout(timer);
      reject(unreachable(socket, error));
    };
    const request = http.request({ socketPath: socket, method, path, agent: false }, (response) => {
      let text = '';
      response.setEncoding('utf8');
      response.on('data', (chunk) => (text += chunk));
      response.on('error', fail);
      response.on('end', () => {
        clearTimeout(timer);
        resolve({ status: response.statusCode, body: parse(text) });
      });
    });
    // The answer may have come while this process was stopped.
    const timer = setTimeout(() => afterInput(() => request.destroy(new Error(`no answer in ${Math.ceil(limit / 1000)} s`))), limit);
    request.on('error', fail);
    request.end();
  });
}

function parse(text) {
  try {
    return Object(JSON.parse(text));
  } catch {
    return {};
  }
}
