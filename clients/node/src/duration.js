// Times such as '10s' or '1m30s', as the agent takes them, or numbers of milliseconds.
import { RequestError } from './errors.js';

const units = { ns: 1e-6, us: 1e-3, 'µs': 1e-3, 'μs': 1e-3, ms: 1, s: 1000, m: 60_000, h: 3_600_000 };
const part = /(\d+\.?\d*|\.\d+)(ns|us|µs|μs|ms|s|m|h)/g;

/** Returns a time as the agent takes it. */
export function format(name, time) {
  const text = typeof time === 'number' ? `${time}ms` : time;
  milliseconds(name, text);
  return text;
}

/** Returns how many milliseconds a time has. */
export function milliseconds(name, time) {
  if (time === '0') return 0;
  if (typeof time !== 'string' || time === '' || time.replace(part, '') !== '') {
    throw new RequestError(`${name}: ${JSON.stringify(time) ?? String(time)} is not a time: give milliseconds, or text such as '10s', '500ms' or '1m30s'`, 'bad-parameter');
  }
  return [...time.matchAll(part)].reduce((sum, [, n, unit]) => sum + Number(n) * units[unit], 0);
}
