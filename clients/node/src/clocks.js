// The machine's clocks, in whole milliseconds, under the names that the agent gives them.
import { readFileSync } from 'node:fs';

/** Node reads CLOCK_BOOTTIME only from /proc/uptime, which has hundredths of a second, rounded down. */
const boottimeStep = 10;

/** With a wider interval between the two readings, the clocks of another machine could pass for the clocks of this one. */
const narrow = 100;

/** Returns what the clocks say now, or a little less. */
export function earliest() {
  return read(0);
}

/** Returns what the clocks say now, or a little more. */
export function latest() {
  return read(boottimeStep);
}

function read(margin) {
  const now = { unix_ms: Date.now() };
  if (process.platform === 'linux') {
    now.monotonic_ms = Number(process.hrtime.bigint() / 1_000_000n);
    const boottime = readBoottime();
    if (boottime !== undefined) now.boottime_ms = boottime + margin;
  } else {
    // Not CLOCK_MONOTONIC of Linux, and never compared with it, but it measures what is left.
    now.own_ms = Number(process.hrtime.bigint() / 1_000_000n);
  }
  return now;
}

function readBoottime() {
  try {
    const seconds = Number.parseFloat(readFileSync('/proc/uptime', 'latin1'));
    return Number.isNaN(seconds) ? undefined : Math.round(seconds * 1000);
  } catch {
    return undefined; // no /proc, or no free descriptor: the other clocks remain
  }
}

/**
 * Returns by how many milliseconds the agent's clocks can differ from the clocks of this process. `now` is the agent's
 * reading, which must lie between two readings of this process: the clocks differ at most by the distance between the two.
 * Returns undefined if it does not, or if the two are too far apart. Virtual machines and time namespaces have other clocks.
 */
export function difference(now, before, after) {
  const own = Object.keys(before);
  const between = own.every((clock) => before[clock] <= now?.[clock] && now[clock] <= after[clock]);
  const apart = Math.max(...own.map((clock) => after[clock] - before[clock]));
  return between && apart <= narrow + boottimeStep ? apart : undefined;
}

/** Reports whether one reading has every clock of another one. */
export function hasClocksOf(reading, other) {
  return Object.keys(other).every((clock) => Number.isFinite(reading?.[clock]));
}

/** Returns what a reading will be after so many milliseconds. */
export function after(reading, ms) {
  return Object.fromEntries(Object.entries(reading).map(([clock, at]) => [clock, at + ms]));
}
