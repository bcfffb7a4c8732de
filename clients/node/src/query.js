// What a program asks the agent for.
import { format, milliseconds } from './duration.js';
import { RequestError } from './errors.js';

/** Where agents listen, unless SPINDLE_AGENT or an option says otherwise. */
const usualSocket = '/run/spindle/agent.sock';

/** Options that are not the agent's parameters. */
const local = new Set(['socket', 'signal', 'silence', 'onEvent']);

const times = new Set(['lease', 'wait', 'stall', 'every', 'offset']);

/** Returns the socket to connect to. */
export function socketOf(options) {
  return options.socket ?? (process.env.SPINDLE_AGENT || usualSocket);
}

/** Describes one request. All options but the local ones are parameters: the agent says which it does not know. */
export function describe(kind, names, options) {
  check(names);
  const parameters = {};
  for (const [name, value] of Object.entries(options)) {
    if (local.has(name) || value === undefined || value === false) continue;
    parameters[name] = times.has(name) ? format(name, value) : String(value);
  }
  const of = (name, otherwise) => (name in parameters ? milliseconds(name, parameters[name]) : otherwise);
  return {
    kind, names, parameters,
    socket: socketOf(options),
    signal: options.signal,
    onEvent: options.onEvent,
    wait: of('wait', Infinity),
    lease: of('lease', 10_000),
    silence: milliseconds('silence', format('silence', options.silence ?? '15s')),
  };
}

function check(names) {
  const wrong = names.length === 0 || names.some((name) => typeof name !== 'string' || name === '');
  if (wrong) throw new RequestError(`a lock has a name, a text that is not empty: ${JSON.stringify(names)} has none`, 'bad-parameter');
}

/** Returns the path of a request that waits for so long. */
export function pathOf({ kind, names, parameters }, wait) {
  const query = new URLSearchParams(names.map((name) => ['name', name]));
  for (const [name, value] of Object.entries(parameters)) query.append(name, value);
  if (wait !== Infinity) query.set('wait', `${wait}ms`);
  return `/v1/${kind}?${query}`;
}
