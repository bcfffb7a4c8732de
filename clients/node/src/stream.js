// The response that is one hold.
import http from 'node:http';
import { AgentError } from './errors.js';
import { afterInput } from './input.js';
import { unreachable } from './problem.js';

/**
 * Reads the lines of one response. It calls `line` for each, or `problem` if the status is not 200, and `end` once when
 * nothing more follows, with an error or without one.
 */
export class Stream {
  /** How many chunks were read. */
  heard = 0;
  #socket;
  #request;
  #handlers;
  #silence;
  #ended = false;

  constructor(socket, path, silence, handlers) {
    this.#socket = socket;
    this.#handlers = handlers;
    this.#request = http.request({ socketPath: socket, method: 'POST', path, agent: false });
    this.#request.on('response', (response) => this.#answered(response));
    this.#request.on('error', (error) => this.#end(unreachable(socket, error)));
    this.#request.end();
    this.#limitSilence(silence);
  }

  /** Closes the connection. No handler is called after that. */
  close() {
    this.#handlers = undefined;
    this.#end();
    this.#request.destroy();
  }

  /** Stops minding how long the agent is silent. */
  allowSilence() {
    clearTimeout(this.#silence);
    this.#silence = undefined;
  }

  #limitSilence(ms) {
    const check = () => {
      const heard = this.heard;
      afterInput(() => {
        if (heard === this.heard && this.#silence) this.#fail(`silent for ${ms / 1000} s: it is stopped, or overloaded`);
      });
    };
    this.#silence = setTimeout(check, ms);
  }

  #answered(response) {
    response.setEncoding('utf8');
    response.on('error', (error) => this.#end(unreachable(this.#socket, error)));
    response.on('data', () => {
      this.heard++;
      this.#silence?.refresh();
    });
    if (response.statusCode === 200) this.#readLines(response);
    else this.#readProblem(response);
  }

  #readLines(response) {
    let rest = '';
    response.on('data', (chunk) => {
      const lines = (rest + chunk).split('\n');
      rest = lines.pop();
      lines.forEach((line) => this.#line(line));
    });
    response.on('end', () => this.#end());
  }

  #readProblem(response) {
    let text = '';
    response.on('data', (chunk) => (text += chunk));
    response.on('end', () => {
      const after = Number.parseInt(response.headers['retry-after'], 10);
      this.#handlers?.problem({ status: response.statusCode, body: objectOf(text) ?? {}, after });
      this.close();
    });
  }

  #line(text) {
    if (text.trim() === '' || this.#ended) return;
    const event = objectOf(text);
    if (event) this.#handlers?.line(event);
    else this.#fail('a line of it is not JSON: is it a spindle agent?');
  }

  #fail(what) {
    this.#end(new AgentError(this.#socket, what));
    this.#request.destroy();
  }

  #end(error) {
    if (this.#ended) return;
    this.#ended = true;
    this.allowSilence();
    this.#handlers?.end(error);
  }
}

function objectOf(text) {
  try {
    return Object(JSON.parse(text));
  } catch {
    return undefined;
  }
}
