import { acquire } from './acquire.js';
import { during } from './during.js';
import { optional } from './optional.js';

/** Acquires one of the slots of a semaphore. */
export async function semaphore(name, ...rest) {
  const [options, work] = optional(rest);
  const held = await acquire('semaphores', [name], options);
  return work ? during(held, work) : held;
}
