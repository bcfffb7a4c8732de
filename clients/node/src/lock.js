import { acquire } from './acquire.js';
import { during } from './during.js';
import { optional } from './optional.js';

/** Acquires a mutex, or all of several. */
export async function lock(names, ...rest) {
  const [options, work] = optional(rest);
  const held = await acquire('locks', [names].flat(), options);
  return work ? during(held, work) : held;
}
