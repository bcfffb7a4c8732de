import { RequestError } from './errors.js';

/** Returns the options and the work of (), (options), (work) or (options, work). */
export function optional(rest) {
  const [options, work] = typeof rest[0] === 'function' ? [{}, rest[0]] : rest;
  if (options !== undefined && (typeof options !== 'object' || options === null)) throw new RequestError('options are an object', 'bad-parameter');
  if (work !== undefined && typeof work !== 'function') throw new RequestError('the work is a function', 'bad-parameter');
  return [options ?? {}, work];
}
