import { acquire } from './acquire.js';
import { during } from './during.js';
import { optional } from './optional.js';

/** Acquires one run of work that is done once. */
export async function once(name, ...rest) {
  const [options, work] = optional(rest);
  const run = await acquire('once', [name], options);
  if (!work) return run ?? null;
  if (run) await during(run, work, () => run.done());
  return run !== undefined;
}
