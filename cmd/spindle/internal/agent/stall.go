package agent

import (
	"time"

	"github.com/spindle-lock/spindle/internal/elect"
)

// attention tracks whether a program reads its lines. If the request set stall=, the program loses its lock once it has
// read nothing for that long. Otherwise, a crashed program would hold its lock for as long as it takes to write its
// core dump.
type attention struct {
	unread int           // at the last check, in bytes
	since  elect.Instant // when the program last read something, or had nothing to read
}

// stalled updates a with the number of unread bytes, and reports whether the program has read nothing for at least
// limit.
func (a *attention) stalled(unread int, limit time.Duration, now elect.Instant) bool {
	if unread == 0 || unread < a.unread || a.since == (elect.Instant{}) {
		a.since = now
	}
	a.unread = unread
	return limit > 0 && now.Ran(a.since) >= limit
}

// watchReading returns a ticker that fires whenever the agent should check whether the program reads.
func (h *hold) watchReading() *time.Ticker {
	every := time.Hour
	if h.asked.stall > 0 {
		every = max(h.asked.stall/8, time.Millisecond)
	}
	return time.NewTicker(every)
}
