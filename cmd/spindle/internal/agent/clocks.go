package agent

import "time"

// A reading is what the machine's clocks showed at one moment. It includes only clocks that other processes can read as
// well. Times are in milliseconds, because JavaScript's numbers can't represent nanoseconds exactly.
type reading struct {
	Boottime  int64 `json:"boottime_ms,omitempty"`  // CLOCK_BOOTTIME, which keeps running while the machine is suspended
	Monotonic int64 `json:"monotonic_ms,omitempty"` // CLOCK_MONOTONIC, which stops while the machine is suspended
	Unix      int64 `json:"unix_ms"`                // the time of day, which keeps running, but can be set
}

// until returns the time at which a term ends, by each clock. The argument left is how much of the term remained just
// after the clocks were read. A program may act only while every clock that it can read shows an earlier time than the
// result does. The caller must read the clocks before it determines left. If it pauses in between, the result is too
// early, but never too late.
func (r reading) until(left time.Duration) reading {
	ms := max(left.Milliseconds(), 0)
	u := reading{Unix: r.Unix + ms}
	if r.Boottime > 0 {
		u.Boottime, u.Monotonic = r.Boottime+ms, r.Monotonic+ms
	}
	return u
}
