// Which error an answer of the agent is.
import { AgentError, BusyError, LostError, RefusedError, RequestError } from './errors.js';

/** Returns the error for an answer that is not 200. */
export function errorOf(socket, names, { status, body, after }) {
  const { code, detail } = body;
  if (code === undefined) return new AgentError(socket, `answers with status ${status}, and without a problem: is it a spindle agent?`);
  switch (code) {
    case 'busy':
      return new BusyError(names, detail);
    case 'passed':
    case 'stopping':
    case 'unavailable':
    case 'too-many':
      return Object.assign(new RefusedError(names, code, detail), code === 'too-many' && after > 0 && { after });
    case 'lost':
      return new LostError(names, 'expired', detail);
  }
  return new RequestError(detail ?? code, code, status);
}

/** Returns the error for a connection that failed. */
export function unreachable(socket, error) {
  const what = {
    ENOENT: 'there is no such socket: start "spindle agent", or name its socket in SPINDLE_AGENT',
    ECONNREFUSED: 'no process listens there: start "spindle agent"',
    EACCES: 'this user may not connect: "spindle agent --mode" says who may',
  }[error?.code];
  return new AgentError(socket, what ?? `the connection failed (${error?.message ?? 'it was closed'}): try again; the agent may have ended`, error);
}
