package agent

import (
	"encoding/json"
	"time"
)

// A reading is what the machine's clocks said at one moment, in milliseconds: they fit into the numbers of any language. The
// clocks are those that programs in other languages can read.
type reading struct {
	Boottime  int64 `json:"boottime_ms,omitempty"`  // CLOCK_BOOTTIME: it continues while the machine is suspended
	Monotonic int64 `json:"monotonic_ms,omitempty"` // CLOCK_MONOTONIC: it does not
	Unix      int64 `json:"unix_ms"`                // it does, but somebody may set it
}

// until returns when a term ends that had so much time left after the clocks were read. A program may act while each clock
// that it can read is before that. The clocks have to be read first: if this process is stopped between the two readings,
// that shortens the time, and never lengthens it.
func (r reading) until(left time.Duration) reading {
	ms := max(left.Milliseconds(), 0)
	u := reading{Unix: r.Unix + ms}
	if r.Boottime > 0 {
		u.Boottime, u.Monotonic = r.Boottime+ms, r.Monotonic+ms
	}
	return u
}

func (r reading) String() string {
	b, _ := json.Marshal(r)
	return string(b)
}
